"""The page in a real browser over a planted cluster: every view tells the truth, follows the cluster, and can be used."""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from dray.client import PODS
from dray.explain.overview import overview_of
from tests.dashboard.conftest import Shown, opened

VIEWS = ("nodes", "pods", "claims", "ledger", "pending", "events", "history")
PHONE = {"width": 390, "height": 844}


def tile(page: Page, node: str, device: str, driver: str = "gpu.example.com") -> Any:
    return page.locator(f'main .card[data-key="{node}"] [data-grid="{driver}/{node}"] [data-device="{device}"]')


def devices(shown: Shown, pod: str) -> list[tuple[str, str]]:
    """(node, device) of what a pod was given."""
    return [(each.split("/")[1], each.split("/")[2]) for each in shown.cluster.devices_of(pod)]


def claim_of(shown: Shown, pod: str) -> str:
    return shown.cluster.claims_of(pod)[0].metadata.name


def go(page: Page, view: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=re.compile(view)).click()
    expect(page.locator("main h1")).to_have_text(re.compile(view))


# --- text from objects


def test_hidden_characters_of_objects_are_shown(page: Page) -> None:
    make = """async (text) => {
      const { h } = await import("./dom.js");
      const made = h("div", { title: text }, text, [h("b", null, text)]);
      return [made.textContent, made.getAttribute("title")];
    }"""
    text, title = page.evaluate(make, "a\u202eb\x1b[31m\x9b\u2066")
    escaped = "a\\u202eb\\u001b[31m\\u009b\\u2066"
    assert (text, title) == (escaped * 2, escaped)


# --- nodes and devices


def test_the_map_shows_the_use_of_every_device(page: Page, planted: Shown) -> None:
    (node, whole), (_, sick) = devices(planted, "train")
    claim = claim_of(planted, "train")
    expect(tile(page, node, whole)).to_have_class(re.compile("in-use"))
    expect(tile(page, node, whole)).to_have_attribute("aria-label", f"{whole}: used by default/{claim}")
    expect(tile(page, node, sick)).to_have_class(re.compile("unhealthy"))
    for node, part in devices(planted, "serve"):
        expect(tile(page, node, part)).to_have_class(re.compile("in-use"))
    card = devices(planted, "serve")[0][1].split("-1g")[0]
    expect(tile(page, "node-1", card)).to_have_class(re.compile("blocked"))
    expect(tile(page, "node-1", f"{whole}-1g-18gb-0")).to_have_class(re.compile("blocked"))
    expect(tile(page, "node-2", "gpu-7")).to_have_class(re.compile("tainted"))
    expect(tile(page, "node-3", "gpu-0")).to_have_class(re.compile("free"))
    for node, nic in devices(planted, "transfer"):
        shared = tile(page, node, nic, "nic.example.com")
        expect(shared).to_have_class(re.compile("partly"))
        expect(shared).to_contain_text("5G of 100G")


def test_the_figures_agree_with_top(page: Page, planted: Shown) -> None:
    counts = overview_of(planted.world()).devices.counts
    # Two whole cards are used; one that is cut up and three nics have room left.
    assert (counts.used, counts.partly, counts.all) == (2, 4, 39)
    figure = page.locator("#summary .f-devices")
    expect(figure).to_contain_text(f"{counts.used} of {counts.all}")
    expect(figure).to_contain_text(f"{counts.partly} partly used, {counts.free} free; 1 unhealthy")
    expect(page.locator("main .card .tile.unhealthy")).to_have_count(1)
    expect(page.locator("main .card .tile.tainted")).to_have_count(1)
    expect(page.locator("main .card .tile.partly")).to_have_count(3)
    expect(page.locator("#summary .f-nodes")).to_contain_text("3 of 3")
    expect(page.locator("#summary .f-claims")).to_contain_text("4 of 5")
    expect(page.get_by_role("link", name="2 pods wait")).to_be_visible()


def test_a_device_in_depth(page: Page, planted: Shown) -> None:
    node, sick = devices(planted, "train")[1]
    tile(page, node, sick).click()
    drawer = page.get_by_role("dialog", name=sick)
    expect(drawer).to_contain_text("unhealthy")
    expect(drawer).to_contain_text("Ready is False: 97 degrees")
    expect(drawer).to_contain_text(f"default/{claim_of(planted, 'train')} for train")
    expect(drawer.get_by_role("row", name=re.compile("^model"))).to_contain_text("H200")
    expect(drawer.get_by_role("row", name="multiprocessors 132 0 132")).to_be_visible()


