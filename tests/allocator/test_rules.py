"""One rule, one table."""

import pytest

from dray.allocator import Allocation, Failure, Features, NoFit, allocate_on
from dray.allocator.policies import POLICIES
from tests.allocator.builders import (
    an_option,
    any_request,
    claim_object,
    class_object,
    holder_object,
    node_object,
    slice_object,
)
from tests.builders.manifests import a_device


def ask(devices, *requests, held=(), node=None, features=None, policy="first-fit", slices=(), **claim):
    return allocate_on(
        node or node_object(),
        [claim_object(*requests, **claim)],
        slices=[slice_object(devices, count=1 + len(slices)), *slices],
        classes=[class_object()],
        allocated=held,
        features=features,
        policy=policy,
    )


def chosen(answer) -> list[str] | str:
    if not isinstance(answer, Allocation):
        return type(answer).__name__
    return [f"{device.request}:{device.device_id.device}" for device in answer.devices()[0]]


POLICY = {"default": "5", "validRange": {"min": "2", "step": "3", "max": "11"}}
VALUES = {"default": "4", "validValues": ["1", "4", "8"]}


@pytest.mark.parametrize(
    ("policy", "asked", "expected"),
    [
        (POLICY, None, "5"),
        (POLICY, "0", "2"),
        (POLICY, "2", "2"),
        (POLICY, "3", "5"),
        (POLICY, "6", "8"),
        (POLICY, "9", "11"),
        (POLICY, "12", None),
        (VALUES, None, "4"),
        (VALUES, "0", "1"),
        (VALUES, "3", "4"),
        (VALUES, "8", "8"),
        (VALUES, "9", None),
        (None, None, "20"),
        (None, "0", "0"),
        (None, "7", "7"),
        (None, "21", None),
        ({"zeroConsumption": True}, None, "0"),
        ({"zeroConsumption": True}, "0", "0"),
        ({"zeroConsumption": True}, "1", None),
        ({"strategy": "AlwaysConsumed", "default": "3"}, None, "3"),
        ({"strategy": "BlockOrShare"}, None, "20"),
        ({"strategy": "BlockOrShare", "validValues": ["4", "8"]}, None, "20"),
        ({"strategy": "BlockOrShare", "validValues": ["4", "8"]}, "5", "8"),
        ({"strategy": "ConsumedOrNever"}, None, "0"),
        ({"strategy": "ConsumedOrNever", "validRange": {"min": "2"}}, None, "0"),
        ({"strategy": "ConsumedOrNever", "validRange": {"min": "2"}}, "1", "2"),
    ],
)
def test_amounts(policy, asked, expected):
    published = {"value": "20"} | ({"requestPolicy": policy} if policy else {})
    device = a_device("d", capacity={"units": published}, allowMultipleAllocations=True)
    answer = ask([device], any_request(**({"capacity": {"units": asked}} if asked else {})))
    if expected is None:
        assert isinstance(answer, NoFit)
    else:
        result = answer.results(lambda: "share")[0].devices.results[0]
        assert str(result.consumed_capacity["units"]) == expected
        assert result.share_id == "share"


SHARE = "00000000-0000-4000-8000-00000000000%d"


@pytest.mark.parametrize(
    ("held", "asked", "fits"),
    [
        ([], None, True),
        ([], "5", True),
        (["0"], None, True),
        (["0"], "5", False),
        (["0", "0"], None, True),
        (["5"], "5", True),
        (["5"], None, False),
        (["5", "12"], "5", False),
    ],
)
def test_a_capacity_that_is_consumed_or_never(held, asked, fits):
    """Who holds the device first decides: all others ask for the capacity, too, or none does."""
    published = {"value": "20", "requestPolicy": {"strategy": "ConsumedOrNever"}}
    device = a_device("d", capacity={"units": published}, allowMultipleAllocations=True)
    holders = [
        holder_object({"device": "d", "shareID": SHARE % i, "consumedCapacity": {"units": amount}}, name=f"h{i}")
        for i, amount in enumerate(held)
    ]
    answer = ask([device], any_request(**({"capacity": {"units": asked}} if asked else {})), held=holders)
    assert isinstance(answer, Allocation) == fits


