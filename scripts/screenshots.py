"""Takes the pictures in docs/screenshots: planted clusters, the real page, Chromium. `python scripts/screenshots.py [NAME...]`"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402
from tests.dashboard.conftest import Shown, planted_cluster, shown_on  # noqa: E402

from dray.testing import Cluster, cluster  # noqa: E402

PICTURES = ROOT / "docs" / "screenshots"
DESK = (1280, 800)
PHONE = (390, 844)
CLASSES = ROOT / "examples" / "gpu" / "classes.yaml"


@dataclass(frozen=True)
class Picture:
    """`keys` are pressed before the picture is taken; `waits_for` must be there."""

    where: str
    waits_for: str
    size: tuple[int, int] = DESK
    is_dark: bool = False
    keys: tuple[str, ...] = ()


SMALL = {
    "nodes": Picture("#/nodes", ".card .tile.unhealthy"),
    "nodes-dark": Picture("#/nodes", ".card .tile.unhealthy", is_dark=True),
    "device": Picture("#/nodes/device/gpu.example.com/node-1/gpu-0", "#drawer .facts"),
    "claims": Picture("#/claims", ".claims .row"),
    "pods": Picture("#/pods/pod/default/train", "#drawer h3"),
    "events-dark": Picture("#/events", ".events .row", is_dark=True),
    "history": Picture("#/history", ".chart .plot"),
    "claim-dark": Picture("#/claims/claim/default/{transfer}", "#drawer li", is_dark=True),
    "wide": Picture("#/nodes", ".card .tile.unhealthy", (1920, 1000)),
    "ledger": Picture("#/ledger/why/node-2/cpu", ".why li"),
    "pending": Picture("#/pending/pod/default/too-greedy", ".funnel", (1280, 960)),
    "shortcuts": Picture("#/claims", ".claims .row", keys=("?",)),
    "phone-nodes": Picture("#/nodes", ".card .tile", PHONE),
    "phone-pods": Picture("#/pods", ".pods .row", PHONE),
    "phone-events-dark": Picture("#/events", ".events .row", PHONE, is_dark=True),
    "phone-history": Picture("#/history", ".chart .plot", PHONE),
    "phone-claims-dark": Picture("#/claims", ".claims .row", PHONE, is_dark=True),
    "phone-ledger": Picture("#/ledger", ".ledger .row", PHONE),
    "phone-pending": Picture("#/pending/pod/default/too-greedy", ".funnel", PHONE),
}
LARGE = {
    "many-nodes": Picture("#/nodes", ".nodes .row"),
    "many-nodes-dark": Picture("#/nodes", ".nodes .row", is_dark=True),
    "phone-many-nodes": Picture("#/nodes", ".nodes .row", PHONE),
}


@contextmanager
def large() -> Iterator[Cluster]:
    """Forty nodes with work of different sizes on them."""
    with cluster(nodes=40, devices=("gpu", "nic")) as running:
        running.apply(CLASSES)
        for number in range(70):
            running.apply(_claim(number), _pod(number))
        for number in range(70):
            running.wait_for_pod(f"job-{number}", lambda pod: bool(pod.spec.node_name), "placed", timeout_s=60)
        yield running


def _claim(number: int) -> dict[str, object]:
    exactly = {"deviceClassName": "gpu", "count": 1 + number % 4}
    spec = {"devices": {"requests": [{"name": "cards", "exactly": exactly}]}}
    metadata = {"name": f"job-{number}"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def _pod(number: int) -> dict[str, object]:
    requests = {"cpu": f"{500 + 250 * (number % 5)}m", "memory": f"{1 + number % 7}Gi"}
    resources = {"requests": requests, "claims": [{"name": "cards"}]}
    container = {"name": "main", "image": "example.com/job", "resources": resources}
    claims = [{"name": "cards", "resourceClaimName": f"job-{number}"}]
    spec = {"containers": [container], "resourceClaims": claims}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"job-{number}"}, "spec": spec}


def take(browser: Browser, shown: Shown, name: str, picture: Picture, names: dict[str, str]) -> None:
    width, height = picture.size
    context = browser.new_context(
        ignore_https_errors=True,
        viewport={"width": width, "height": height},
        color_scheme="dark" if picture.is_dark else "light",
        reduced_motion="reduce",
    )
    page: Page = context.new_page()
    page.goto(shown.address)
    page.goto(f"{shown.page_url}{picture.where.format(**names)}")
    page.wait_for_selector(picture.waits_for)
    for key in picture.keys:
        page.keyboard.press(key)
    page.wait_for_timeout(400)
    page.screenshot(path=PICTURES / f"{name}.png")
    context.close()


def main(wanted: list[str]) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for start, pictures in ((planted_cluster, SMALL), (large, LARGE)):
            chosen = {name: picture for name, picture in pictures.items() if not wanted or name in wanted}
            if not chosen:
                continue
            with start() as running, shown_on(running) as shown:
                names = {"transfer": running.claims_of("transfer")[0].metadata.name} if start is planted_cluster else {}
                for name, picture in chosen.items():
                    take(browser, shown, name, picture, names)
                    print(PICTURES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
