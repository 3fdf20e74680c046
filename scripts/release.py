"""Builds a release into a folder: wheel, sdist, Helm chart, the archive and manifest for krew, release notes and checksums.

    .venv/bin/python scripts/release.py --out dist --url https://example.com/dray/v0.1.0

The same tree gives the same bytes, wherever and whenever it is built. `--url` is where the files will be; the manifest for krew names it.
Nothing in the tree changes; `--take-notes DATE` moves the fragments of changelog.d into CHANGELOG.md instead.
"""

import argparse
import gzip
import hashlib
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
FRAGMENTS = ROOT / "changelog.d"
# Files have no other time than this, the one that hatchling uses: 2 February 2020.
TIME = 1580601600


def version() -> str:
    """Of the package, where it stands once."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src" / "dray" / "__init__.py").read_text(), re.M)
    assert found is not None
    return found[1]


def build_packages(out: Path) -> None:
    """Hatchling, without an environment of its own, so that nothing is downloaded."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(out)], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )


def archive(path: Path, files: dict[str, tuple[bytes, int]]) -> None:
    """A .tar.gz of names to content and mode: owned by nobody, in order, with one time for all."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), mode, TIME
            tar.addfile(entry, io.BytesIO(content))
    with path.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=TIME) as packed:
        packed.write(plain.getvalue())


def build_chart(out: Path) -> Path:
    chart = ROOT / "deploy" / "chart"
    files = {
        f"dray/{path.relative_to(chart)}": (path.read_bytes(), 0o644) for path in chart.rglob("*") if path.is_file()
    }
    path = out / f"dray-chart-{version()}.tgz"
    archive(path, files)
    return path


def build_krew(out: Path, url: str) -> None:
    """The plugin for kubectl: a launcher, and the manifest that names its archive."""
    path = out / f"kubectl-dray-{version()}.tar.gz"
    launcher = (ROOT / "deploy" / "krew" / "kubectl-dray").read_bytes().replace(b"@VERSION@", version().encode())
    archive(path, {"kubectl-dray": (launcher, 0o755), "LICENSE": ((ROOT / "LICENSE").read_bytes(), 0o644)})
    manifest = yaml.safe_load((ROOT / "deploy" / "krew" / "dray.yaml").read_text())
    manifest["spec"]["version"] = f"v{version()}"
    for platform in manifest["spec"]["platforms"]:
        platform |= {"uri": f"{url}/{path.name}", "sha256": sha256(path)}
    (out / "dray.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False, width=2**30))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fragments() -> list[Path]:
    return sorted(path for path in FRAGMENTS.glob("*.md") if path.name != "README.md")


def notes() -> str:
    """What changes for users: what breaks first, then topic by topic."""
    breaking: list[str] = []
    topics: list[str] = []
    for path in fragments():
        entries = entries_of(path.read_text())
        breaking += (each for each in entries if each.startswith("- **Breaking:**"))
        others = [each for each in entries if not each.startswith("- **Breaking:**")]
        if others:
            topics += [f"### {path.stem.replace('-', ' ').capitalize()}", "", *others, ""]
    head = ["### Breaking", "", *(each.replace("**Breaking:** ", "", 1) for each in breaking), ""] if breaking else []
    return "\n".join([*head, *topics]).rstrip() + "\n"


def entries_of(text: str) -> list[str]:
    """The points of a fragment, each with the lines that belong to it."""
    entries: list[str] = []
    for line in text.splitlines():
        if line.startswith("- ") or not entries:
            entries.append(line)
        elif line.strip():
            entries[-1] += f"\n{line}"
    return [each for each in entries if each.strip()]


def take_notes(date: str) -> None:
    path = ROOT / "CHANGELOG.md"
    before = path.read_text() if path.exists() else "# Changelog\n"
    title, _, rest = before.partition("\n")
    path.write_text(f"{title}\n\n## {version()}, {date}\n\n{notes()}{rest}")
    for fragment in fragments():
        fragment.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--url", default="https://example.com/dray")
    parser.add_argument(
        "--take-notes", metavar="DATE", help="Write CHANGELOG.md and remove the fragments; build nothing."
    )
    options = parser.parse_args()
    if options.take_notes:
        take_notes(options.take_notes)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    build_packages(options.out)
    build_chart(options.out)
    build_krew(options.out, options.url.rstrip("/"))
    (options.out / "NOTES.md").write_text(f"# Dray {version()}\n\n{notes()}")
    built = sorted(path for path in options.out.iterdir() if path.name != "SHA256SUMS")
    (options.out / "SHA256SUMS").write_text("".join(f"{sha256(path)}  {path.name}\n" for path in built))
    for path in built:
        print(f"{path.stat().st_size:>9}  {path}")


if __name__ == "__main__":
    main()
