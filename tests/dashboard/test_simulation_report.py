"""The report of `dray simulate` on a phone: nothing is wider than the screen, and the question comes first."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import Browser

from tests.cli.test_simulate import a_waiting_pod, ones_and_fours, run

PHONE = {"width": 390, "height": 844}


def test_the_report_fits_a_phone(browser: Browser, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    lost = a_waiting_pod("a-pod-with-a-rather-long-name-that-cannot-be-placed-anywhere", template="no-such-template")
    options = ("--autoscale", "--diff", "default", "--report", str(report))
    # The browser's event loop runs in this thread; a simulation has its own.
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(run, tmp_path, [*ones_and_fours(), lost], *options).result()
    assert result.exit_code == 1, result.output
    page = browser.new_context(viewport=PHONE, is_mobile=True).new_page()  # type: ignore[arg-type]
    page.set_content(report.read_text())
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    wider = """[...document.querySelectorAll("section, .wide, table, h1, dl, ul")]
        .filter((each) => each.scrollWidth > each.clientWidth + 1 && !each.querySelector("svg")).map((each) => each.outerHTML.slice(0, 80))"""
    assert page.evaluate(wider) == []
    first_screen = page.evaluate(
        """[...document.querySelectorAll("h1, .asked, .waiting li")]
        .filter((each) => each.getBoundingClientRect().top < innerHeight).map((each) => each.innerText).join("\\n")"""
    )
    for words in ("How many more nodes", "dump.json", "least-fragmentation", "UTC", "template-missing"):
        assert words in first_screen
    page.context.close()