def test_shares_of_a_device(page: Page, planted: Shown) -> None:
    node, nic = devices(planted, "transfer")[0]
    tile(page, node, nic, "nic.example.com").click()
    drawer = page.get_by_role("dialog", name=nic)
    expect(drawer.locator(".share")).to_contain_text("5G of 100G")
    expect(drawer).to_contain_text("for transfer: 5G bandwidth")


def test_a_taint_is_named(page: Page) -> None:
    tile(page, "node-2", "gpu-7").click()
    expect(page.get_by_role("dialog", name="gpu-7")).to_contain_text("example.com/maintenance=fan:NoSchedule")


def test_nodes_can_be_filtered_by_name_and_by_use(page: Page) -> None:
    cards = page.locator("main .card")
    expect(cards).to_have_count(3)
    page.get_by_label("Filter nodes by name").fill("node-2")
    expect(cards).to_have_count(1)
    page.get_by_label("Filter nodes by name").fill("")
    page.locator('button[data-value="t"]').click()
    expect(cards).to_have_count(1)
    expect(cards).to_have_attribute("data-key", "node-2")
    page.locator('button[data-value="t"]').click()
    expect(cards).to_have_count(3)
    page.get_by_label("Filter nodes by name").fill("nothing of the kind")
    expect(page.locator("main")).to_contain_text("No node matches.")


def test_rows_tell_the_same(page: Page) -> None:
    page.get_by_role("button", name="rows").click()
    row = page.get_by_role("row", name=re.compile("node-1"))
    # Two whole cards and one that is cut up, of eight.
    headers = page.locator(".nodes .head").get_by_role("columnheader")
    expect(headers).to_have_text(["Node", "dra.cpu", "gpu.example.com", "nic.example.com", "cpu", "memory", "Pods"])
    expect(row.locator('[data-driver="gpu.example.com"]')).to_have_text("2+1/8")
    expect(row.locator('[data-driver="nic.example.com"]')).to_have_text("0/4")
    expect(row.locator('[data-driver="dra.cpu"]')).to_have_text("0/1")
    expect(row.get_by_role("img", name=re.compile("^cpu:"))).to_have_attribute(
        "aria-label", "cpu: 2500m of 8 requested, 2500m by spec, 0 by claims, 5500m free"
    )


# --- claims


def test_claims_and_who_uses_them(page: Page, planted: Shown) -> None:
    go(page, "Claims")
    rows = page.locator("main .row")
    expect(rows).to_have_count(5)
    name = claim_of(planted, "train")
    row = page.get_by_role("row", name=re.compile(name))
    expect(row).to_contain_text("in use")
    expect(row).to_contain_text("gpu-0, gpu-1")
    expect(row).to_contain_text("node-1")
    expect(page.get_by_role("row", name=re.compile("too-greedy"))).to_contain_text("too-greedy waits")
    page.get_by_label(re.compile("Filter claims")).fill("transfer")
    expect(rows).to_have_count(1)
    rows.click()
    drawer = page.get_by_role("dialog", name=claim_of(planted, "transfer"))
    expect(drawer).to_contain_text("nics: 2× nic (5G bandwidth)")
    expect(drawer.get_by_role("link", name="nic.example.com/node-2/nic-")).to_have_count(2)
    expect(drawer).to_contain_text("share: 5G bandwidth")


# --- ledger


def test_the_ledger_is_split_into_spec_and_claims(page: Page) -> None:
    go(page, "Ledger")
    row = page.get_by_role("row", name=re.compile("node-2 cpu"))
    expect(row.locator(".number")).to_have_text(["500m", "1", "6500m", "8"])
    bar = row.get_by_role("img")
    expect(bar).to_have_attribute("aria-label", "cpu: 1500m of 8 requested, 500m by spec, 1 by claims, 6500m free")
    row.click()
    drawer = page.get_by_role("dialog", name="cpu of node-2")
    rows = drawer.locator(".why li")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("by claim")
    expect(rows.nth(0)).to_contain_text("dra.cpu/node-2/cpudevnuma000")
    expect(rows.nth(1)).to_contain_text("default/pinned")
    expect(rows.nth(1)).to_contain_text("by spec: container main")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="memory").click()
    expect(page.locator("main .row")).to_have_count(3)


