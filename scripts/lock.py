"""Writes requirements.lock: every package that a user gets with Dray, with its version and the digest of its file. `--check` only compares, offline.

The files are those for CPython 3.11 on 64-bit Linux, where Dray is tested and what its container image has. With the lock
an installation is the same every time, and a file that somebody changed is refused:

    pip install --require-hashes -r requirements.lock && pip install --no-deps .
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"
ENTRY = re.compile(r"^([a-z0-9-]+)==(\S+) --hash=sha256:[0-9a-f]{64}$")


def resolved() -> list[str]:
    """Asks pip, which needs an index; nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ("--dry-run", "--ignore-installed", "--quiet", "--only-binary", ":all:", "--report", str(report))
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *map(str, named())], check=True)
        found = json.loads(report.read_text())["install"]
    return sorted(
        f"{canonicalize_name(each['metadata']['name'])}=={each['metadata']['version']} "
        f"--hash=sha256:{each['download_info']['archive_info']['hashes']['sha256']}"
        for each in found
    )


def named() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(text) for text in project["dependencies"]]


def locked() -> dict[str, str]:
    """Versions by name; a line that is not an entry is a mistake."""
    found = {}
    for line in LOCK.read_text().splitlines():
        entry = ENTRY.match(line)
        if entry is None:
            raise SystemExit(f"{LOCK.name}: not an entry: {line!r}")
        found[entry[1]] = entry[2]
    return found


def problems() -> list[str]:
    """Requirements that the lock does not meet, of Dray and of the packages that it brings along."""
    versions = locked()
    found = []
    wanted = [("pyproject.toml", requirement) for requirement in named()]
    seen: set[str] = set()
    while wanted:
        by, requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if name not in versions:
            found.append(f"{by} needs {requirement}, which is not locked")
        elif versions[name] not in requirement.specifier:
            found.append(f"{by} needs {requirement}, and {versions[name]} is locked")
        if name in seen or name not in versions:
            continue
        seen.add(name)
        wanted += [(name, Requirement(text)) for text in metadata.requires(name) or ()]
    found += [f"{name} is locked, and nothing needs it" for name in sorted(versions.keys() - seen)]
    return found


def main() -> int:
    if "--check" not in sys.argv:
        LOCK.write_text("\n".join(resolved()) + "\n")
    found = problems()
    for problem in found:
        print(f"{LOCK.name}: {problem}; python scripts/lock.py writes it anew")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
