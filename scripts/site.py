"""Builds the documentation as a site: .venv/bin/python scripts/site.py build/site

The pages are those of the repository as they stand; README.md is the first one. Files and folders that a page links to outside of
docs become pages with their text. The build fails on a link or anchor that leads nowhere; `problems_of` looks at the finished pages once more:
whether every one is reached from the first, and whether all that they load comes with the site.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
# The menu. A page that no row names is in the last group, so that none is forgotten.
MENU: dict[str, tuple[str, ...]] = {
    "Start": ("index", "getting-started", "command-line", "troubleshooting", "releasing"),
    "Features": ("features/*",),
    "Tools": ("explain", "doctor", "simulate", "lint", "dashboard", "ledger", "cel", "allocator"),
    "Build on it": ("writing-a-driver", "testing", "nvidia", "cpu", "net", "hardware/*", "running-against-a-cluster"),
    "Reference": ("reference/*", "differences", "glossary", "kep-coverage"),
    "Inside": ("architecture", "how-to-change", "apiserver", "storage", "scheduler", "controllers", "kubelet"),
    "Design": ("design/*",),
    "Files": ("files/*",),
    "More": ("*",),
}
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
_LANGUAGES = {".yaml": "yaml", ".py": "python", ".json": "json", "": "sh"}
CONFIG = """\
site_name: Dray
site_description: Kubernetes Dynamic Resource Allocation, whole, in Python
docs_dir: {docs}
site_dir: {site}
use_directory_urls: false
theme:
  name: material
  font: false
  features: [content.code.copy, navigation.indexes, navigation.top, search.highlight, search.suggest, toc.follow]
  palette:
    - {{media: "(prefers-color-scheme: light)", scheme: default, toggle: {{icon: material/weather-night, name: Dark}}}}
    - {{media: "(prefers-color-scheme: dark)", scheme: slate, toggle: {{icon: material/weather-sunny, name: Light}}}}
plugins: [search]
markdown_extensions:
  - tables
  - sane_lists
  - pymdownx.highlight: {{use_pygments: true}}
  - pymdownx.superfences
  - toc: {{permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify {{kwds: {{case: lower}}}}}}
validation:
  omitted_files: warn
  absolute_links: warn
  unrecognized_links: warn
  anchors: warn
nav:
{nav}
"""


class BrokenPages(Exception):
    """The generator found links or anchors that lead nowhere; the text is what it said."""


class Staging:
    """The pages as the generator wants them: one folder, in which every link stays inside."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[Path] = []

    def fill(self) -> None:
        shutil.copytree(DOCS, self._folder, dirs_exist_ok=True)
        for source in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]:
            target = self._folder / place_of(source)
            target.write_text(self._linked(source))
        for source in self._files:
            target = self._folder / place_of(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(page_of_files(source))

    def _linked(self, source: Path) -> str:
        """The text of a page with links that lead to the places of the site."""
        here = place_of(source).parent

        def linked(found: re.Match[str]) -> str:
            before, link, after = found.groups()
            target = (source.parent / link).resolve()
            if "://" in link or link.startswith("mailto:") or not target.is_relative_to(ROOT) or not target.exists():
                return found[0]
            if (target / "README.md").exists():
                target /= "README.md"
            if not target.is_relative_to(DOCS) and target.parent != ROOT and target not in self._files:
                self._files.append(target)
            return f"{before}{relative(place_of(target), here)}{after}"

        return _LINK.sub(linked, source.read_text())

    def menu(self) -> str:
        left = sorted(str(path.relative_to(self._folder).with_suffix("")) for path in self._folder.rglob("*.md"))
        lines = []
        for group, patterns in MENU.items():
            chosen = [page for pattern in patterns for page in left if Path(page).match(pattern) or pattern == "*"]
            # The overview of a folder comes before its pages; the order of the row stays otherwise.
            chosen = sorted(dict.fromkeys(chosen), key=lambda page: not page.endswith(("/README", "index")))
            left = [page for page in left if page not in chosen]
            if chosen:
                lines += [f"  - {group}:", *(f"      - {page}.md" for page in chosen)]
        return "\n".join(lines)


def place_of(source: Path) -> Path:
    """Where a file of the repository is in the site."""
    if source.is_relative_to(DOCS):
        return source.relative_to(DOCS)
    if source.parent == ROOT and source.suffix == ".md":
        return Path("index.md" if source.name == "README.md" else source.name.lower())
    return Path("files") / f"{str(source.relative_to(ROOT)).replace('/', '-')}.md"


def relative(target: Path, folder: Path) -> str:
    up = len(folder.parts)
    return "../" * up + target.as_posix()


def page_of_files(source: Path) -> str:
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    parts = [f"# {source.relative_to(ROOT)}"]
    for path in files:
        if len(files) > 1:
            parts.append(f"## {path.relative_to(source)}")
        parts.append(f"````{_LANGUAGES.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n````")
    return "\n\n".join(parts) + "\n"


def build(site: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder) / "docs"
        docs.mkdir()
        staging = Staging(docs)
        staging.fill()
        config = Path(folder) / "mkdocs.yml"
        config.write_text(CONFIG.format(docs=docs, site=site.absolute(), nav=staging.menu()))
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise BrokenPages(done.stdout)


# --- the finished pages


class _References(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "a" and named.get("href"):
            self.links.append(str(named["href"]))
        elif tag in ("img", "script") and named.get("src"):
            self.loaded.append(str(named["src"]))
        elif tag == "link" and named.get("rel") in ("stylesheet", "icon") and named.get("href"):
            self.loaded.append(str(named["href"]))


def problems_of(site: Path) -> Iterator[str]:
    """Pages that cannot be reached, and files that are missing or come from elsewhere."""
    start = site / "index.html"
    reached, waiting = {start}, [start]
    while waiting:
        page = waiting.pop()
        found = _References()
        found.feed(page.read_text())
        for reference in found.loaded:
            if urlsplit(reference).scheme not in ("", "data"):
                yield f"{page.relative_to(site)}: {reference} does not come with the site"
        for reference in (*found.links, *found.loaded):
            parts = urlsplit(reference)
            if parts.scheme or not parts.path:
                continue
            target = (page.parent / unquote(parts.path)).resolve()
            # The name of the site leads to the folder of the first page, as on every web server.
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{page.relative_to(site)}: {reference} leads nowhere"
            elif target.suffix == ".html" and target not in reached:
                reached.add(target)
                waiting.append(target)
    for page in sorted(site.rglob("*.html")):
        if page not in reached and page.name != "404.html":
            yield f"{page.relative_to(site)} cannot be reached from the first page"


def main() -> int:
    site = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site")
    try:
        build(site)
    except BrokenPages as found:
        print(found)
        return 1
    problems = list(problems_of(site.resolve()))
    print("\n".join(problems) or f"{len(list(site.rglob('*.html')))} pages in {site}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
