"""Used, partly used, free, blocked and tainted: the one definition."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.manifests import a_claim, a_device, a_result, a_slice, a_taint_rule

from dray.api.codec import to_object
from dray.api.dra.device_use import ClusterUse, UseCounts, smallest_share
from dray.api.resource import DeviceCapacity, DeviceTaintRule, ResourceClaim, ResourceSlice

Document = dict[str, Any]


def part(name: str, slots: str) -> Document:
    return a_device(name, consumesCounters=[{"counterSet": "card-0", "counters": {"slots": {"value": slots}}}])


def counter_slice() -> Document:
    return a_slice("counters", node="n1", pool="n1", slices=2, counters={"card-0": {"slots": "4"}})


def shared(name: str = "nic", memory: str = "40Gi", **policy: Any) -> Document:
    capacity: Document = {"value": memory, **({"requestPolicy": policy} if policy else {})}
    return a_device(name, allowMultipleAllocations=True, capacity={"memory": capacity})


def share(device: str, amount: str, number: int = 1) -> Document:
    return a_result(device, shareID=f"00000000-0000-4000-8000-{number:012}", consumedCapacity={"memory": amount})


def use_of(*documents: Document) -> ClusterUse:
    kinds = {"ResourceSlice": ResourceSlice, "ResourceClaim": ResourceClaim, "DeviceTaintRule": DeviceTaintRule}
    objects = [to_object(each, kinds[each["kind"]]) for each in documents]

    def of(kind: type) -> list[Any]:
        return [each for each in objects if isinstance(each, kind)]

    return ClusterUse(of(ResourceSlice), of(ResourceClaim), of(DeviceTaintRule))


def uses(use: ClusterUse) -> dict[str, str]:
    return {
        device.name: str(found)
        for pool in use.pools
        for device, found in zip(pool.layout.devices, pool.occupancy.uses, strict=True)
    }


def held(*results: Document) -> Document:
    return a_claim("held", results=results)


@pytest.mark.parametrize(
    ("device", "results", "expected"),
    [
        pytest.param(a_device("d"), [], "free", id="nobody-holds-it"),
        pytest.param(a_device("d"), [a_result("d")], "used", id="held"),
        pytest.param(a_device("d"), [a_result("d", adminAccess=True)], "free", id="an-administrator-only-looks"),
        pytest.param(shared("d"), [share("d", "10Gi")], "partly used", id="shares-are-left"),
        pytest.param(shared("d"), [share("d", "30Gi"), share("d", "10Gi", 2)], "used", id="no-share-is-left"),
        pytest.param(shared("d"), [a_result("d")], "used", id="held-as-a-whole"),
        pytest.param(
            shared("d", validRange={"min": "16Gi"}, default="16Gi"),
            [share("d", "32Gi")],
            "used",
            id="less-is-left-than-the-smallest-share",
        ),
        pytest.param(
            shared("d", validValues=["8Gi", "32Gi"], default="8Gi"),
            [share("d", "32Gi")],
            "partly used",
            id="the-smallest-value-is-left",
        ),
        pytest.param(
            a_device("d", taints=[{"key": "k", "effect": "NoSchedule"}]), [], "tainted", id="a-taint-keeps-away"
        ),
        pytest.param(a_device("d", taints=[{"key": "k", "effect": "None"}]), [], "free", id="a-taint-without-effect"),
    ],
)
def test_one_device(device: Document, results: list[Document], expected: str) -> None:
    claims = [a_claim(f"c{number}", results=[result]) for number, result in enumerate(results)]
    assert uses(use_of(a_slice("s", device, node="n1", pool="n1"), *claims)) == {"d": expected}


def test_a_rule_taints_a_device_that_nobody_holds() -> None:
    published = a_slice("s", a_device("a"), a_device("b"), a_device("c"), node="n1", pool="n1")
    rule = a_taint_rule(driver="gpu.example.com", device="a")
    everywhere = a_taint_rule("all", effect="NoSchedule", pool="n1")
    assert uses(use_of(published, rule)) == {"a": "tainted", "b": "free", "c": "free"}
    assert uses(use_of(published, everywhere, held(a_result("b")))) == {"a": "tainted", "b": "used", "c": "tainted"}


@pytest.mark.parametrize(
    ("results", "devices", "counts"),
    [
        pytest.param([], {"whole": "free", "half": "free", "half-2": "free"}, UseCounts(free=1), id="untouched"),
        pytest.param(
            ["half"],
            {"whole": "blocked", "half": "used", "half-2": "free"},
            UseCounts(partly=1, parts=0.5),
            id="half-is-left",
        ),
        pytest.param(
            ["whole"],
            {"whole": "used", "half": "blocked", "half-2": "blocked"},
            UseCounts(used=1, parts=1.0),
            id="nothing-is-left",
        ),
        pytest.param(
            ["half", "half-2"],
            {"whole": "blocked", "half": "used", "half-2": "used"},
            UseCounts(used=1, parts=1.0),
            id="both-halves",
        ),
    ],
)
def test_a_card_that_is_cut_counts_once(results: list[str], devices: dict[str, str], counts: UseCounts) -> None:
    published = a_slice("s", part("whole", "4"), part("half", "2"), part("half-2", "2"), node="n1", pool="n1", slices=2)
    claims = [held(*map(a_result, results))] if results else []
    use = use_of(counter_slice(), published, *claims)
    assert uses(use) == devices
    assert use.counts == counts
    assert (use.devices, use.counts.all) == (3, 1)


def test_sixty_devices_with_shares_left_are_not_taken() -> None:
    """Once said: 60 of 60 taken, 0 free."""
    devices = [shared(f"nic-{number}") for number in range(60)]
    claims = [a_claim(f"c{number}", results=[share(f"nic-{number}", "1Gi", number)]) for number in range(60)]
    use = use_of(a_slice("s", *devices, node="n1", pool="n1"), *claims)
    assert use.counts.words() == "60 devices: 0 used, 60 partly used, 0 free"
    assert use.counts.parts == pytest.approx(1.5)


def test_devices_of_an_incomplete_pool_are_not_free() -> None:
    published = a_slice("s", a_device("a"), a_device("b"), node="n1", pool="n1", slices=2)
    use = use_of(published, held(a_result("b")))
    assert uses(use) == {"a": "blocked", "b": "used"}


def test_a_device_that_is_gone_is_counted_apart() -> None:
    use = use_of(a_slice("s", a_device("a"), node="n1", pool="n1"), held(a_result("a"), a_result("lost")))
    assert [str(each) for each in use.gone] == ["gpu.example.com/n1/lost"]
    assert use.counts == UseCounts(used=1, parts=1.0)


def test_numbers_by_driver_and_by_node_add_up() -> None:
    pools = [
        a_slice(f"{node}-gpus", a_device("a"), a_device("b"), node=node, pool=node, driver="gpu.example.com")
        for node in ("n1", "n2")
    ]
    anywhere = a_slice("net", a_device("x"), node=None, pool="net", driver="net.example.com")
    use = use_of(*pools, anywhere, held(a_result("a", pool="n2")))
    assert {name: counts.words() for name, counts in use.by_driver().items()} == {
        "gpu.example.com": "4 devices: 1 used, 3 free",
        "net.example.com": "1 device: 0 used, 1 free",
    }
    assert {name: counts.used for name, counts in use.by_node().items()} == {"n1": 0, "n2": 1, "all nodes": 0}
    assert sum(use.by_node().values(), UseCounts()) == use.counts


def test_the_smallest_share_is_never_nothing() -> None:
    policy = {"validRange": {"min": "0", "max": "4"}, "default": "1"}
    assert smallest_share(to_object({"value": "4", "requestPolicy": policy}, DeviceCapacity)) == 1


def grouped(name: str, *groups: str) -> Document:
    device = part(name, "1")
    device["consumesCounters"][0]["compatibilityGroups"] = list(groups)
    return device


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        pytest.param([], {"slow": "free", "fast": "free", "both": "free", "none": "free"}, id="nothing-is-held"),
        pytest.param(["slow"], {"slow": "used", "fast": "blocked", "both": "free", "none": "blocked"}, id="one-group"),
        pytest.param(["both"], {"slow": "free", "fast": "free", "both": "used", "none": "blocked"}, id="two-groups"),
        pytest.param(
            ["slow", "both"], {"slow": "used", "fast": "blocked", "both": "used", "none": "blocked"}, id="in-common"
        ),
        pytest.param(
            ["none"], {"slow": "blocked", "fast": "blocked", "both": "blocked", "none": "used"}, id="without-groups"
        ),
    ],
)
def test_devices_whose_groups_do_not_go_with_those_in_use_are_blocked(
    taken: list[str], expected: dict[str, str]
) -> None:
    devices = [grouped("slow", "slow"), grouped("fast", "fast"), grouped("both", "fast", "slow"), grouped("none")]
    published = a_slice("s", *devices, node="n1", pool="n1", slices=2)
    claims = [held(*(a_result(name, pool="n1") for name in taken))] if taken else []
    assert uses(use_of(counter_slice(), published, *claims)) == expected
