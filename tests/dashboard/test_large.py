"""Many nodes: what the page holds stays small, and everything can still be found."""

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from dray.client import NODES, SLICES, Client
from dray.testing import Cluster, cluster
from tests.dashboard.conftest import Shown, opened, shown_on

COUNT = 500


async def plant(client: Client) -> None:
    limit = asyncio.Semaphore(32)

    async def put(kind: Any, document: dict[str, Any]) -> None:
        async with limit:
            await client.create(kind, document)

    async def node(number: int) -> None:
        name = f"rack-{number}"
        ready = [{"type": "Ready", "status": "True"}]
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        status = {"conditions": ready, "allocatable": amounts, "capacity": amounts}
        await put(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
        taint = [{"key": "k", "effect": "NoSchedule"}] if number == COUNT - 3 else []
        devices: list[dict[str, Any]] = [{"name": f"gpu-{index}"} for index in range(8)]
        devices[3]["taints"] = taint
        spec = {
            "driver": "gpu.example.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        }
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": spec,
        }
        await put(SLICES, document)

    await asyncio.gather(*(node(number) for number in range(1, COUNT + 1)))


@pytest.fixture(scope="module")
def large() -> Iterator[Shown]:
    with cluster(nodes=0, devices=()) as running:
        running.run(plant(running.client), 60)
        with shown_on(running) as shown:
            yield shown


def rows(running: Cluster) -> int:
    return len(running.run(running.client.list(NODES)).items)


def test_five_hundred_nodes(browser: Browser, large: Shown) -> None:
    assert rows(large.cluster) == COUNT
    started = time.monotonic()
    page = opened(browser, large, viewport={"width": 1280, "height": 860})
    expect(page.locator("#summary .f-devices")).to_contain_text("0 of 4,000")
    assert time.monotonic() - started < 15
    # Only what can be seen is there.
    shown = page.locator("main .row")
    assert shown.count() < 60
    expect(page.get_by_role("table", name="Nodes")).to_have_attribute("aria-rowcount", str(COUNT + 1))
    expect(shown.first).to_contain_text("rack-1")
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    expect(page.locator('main .row[data-key="rack-500"]')).to_be_in_viewport()
    assert shown.count() < 60
    page.evaluate("window.scrollTo(0, 0)")
    page.locator('button[data-value="t"]').click()
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text(f"rack-{COUNT - 3}")
    page.locator('button[data-value="t"]').click()
    page.get_by_label("Filter nodes by name").fill("rack-250")
    expect(shown).to_have_count(1)
    shown.click()
    drawer = page.get_by_role("dialog", name="rack-250")
    expect(drawer.locator(".tile")).to_have_count(8)
    page.keyboard.press("Escape")
    page.get_by_label("Sort nodes by").select_option("trouble")
    page.get_by_label("Filter nodes by name").fill("")
    expect(shown.first).to_have_attribute("data-key", f"rack-{COUNT - 3}")
    page.context.close()


def test_rows_can_be_walked_to_the_end(browser: Browser, large: Shown) -> None:
    page = opened(browser, large, "#/ledger", viewport={"width": 1280, "height": 860})
    expect(page.get_by_role("table")).to_have_attribute("aria-rowcount", str(2 * COUNT + 1))
    for _ in range(60):
        page.keyboard.press("j")
        page.wait_for_timeout(5)
    expect(page.locator(":focus")).to_have_text(re.compile("^rack-(29|30|31)$"))
    page.context.close()


def test_bars_have_names_on_a_phone(browser: Browser, large: Shown) -> None:
    """There is no head of the table that would say which bar is which."""
    page = opened(browser, large, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.wait_for_selector(".nodes .row")
    names = page.evaluate(
        """[...document.querySelector(".nodes .row").querySelectorAll(".bar-cell")]
        .map((cell) => getComputedStyle(cell, "::before").content)"""
    )
    assert names == ['"cpu"', '"memory"']
    page.context.close()