def test_the_ledger_is_sorted_and_says_no_amount_twice(page: Page) -> None:
    go(page, "Ledger")
    rows = page.locator(".ledger .row")
    # The fullest first: two fifths of node-1's cpu are asked for, nothing of node-3's.
    expect(rows.first).to_contain_text("node-1")
    parts = [int(text.strip(" %<")) for text in rows.locator(".bar-cell .amount").all_inner_texts()]
    assert parts == sorted(parts, reverse=True)
    for row in rows.all():
        amounts = [text for text in row.locator(".number").all_inner_texts()[:2] if text != "–"]
        assert len(set(amounts)) == len(amounts), amounts
    expect(page.get_by_role("row", name=re.compile("node-1 cpu")).locator(".number")).to_have_text(
        ["2500m", "–", "5500m", "8"]
    )
    page.get_by_label("Sort the ledger by").select_option("resource")
    expect(rows.first).to_contain_text("cpu")
    expect(rows.nth(1)).to_contain_text("cpu")


# --- pods, events, history


def test_every_pod_with_its_node_and_devices(page: Page, planted: Shown) -> None:
    go(page, "Pods")
    rows = page.locator(".pods .row")
    expect(rows).to_have_count(6)
    expect(rows.first).to_contain_text("waiting")
    page.locator('button[data-value="running"]').click()
    expect(rows).to_have_count(4)
    page.get_by_label(re.compile("Filter pods")).fill("train")
    rows.first.click()
    drawer = page.get_by_role("dialog", name="train")
    expect(drawer).to_contain_text("running")
    for node, device in devices(planted, "train"):
        expect(drawer).to_contain_text(f"gpu.example.com/{node}/{device}")
    expect(drawer).to_contain_text("Successfully assigned default/train to node-1")


def test_events_are_shown_and_open_what_they_are_about(page: Page) -> None:
    go(page, "Events")
    page.get_by_label(re.compile("Filter events")).fill("too-greedy FailedScheduling")
    row = page.locator(".events .row").first
    expect(row).to_contain_text("FailedScheduling")
    page.get_by_label(re.compile("Filter events")).fill("")
    page.locator('button[data-value="Warning"]').click()
    expect(page.locator(".events .row").first.locator(".badge.warn")).to_be_visible()
    page.locator(".events .row", has_text="too-greedy").first.click()
    expect(page.get_by_role("dialog", name="too-greedy")).to_be_visible()


def test_the_last_hours(page: Page) -> None:
    go(page, "History")
    taken, waiting = page.locator(".chart").all()
    expect(taken).to_contain_text("of 39")
    expect(waiting).to_contain_text("2 now, at most 9")
    # The planted history has a gap of forty minutes, which stays empty, and begins an hour after the left end.
    looks = [each.get_attribute("class") or "" for each in taken.locator(".column").all()]
    assert "no-sample" in looks[0]
    assert [at for at in range(60, 75) if "no-sample" in looks[at]]
    assert "taken" in looks[40]
    assert "taken" in looks[-2]


def test_escape_clears_the_filter(page: Page) -> None:
    cards = page.locator("main .card")
    box = page.get_by_label("Filter nodes by name")
    box.fill("node-2")
    expect(cards).to_have_count(1)
    page.keyboard.press("Escape")
    expect(cards).to_have_count(3)
    expect(box).to_have_value("")
    page.locator('button[data-value="t"]').click()
    expect(cards).to_have_count(1)
    page.keyboard.press("Escape")
    expect(cards).to_have_count(3)


# --- pending pods


def test_a_pod_that_waits_for_devices_is_explained(page: Page) -> None:
    go(page, "Pending")
    expect(page.locator("main .row")).to_have_count(2)
    row = page.get_by_role("row", name=re.compile("too-greedy"))
    expect(row).to_contain_text("class-selector: request cards of claim default/too-greedy")
    expect(row).to_contain_text("wants 9")
    row.click()
    drawer = page.get_by_role("dialog", name="too-greedy")
    expect(drawer.locator(".headline")).to_contain_text("wants 9")
    expect(drawer.locator(".helps")).to_contain_text("instead of 9")
    expect(drawer.locator("details")).to_have_count(3)
    stages = drawer.locator("details[open] .funnel li")
    expect(stages.nth(0)).to_contain_text("213")
    expect(stages.nth(1)).to_contain_text("8")
    expect(drawer.locator("details[open] .short-at")).to_contain_text("too few")


