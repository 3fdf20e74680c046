"""Every "no" says why: per rule, with counts, and the device that came closest."""

import pytest

from dray.allocator import NoFit, allocate_on
from tests.allocator.builders import any_request, claim_object, class_object, holder_object, node_object, slice_object
from tests.builders.manifests import a_device

PICKY = 'device.attributes["gpu.example.com"].model == "b"'
CARD = [{"name": "card", "counters": {"slots": {"value": "1"}}}]
DRAWS = [{"counterSet": "card", "counters": {"slots": {"value": "2"}}}]
TAINT = [{"key": "sick", "value": "yes", "effect": "NoSchedule"}]


def why(devices, *requests, held=(), classes=None, slices=(), **claim) -> NoFit:
    answer = allocate_on(
        node_object(),
        [claim_object(*requests, **claim)],
        slices=[slice_object(devices, count=1 + len(slices)), *slices],
        classes=classes or [class_object()],
        allocated=held,
    )
    assert isinstance(answer, NoFit)
    return answer


def codes(answer: NoFit) -> dict[str, int]:
    return {reason.code: reason.facts["devices"] for reason in answer.reasons}


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        pytest.param({"devices": 2, "held": [holder_object("dev-0", "dev-1")]}, {"in-use": 2}, id="in-use"),
        pytest.param({"devices": 2, "classes": [class_object("any", "false")]}, {"class-selector": 2}, id="class"),
        pytest.param(
            {"devices": [a_device("d", attributes={"model": "a"})], "request": any_request(selectors=[PICKY])},
            {"request-selector": 1},
            id="selector",
        ),
        pytest.param(
            {"devices": [a_device("d", capacity={"memory": "1"})], "request": any_request(capacity={"memory": "2"})},
            {"capacity": 1},
            id="capacity",
        ),
        pytest.param({"devices": [a_device("d", taints=TAINT)]}, {"taint": 1}, id="taint"),
        pytest.param(
            {
                "devices": [a_device("d", consumesCounters=DRAWS)],
                "slices": [slice_object([], name="slice-2", count=2, sharedCounters=CARD)],
            },
            {"counters": 1},
            id="counters",
        ),
        pytest.param(
            {"devices": 2, "constraints": [{"matchAttribute": "gpu.example.com/root"}]},
            {"constraint": 2},
            id="constraint",
        ),
        pytest.param(
            {
                "devices": [a_device("d", attributes={"model": "a"}, capacity={"memory": "1"})],
                "request": any_request(selectors=[PICKY], capacity={"memory": "2"}),
                "constraints": [{"matchAttribute": "gpu.example.com/root"}],
            },
            {"request-selector": 1},
            id="selectors-come-before-capacity-and-constraints",
        ),
        pytest.param(
            {
                "devices": [a_device("d", capacity={"memory": "1"})],
                "request": any_request(capacity={"memory": "2"}),
                "constraints": [{"matchAttribute": "gpu.example.com/root"}],
            },
            {"capacity": 1},
            id="capacity-comes-before-constraints",
        ),
        pytest.param({"devices": []}, {"no-devices": 0}, id="nothing-there"),
        pytest.param({"devices": 2, "request": any_request(count=3)}, {"chosen-already": 2}, id="too-few"),
    ],
)
def test_reason_codes(world, expected):
    request = world.pop("request", any_request())
    answer = why(world.pop("devices"), request, **world)
    assert codes(answer) == expected
    assert all(reason.facts["claim"] == "default/claim" and reason.facts["request"] == "r" for reason in answer.reasons)


def test_nearest_miss_passed_the_most_tests():
    devices = [
        a_device("used"),
        a_device("sick", taints=TAINT, attributes={"model": "b"}),
        a_device("other", attributes={"model": "a"}),
    ]
    answer = why(devices, any_request(selectors=[PICKY]), held=[holder_object("used")])
    assert codes(answer) == {"in-use": 1, "request-selector": 1, "taint": 1}
    assert answer.nearest_miss is not None
    assert answer.nearest_miss.device_id.device == "sick"
    assert answer.nearest_miss.detail == "taint sick=yes:NoSchedule is not tolerated"
    assert str(answer).startswith(
        "cannot allocate all claims: claim default/claim, request r: 1 of 3 devices are in use"
    )


def test_the_deepest_place_is_named():
    answer = why(2, any_request("a"), any_request("b"), any_request("c"))
    assert {reason.facts["request"] for reason in answer.reasons} == {"c"}


def test_constraint_says_both_values():
    devices = [a_device("d0", attributes={"root": "x"}), a_device("d1", attributes={"root": "y"})]
    answer = why(devices, any_request(count=2), constraints=[{"matchAttribute": "gpu.example.com/root"}])
    assert answer.nearest_miss is not None
    assert "'y'" in answer.nearest_miss.detail
    assert "'x'" in answer.nearest_miss.detail


def test_incomplete_pools_are_mentioned():
    answer = allocate_on(node_object(), [claim_object()], slices=[slice_object(2, count=3)], classes=[class_object()])
    assert isinstance(answer, NoFit)
    assert [reason.code for reason in answer.reasons] == ["no-devices", "incomplete-pool"]
    assert "1 of 3 slices" in str(answer)
