"""A planted cluster with its dashboard, and a real browser that may talk to this machine only."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from dray.api.dra.device_use import UseCounts
from dray.client import CLAIMS, NODES, PODS, SLICES, TAINT_RULES
from dray.dashboard import PREFIX, Dashboard, dashboard_url, new_token
from dray.dashboard.use_history import UseHistory, UseSample
from dray.explain.cluster_objects import ClusterObjects
from dray.sim.pod_explanation import explain_live_pods
from dray.testing import Cluster, cluster

PLANTED = Path(__file__).parent / "planted.yaml"
ONLY_THIS_MACHINE = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
WAIT_MS = 15_000
expect.set_options(timeout=WAIT_MS)


@dataclass
class Shown:
    """A cluster and the address of its page, token included."""

    cluster: Cluster
    token: str
    address: str

    @property
    def page_url(self) -> str:
        return f"{self.cluster.url}{PREFIX}/"

    def world(self) -> ClusterObjects:
        """The objects of the cluster, as `dray top` reads them."""

        async def listed() -> ClusterObjects:
            client = self.cluster.client
            found = [(await client.list(kind)).items for kind in (NODES, PODS, CLAIMS, SLICES, TAINT_RULES)]
            return ClusterObjects.of(obj for items in found for obj in items)

        return self.cluster.run(listed())


def planted_history() -> UseHistory:
    """Five hours in which more and then less was taken, with a gap, and pods had to wait for a while."""
    history = UseHistory()
    now = datetime.now(UTC)
    for minutes in (*range(300, 200, -2), *range(160, 1, -2)):
        used = 2 + max(0, 18 - abs(150 - minutes) // 8)
        counts = UseCounts(used=used, partly=4, free=33 - used, parts=used + 1.5)
        history.add(UseSample(now - timedelta(minutes=minutes), counts, max(0, 9 - abs(60 - minutes) // 8)))
    return history


@contextmanager
def shown_on(running: Cluster) -> Iterator[Shown]:
    token = new_token()

    async def mount() -> Dashboard:
        dashboard = Dashboard(
            running.plane.client("dashboard"),
            token,
            explain=explain_live_pods,
            title="planted",
            history=planted_history(),
        )
        running.plane.running.mount(PREFIX, dashboard)
        return dashboard

    dashboard = running.run(mount())
    try:
        yield Shown(running, token, dashboard_url(running.url, token))
    finally:
        running.run(dashboard.stop())


@contextmanager
def planted_cluster() -> Iterator[Cluster]:
    """Pods that run, pods that wait, and a device that is not well."""
    with cluster(nodes=3, devices=("gpu", "cpu", "nic")) as running:
        running.apply(PLANTED)
        for name in ("train", "serve", "transfer", "pinned"):
            running.wait_until_running(name)
        for name in ("too-greedy", "too-large"):
            running.wait_until_unschedulable(name)
        make_unhealthy(running, "train", 1)
        yield running


@pytest.fixture(scope="module")
def planted() -> Iterator[Shown]:
    with planted_cluster() as running, shown_on(running) as shown:
        yield shown


def make_unhealthy(running: Cluster, pod: str, index: int) -> str:
    """A driver reports that one of the pod's devices does not work; the answer is the device's name."""
    claim = running.claims_of(pod)[0]
    assert claim.status.allocation is not None
    row = claim.status.allocation.devices.results[index]
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Overheated",
        "message": "97 degrees",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"driver": row.driver, "pool": row.pool, "device": row.device, "conditions": [condition]}
    patch = {"status": {"devices": [status]}}
    running.run(
        running.client.patch(CLAIMS, claim.metadata.name, patch, claim.metadata.namespace, subresource="status")
    )
    return row.device


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "the dashboard's tests need chromium: python scripts/system_packages.py installs it"
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", ONLY_THIS_MACHINE]
        running = playwright.chromium.launch(executable_path=program, args=arguments)
        yield running
        running.close()


def opened(browser: Browser, shown: Shown, where: str = "", **options: object) -> Page:
    context: BrowserContext = browser.new_context(ignore_https_errors=True, **options)  # type: ignore[arg-type]
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto(shown.address)
    if where:
        page.goto(f"{shown.page_url}{where}")
    page.wait_for_selector("main h1")
    return page


@pytest.fixture(scope="module")
def signed_in(browser: Browser, planted: Shown) -> Iterator[BrowserContext]:
    found = opened(browser, planted, viewport={"width": 1280, "height": 860})
    yield found.context
    found.context.close()


@pytest.fixture
def page(signed_in: BrowserContext, planted: Shown) -> Iterator[Page]:
    """The start page at 1280 pixels; a script error or a request to elsewhere fails the test that made it."""
    found = signed_in.new_page()
    problems: list[str] = []
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    found.on("request", lambda asked: None if asked.url.startswith(planted.page_url) else problems.append(asked.url))
    found.goto(planted.page_url)
    found.wait_for_selector("main h1")
    yield found
    found.close()
    assert problems == []