def test_a_pod_that_waits_for_cpu_is_explained(page: Page) -> None:
    page.goto(page.url.partition("#")[0] + "#/pending/pod/default/too-large")
    drawer = page.get_by_role("dialog", name="too-large")
    expect(drawer.locator("details[open] .short")).to_contain_text("cpu: 64 asked")


# --- live


def test_the_page_follows_the_cluster(page: Page, planted: Shown) -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "late"},
        "spec": {"devices": {"requests": [{"name": "card", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "late"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "node-3"},
            "containers": [
                {
                    "name": "main",
                    "image": "example.com/late",
                    "command": ["sleep", "3600"],
                    "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "card"}]},
                }
            ],
            "resourceClaims": [{"name": "card", "resourceClaimName": "late"}],
        },
    }
    expect(tile(page, "node-3", "gpu-0")).to_have_class(re.compile("free"))
    tile(page, "node-3", "gpu-0").focus()
    planted.cluster.apply(claim, pod)
    expect(tile(page, "node-3", "gpu-0")).to_have_class(re.compile("in-use"))
    expect(tile(page, "node-3", "gpu-0")).to_be_focused()
    expect(page.locator('main .card[data-key="node-3"] .ledger-line').first).to_contain_text("1 of 8")
    expect(page.locator("#summary .f-claims")).to_contain_text("5 of 6")
    planted.cluster.run(planted.cluster.client.delete(PODS, "late", "default", grace_seconds=0))
    expect(tile(page, "node-3", "gpu-0")).to_have_class(re.compile("free"))
    expect(page.locator('main .card[data-key="node-3"] .ledger-line').first).to_contain_text("0 of 8")


def test_an_open_panel_follows_too(page: Page, planted: Shown) -> None:
    page.goto(page.url.partition("#")[0] + "#/ledger/why/node-3/memory")
    drawer = page.get_by_role("dialog", name="memory of node-3")
    expect(drawer).to_contain_text("Nobody asks for any of it.")
    resources = {"requests": {"memory": "256Mi"}}
    container = {"name": "main", "image": "example.com/x", "command": ["sleep", "60"], "resources": resources}
    planted.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "guest"},
            "spec": {"nodeSelector": {"kubernetes.io/hostname": "node-3"}, "containers": [container]},
        }
    )
    expect(drawer.locator(".why li")).to_contain_text("default/guest")
    planted.cluster.run(planted.cluster.client.delete(PODS, "guest", "default", grace_seconds=0))
    expect(drawer).to_contain_text("Nobody asks for any of it.")


def test_the_page_says_when_it_is_live(page: Page) -> None:
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#trouble")).to_be_hidden()


# --- keyboard


def test_everything_by_keyboard(page: Page) -> None:
    titles = ("Nodes", "Pods", "Claims", "Ledger", "Pending pods", "Events", "History")
    for key, title in [*((str(at + 1), title) for at, title in enumerate(titles)), ("1", "Nodes")]:
        page.keyboard.press(key)
        expect(page.locator("main h1")).to_have_text(title)
    page.keyboard.press("3")
    page.keyboard.press("/")
    expect(page.get_by_label(re.compile("Filter claims"))).to_be_focused()
    page.keyboard.type("4")
    expect(page.locator("main h1")).to_have_text("Claims")
    page.keyboard.press("Escape")
    expect(page.locator("main .row").nth(4)).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    row = page.locator("main .row").nth(1)
    expect(row.get_by_role("link")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator("#drawer-title")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    expect(row.get_by_role("link")).to_be_focused()


def test_arrows_move_in_the_map(page: Page) -> None:
    tile(page, "node-1", "gpu-0").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(":focus")).to_have_attribute("data-device", "gpu-0-1g-18gb-0")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(":focus")).to_have_attribute("data-device", "gpu-0")
    page.keyboard.press("ArrowDown")
    expect(page.locator(":focus")).to_have_attribute("data-device", re.compile("^gpu-0-"))
    page.keyboard.press("End")
    expect(page.locator(":focus")).to_have_attribute("data-device", re.compile("^gpu-7-"))
    grid = page.locator('[data-grid="gpu.example.com/node-1"]')
    assert grid.locator('[tabindex="0"]').count() == 1