def test_one_claim_does_not_mix_asking_and_not_asking():
    published = {"value": "20", "requestPolicy": {"strategy": "ConsumedOrNever"}}
    device = a_device("d", capacity={"units": published}, allowMultipleAllocations=True)
    asking = any_request(capacity={"units": "5"}) | {"name": "a"}
    silent = any_request() | {"name": "b"}
    assert isinstance(ask([device], asking, asking | {"name": "c"}), Allocation)
    assert isinstance(ask([device], asking, silent), NoFit)


def test_a_device_that_is_blocked_has_nothing_left():
    published = {"value": "20", "requestPolicy": {"strategy": "BlockOrShare"}}
    device = a_device("d", capacity={"units": published}, allowMultipleAllocations=True)
    blocked = holder_object({"device": "d", "shareID": SHARE % 1, "consumedCapacity": {"units": "20"}})
    shared = holder_object({"device": "d", "shareID": SHARE % 1, "consumedCapacity": {"units": "5"}})
    assert isinstance(ask([device], any_request(capacity={"units": "1"}), held=[blocked]), NoFit)
    assert isinstance(ask([device], any_request(capacity={"units": "1"}), held=[shared]), Allocation)
    assert isinstance(ask([device], any_request(), held=[shared]), NoFit)


@pytest.mark.parametrize("asked", ["1500500u", "1e16", "1e19", "-500m"])
def test_amounts_that_cannot_be_represented_are_fatal(asked):
    published = {"value": "100", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}
    plain = {"value": "100"}
    device = a_device("d", capacity={"units": plain if asked.startswith("-") else published})
    other = a_device("e", capacity={"units": {"value": "1e25"}})
    assert isinstance(ask([device, other], any_request(capacity={"units": asked})), Failure)


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "w"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration, fits):
    tainted = a_device("d", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    answer = ask([tainted], any_request(tolerations=[toleration]))
    assert isinstance(answer, Allocation) == fits


def test_partitions_draw_from_one_card():
    card = [{"name": "card", "counters": {"slots": {"value": "8"}}}]

    def part(name, slots):
        return a_device(name, consumesCounters=[{"counterSet": "card", "counters": {"slots": {"value": str(slots)}}}])

    devices = [part("full", 8), part("h0", 4), part("h1", 4)]
    sets = [slice_object([], name="slice-2", count=2, sharedCounters=card)]
    assert chosen(ask(devices, any_request(), slices=sets)) == ["r:full"]
    assert chosen(ask(devices, any_request(), slices=sets, held=[holder_object("h0")])) == ["r:h1"]
    assert chosen(ask(devices, any_request("a"), any_request("b"), slices=sets)) == ["a:h0", "b:h1"]
    assert chosen(ask(devices, any_request(count=3), slices=sets)) == "NoFit"


def test_lists_match_by_intersection():
    devices = [a_device(f"d{i}", attributes={"numa": {"ints": ints}}) for i, ints in enumerate([[0, 1], [1, 2], [2]])]
    limits = [{"matchAttribute": "gpu.example.com/numa"}]
    assert chosen(ask(devices, any_request(count=2), constraints=limits)) == ["r:d0", "r:d1"]
    assert chosen(ask(devices, any_request(count=3), constraints=limits)) == "NoFit"
    off = Features(list_type_attributes=False)
    assert chosen(ask(devices, any_request(), constraints=limits, features=off)) == ["r:d0"]
    assert chosen(ask(devices, any_request(count=2), constraints=limits, features=off)) == "NoFit"
    apart = [{"distinctAttribute": "gpu.example.com/numa"}]
    assert chosen(ask(devices, any_request(count=2), constraints=apart)) == ["r:d0", "r:d2"]


def test_admin_access_and_the_order_of_claims():
    published = [slice_object(2)]
    admin, normal = claim_object(any_request(adminAccess=True), name="admin"), claim_object(name="normal")
    for claims, expected in (([normal, admin], ["dev-0", "dev-0"]), ([admin, normal], ["dev-0", "dev-1"])):
        answer = allocate_on(node_object(), claims, slices=published, classes=[class_object()])
        assert [devices[0].device_id.device for devices in answer.devices()] == expected


def test_alternatives_are_chosen_by_the_rest_of_the_problem():
    request = {"name": "r", "firstAvailable": [{"name": "two", **an_option(2)}, {"name": "one", **an_option(1)}]}
    assert chosen(ask(2, request, any_request("s"))) == ["r/one:dev-0", "s:dev-1"]
    answer = ask(3, request, any_request("s"))
    assert chosen(answer) == ["r/two:dev-0", "r/two:dev-1", "s:dev-2"]
    assert answer.score == 8


def test_more_than_32_devices_of_an_alternative():
    request = {"name": "r", "firstAvailable": [{"name": "many", **an_option(31)}, {"name": "few", **an_option(1)}]}
    answer = ask(40, any_request("s", count=2), request)
    assert chosen(answer)[-1] == "r/few:dev-2"


def test_errors_are_lazy():
    picky = any_request(selectors=['device.attributes["gpu.example.com"].model == "a"'])
    devices = [a_device("good", attributes={"model": "a"}), a_device("bad")]
    assert chosen(ask(devices, picky)) == ["r:good"]
    failed = ask(devices[::-1], picky)
    assert isinstance(failed, Failure)
    assert "device gpu.example.com/pool/bad" in failed.message
    assert failed.message.startswith("claim default/claim: selector #0")
    assert chosen(ask(devices[::-1], picky, held=[holder_object("bad")])) == ["r:good"]


def test_best_fit_takes_the_smallest_that_suffices():
    devices = [a_device(f"d{gi}", capacity={"memory": f"{gi}Gi"}) for gi in (80, 20, 40)]
    asked = any_request(capacity={"memory": "30Gi"})
    assert chosen(ask(devices, asked)) == ["r:d80"]
    assert chosen(ask(devices, asked, policy="best-fit")) == ["r:d40"]
    both = [asked, any_request("s", capacity={"memory": "30Gi"})]
    assert chosen(ask(devices, *both, policy="best-fit")) == ["r:d40", "s:d80"]


def test_best_fit_finds_capacity_that_is_published_without_the_domain():
    devices = [a_device(f"d{gi}", capacity={"memory": f"{gi}Gi"}) for gi in (80, 20, 40)]
    asked = any_request(capacity={"gpu.example.com/memory": "30Gi"})
    assert chosen(ask(devices, asked, policy="best-fit")) == ["r:d40"]


def test_least_fragmentation_fills_what_is_shared_already():
    devices = [a_device(f"d{i}", capacity={"memory": "10"}, allowMultipleAllocations=True) for i in range(3)]
    held = [holder_object({"device": "d2", "shareID": "s", "consumedCapacity": {"memory": "4"}})]
    asked = any_request(capacity={"memory": "5"})
    assert chosen(ask(devices, asked, held=held)) == ["r:d0"]
    assert chosen(ask(devices, asked, held=held, policy="least-fragmentation")) == ["r:d2"]


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_find_a_solution_wherever_there_is_one(policy):
    devices = [a_device(f"d{i}", attributes={"root": i // 3}, capacity={"memory": str(9 - i)}) for i in range(7)]
    limits = [{"matchAttribute": "gpu.example.com/root"}]
    answer = ask(devices, any_request(count=3, capacity={"memory": "1"}), constraints=limits, policy=policy)
    assert isinstance(answer, Allocation)
    assert len(chosen(answer)) == 3
    assert chosen(ask(devices, any_request(count=4), constraints=limits, policy=policy)) == "NoFit"


@pytest.mark.parametrize(
    ("in_use", "fitting"),
    [
        pytest.param(["none-0", "a-0"], ["r:none-1"], id="one-without-groups-comes-first"),
        pytest.param(["none-2", "a-0"], ["r:a-1"], id="one-with-groups-comes-first"),
        pytest.param(["a-0", "b-0"], "NoFit", id="no-group-in-common"),
    ],
)
def test_devices_in_use_that_would_not_go_together(in_use, fitting):
    """Slices may change after devices were given out. Of devices with and without groups the first published one counts."""
    sets = [{"name": "card", "counters": {"slots": {"value": "9"}}}]

    def device(name):
        group = name.split("-")[0]
        drawn = {"counterSet": "card", "counters": {"slots": {"value": "1"}}}
        return a_device(name, consumesCounters=[drawn if group == "none" else drawn | {"compatibilityGroups": [group]}])

    devices = [device(name) for name in ("none-0", "a-0", "b-0", "none-1", "a-1", "none-2")]
    shared = slice_object([], name="counters", sharedCounters=sets, count=2)
    answer = ask(devices, any_request(), held=[holder_object(*in_use)], slices=[shared])
    assert chosen(answer) == fitting
