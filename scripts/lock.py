"""Writes the two lock files. `--check` only compares them with `pyproject.toml`, offline.

`requirements.lock` has every package that a user gets with Dray, with its version and the digest of its file, for CPython 3.11
on 64-bit Linux, where Dray is tested and what its container image has. With it an installation is the same every time, and a
file that somebody changed is refused:

    pip install --require-hashes -r requirements.lock && pip install --no-deps .

`requirements-dev.lock` has the versions of these and of all packages for development. `make setup` installs with it as
constraints, so that a new release of a checker or of its type stubs cannot break a checkout that passed before.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"
DEV_LOCK = ROOT / "requirements-dev.lock"
ENTRY = re.compile(r"^([a-z0-9-]+)==(\S+) --hash=sha256:[0-9a-f]{64}$")
DEV_ENTRY = re.compile(r"^([a-z0-9-]+)==(\S+)$")


def resolved(*wanted: str) -> list[dict[str, Any]]:
    """Asks pip, which needs an index; nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ("--dry-run", "--ignore-installed", "--quiet", "--only-binary", ":all:", "--report", str(report))
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *wanted], check=True, cwd=ROOT)
        found: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return found


def pinned(package: dict[str, Any]) -> str:
    return f"{canonicalize_name(package['metadata']['name'])}=={package['metadata']['version']}"


def digest_of(package: dict[str, Any]) -> str:
    return str(package["download_info"]["archive_info"]["hashes"]["sha256"])


def write() -> None:
    packages = resolved(*map(str, named()))
    _write_lines(LOCK, (f"{pinned(each)} --hash=sha256:{digest_of(each)}" for each in packages))
    constraints = resolved(*map(pinned, packages), *map(str, named()), "--group", "dev")
    # pip comes along with a tool, too; `make setup` has the newest before it reads the lock.
    _write_lines(DEV_LOCK, (pinned(each) for each in constraints if each["metadata"]["name"] != "pip"))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("\n".join(sorted(lines)) + "\n")


def named() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(text) for text in project["dependencies"]]


def named_for_development() -> list[Requirement]:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return [Requirement(text) for group in groups.values() for text in group if isinstance(text, str)]


def locked(path: Path, entry_format: re.Pattern[str]) -> dict[str, str]:
    """Versions by name; a line that is not an entry is a mistake."""
    found = {}
    for line in path.read_text().splitlines():
        entry = entry_format.match(line)
        if entry is None:
            raise SystemExit(f"{path.name}: not an entry: {line!r}")
        found[entry[1]] = entry[2]
    return found


def problems() -> list[str]:
    """Requirements that the lock does not meet, of Dray and of the packages that it brings along."""
    versions = locked(LOCK, ENTRY)
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


def problems_of_development() -> list[str]:
    """Packages that the tests would have in another version than users have, and tools that are not locked."""
    versions = locked(DEV_LOCK, DEV_ENTRY)
    found = [
        f"{name} is {versions.get(name, 'not locked')}, and {version} is in {LOCK.name}"
        for name, version in locked(LOCK, ENTRY).items()
        if versions.get(name) != version
    ]
    for requirement in named_for_development():
        version = versions.get(canonicalize_name(requirement.name))
        if version is None or version not in requirement.specifier:
            found.append(f"pyproject.toml needs {requirement}, and {version or 'no version'} is locked")
    return found


def main() -> int:
    if "--check" not in sys.argv:
        write()
    found = [f"{LOCK.name}: {problem}" for problem in problems()]
    found += [f"{DEV_LOCK.name}: {problem}" for problem in problems_of_development()]
    for problem in found:
        print(f"{problem}; python scripts/lock.py writes it anew")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