def test_the_order_of_focus_and_the_list_of_shortcuts(page: Page) -> None:
    seen = []
    for _ in range(9):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id"))
    assert seen[0] == "Skip to content"
    names = ["Nodes", "Pods", "Claims", "Ledger", "Pending", "Events", "History"]
    assert [re.sub(r"\d+$", "", text) for text in seen[1:8]] == names
    page.keyboard.press("?")
    shortcuts = page.get_by_role("dialog", name="Keyboard")
    expect(shortcuts).to_be_visible()
    expect(shortcuts).to_contain_text("nodes, pods, claims, ledger, pending, events, history")
    page.keyboard.press("Escape")
    expect(shortcuts).to_be_hidden()


def test_everything_that_takes_focus_has_a_name(page: Page) -> None:
    for view in (*VIEWS, "pending/pod/default/too-greedy", "pods/pod/default/train"):
        page.goto(page.url.partition("#")[0] + f"#/{view}")
        expect(page.locator("main h1")).to_be_visible()
        nameless = page.evaluate(
            """[...document.querySelectorAll("a, button, input, select, summary, [role=img]")]
            .filter((el) => el.offsetParent && !(el.getAttribute("aria-label") || el.textContent).trim())
            .map((el) => el.outerHTML.slice(0, 120))"""
        )
        assert nameless == []


# --- light, dark, small


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_until_told_otherwise(browser: Browser, planted: Shown, scheme: str) -> None:
    page = opened(browser, planted, color_scheme=scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    is_dark = "(() => { const [r, g, b] = %s.match(/\\d+/g).map(Number); return r + g + b < 200; })()" % ground  # noqa: UP031
    assert page.evaluate(is_dark) is (scheme == "dark")
    page.keyboard.press("t")
    assert page.evaluate(is_dark) is (scheme == "light")
    page.reload()
    page.wait_for_selector("main h1")
    assert page.evaluate(is_dark) is (scheme == "light")
    page.context.close()


def test_a_phone_has_no_sideways_scrolling(browser: Browser, planted: Shown) -> None:
    page = opened(browser, planted, viewport=PHONE, has_touch=True, is_mobile=True)
    for where in (*VIEWS, "pods/pod/default/train", "pending/pod/default/too-greedy", "ledger/why/node-2/cpu"):
        page.goto(f"{planted.page_url}#/{where}")
        expect(page.locator("main h1")).to_be_visible()
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], where
    page.goto(f"{planted.page_url}#/claims")
    page.locator("main .row").first.tap()
    drawer = page.locator("#drawer")
    expect(drawer).to_be_visible()
    assert drawer.bounding_box()["width"] == pytest.approx(PHONE["width"])  # type: ignore[index]
    drawer.get_by_role("link", name="Close").tap()
    expect(drawer).to_be_hidden()
    page.context.close()


def test_nothing_jumps_while_the_page_loads(browser: Browser, planted: Shown) -> None:
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.add_init_script(
        """window.shifts = []; new PerformanceObserver((list) => { for (const e of list.getEntries()) window.shifts.push(e.value); })
        .observe({ type: "layout-shift", buffered: true });"""
    )
    page.goto(planted.address)
    page.wait_for_selector("main .card")
    page.wait_for_timeout(500)
    assert sum(page.evaluate("window.shifts")) < 0.01
    context.close()


def test_the_map_needs_no_colour(page: Page) -> None:
    """Each use differs from the others by more than hue: a pattern, a glyph or a fill."""
    looks = page.evaluate(
        """[...document.querySelectorAll(".legend .tile")].map((el) => [
            getComputedStyle(el).backgroundImage.replace(/(rgba?|color|oklab)\\([^)]*\\)/g, "c"),
            getComputedStyle(el, "::after").content,
            getComputedStyle(el).backgroundColor === getComputedStyle(document.querySelector(".legend .free")).backgroundColor,
        ].join())"""
    )
    assert len(set(looks)) == 6
