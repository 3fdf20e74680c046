"""The documentation site: it builds without a network, every page is reached, every link leads somewhere, and search finds words."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed; the dev group has it"
)


def script() -> Any:
    spec = importlib.util.spec_from_file_location("site_script", ROOT / "scripts" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["site_script"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site").resolve()
    script().build(folder)
    return folder


def test_every_page_is_reached_and_loads_nothing_from_elsewhere(site: Path) -> None:
    assert list(script().problems_of(site)) == []
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert {path if path.name != "README" else path.with_name("index") for path in pages} <= built


def test_search_finds_the_words_of_pages_reference_and_examples(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    for word, place in (("dray-lab", "command-line"), ("DRAConsumableCapacity", "reference/feature"), ("resourceclaim_controller", "reference/metrics")):  # fmt: skip
        assert any(word in entry["text"] and entry["location"].startswith(place) for entry in entries), word


def test_commands_can_be_copied_and_pictures_are_there(site: Path) -> None:
    page = (site / "getting-started.html").read_text()
    assert "content.code.copy" in page
    assert '<div class="highlight">' in page
    assert "screenshots/" in (site / "dashboard.html").read_text()
    assert (site / "screenshots" / "nodes.png").is_file()


def test_broken_pages_are_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="a.html">a</a><a href="gone.html">b</a><script src="https://x/y"></script>'
    )
    (tmp_path / "a.html").write_text('<a href=".">back</a><img src="none.png">')
    (tmp_path / "alone.html").write_text("")
    assert sorted(script().problems_of(tmp_path)) == [
        "a.html: none.png leads nowhere",
        "alone.html cannot be reached from the first page",
        "index.html: gone.html leads nowhere",
        "index.html: https://x/y does not come with the site",
    ]


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script()
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# A\n\n[b](docs/b.md)\n")
    (tmp_path / "CONTRIBUTING.md").write_text("# C\n")
    (tmp_path / "docs" / "b.md").write_text("# B\n\n[up](../README.md) [c](#no-such-part)\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "DOCS", tmp_path / "docs")
    with pytest.raises(module.BrokenPages, match="no-such-part"):
        module.build(tmp_path / "site")
    (tmp_path / "docs" / "b.md").write_text("# B\n\n[up](../README.md) [c](#part)\n\n## Part\n")
    module.build(tmp_path / "site")
    assert list(module.problems_of(tmp_path / "site")) == []
