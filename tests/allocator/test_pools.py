"""Which pools a node sees, in which state, and in which order."""

import gc

import msgspec
import pytest

from dray.allocator import Allocation, Failure, Features, NoFit, allocate_on
from dray.allocator.device_kinds import KindTable
from dray.allocator.pools import CompiledSlice
from dray.api.meta import ObjectMeta
from tests.allocator.builders import (
    any_request,
    claim_object,
    class_object,
    node_object,
    slice_object,
    taint_rule_object,
)
from tests.builders.manifests import a_device

ALL = claim_object(any_request(count=0))
ONE = claim_object(any_request())


def ask(slices, claim=ONE, node=None):
    return allocate_on(node or node_object(zone="a"), [claim], slices=slices, classes=[class_object()])


def names(answer) -> list[str]:
    assert isinstance(answer, Allocation), answer
    return [str(device.device_id).split("/", 1)[1] for device in answer.devices()[0]]


def wide(name="slice-1", devices=2, **spec):
    return slice_object(devices, name=name, node=None, **spec)


ZONE_A = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
ZONE_B = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        pytest.param([slice_object()], ["pool/dev-0"], id="own"),
        pytest.param([slice_object(node="node-2")], NoFit, id="another-node's"),
        pytest.param([wide(allNodes=True)], ["pool/dev-0"], id="all-nodes"),
        pytest.param([wide(nodeSelector=ZONE_A)], ["pool/dev-0"], id="selector-matches"),
        pytest.param([wide(nodeSelector=ZONE_B)], NoFit, id="selector-does-not-match"),
        pytest.param([wide()], NoFit, id="no-node-at-all"),
        pytest.param([slice_object(count=2)], NoFit, id="incomplete"),
        pytest.param([slice_object(), slice_object(name="slice-2", devices=["x"])], NoFit, id="too-many-slices"),
        pytest.param([slice_object(["d", "d"])], Failure, id="invalid"),
        pytest.param(
            [slice_object(["old"]), slice_object(["new"], name="slice-2", generation=2)],
            ["pool/new"],
            id="newest-generation",
        ),
        pytest.param(
            [slice_object(["old"], count=2), slice_object(["new"], name="slice-2", generation=2, node="node-2")],
            NoFit,
            id="obsolete-here",
        ),
        pytest.param(
            [slice_object(["a"], count=2), slice_object(["b"], name="slice-2", count=2, node="node-2")],
            ["pool/a"],
            id="one-pool-on-two-nodes",
        ),
        pytest.param(
            [
                slice_object([a_device("a", bindingConditions=["x"])], name="s1", pool="a"),
                slice_object(["b"], name="s2", pool="b"),
            ],
            ["b/b"],
            id="binding-conditions-last",
        ),
        pytest.param(
            [
                wide(
                    devices=[a_device("d0", nodeName="node-2"), a_device("d1", nodeName="node-1")],
                    perDeviceNodeSelection=True,
                )
            ],
            ["pool/d1"],
            id="per-device",
        ),
    ],
)
def test_what_a_node_sees(slices, expected):
    answer = ask(slices)
    if isinstance(expected, list):
        assert names(answer) == expected
    else:
        assert isinstance(answer, expected)


@pytest.mark.parametrize("slices", [[slice_object(count=2)], [slice_object(["d", "d"])]], ids=["incomplete", "invalid"])
def test_all_devices_wait_for_every_pool(slices):
    answer = ask([slice_object(["x"], name="other", pool="other"), *slices], ALL)
    assert isinstance(answer, Failure)
    assert not answer.for_this_node_only


def test_invalid_pool_matters_only_where_nothing_else_fits():
    invalid = slice_object(["d", "d"], name="bad", pool="bad")
    assert names(ask([slice_object(), invalid])) == ["pool/dev-0"]
    answer = ask([invalid])
    assert isinstance(answer, Failure)
    assert answer.for_this_node_only
    assert answer.message == "invalid resource pools were encountered"


@pytest.mark.parametrize(
    ("drawn", "sets"),
    [
        pytest.param("other", ["card"], id="missing-set"),
        pytest.param("card", ["card", "card"], id="set-twice"),
        pytest.param("card", [], id="no-sets"),
    ],
)
def test_counters_that_contradict_make_the_pool_invalid(drawn, sets):
    consumes = [{"counterSet": drawn, "counters": {"slots": {"value": "1"}}}]
    published = [slice_object([a_device("d", consumesCounters=consumes)], count=1 + bool(sets))]
    if sets:
        shared = [{"name": name, "counters": {"slots": {"value": "1"}}} for name in sets]
        published.append(slice_object([], name="slice-2", count=2, sharedCounters=shared))
    assert isinstance(ask(published), Failure)


@pytest.mark.parametrize(
    "requirement",
    [
        {"key": "zone", "operator": "Near", "values": ["a"]},
        {"key": "zone", "operator": "In", "values": []},
        {"key": "zone", "operator": "Gt", "values": ["many"]},
    ],
)
def test_unusable_node_selector_is_fatal(requirement):
    selector = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    answer = ask([wide(nodeSelector=selector)])
    assert isinstance(answer, Failure)
    assert not answer.for_this_node_only


def test_node_selector_of_the_result():
    def selector_of(answer):
        assert isinstance(answer, Allocation)
        return answer.results(lambda: "share")[0].node_selector

    assert selector_of(ask([wide(allNodes=True)])) is None
    local = selector_of(ask([slice_object()]))
    assert local.node_selector_terms[0].match_fields[0].values == ("node-1",)
    wanted = selector_of(ask([wide(nodeSelector=ZONE_A)]))
    assert wanted.node_selector_terms[0].match_expressions[0].key == "zone"
    two = {"nodeSelectorTerms": ZONE_A["nodeSelectorTerms"] * 2}
    assert isinstance(ask([wide(nodeSelector=two)]), Failure)


def test_slices_with_one_list_of_devices_share_its_kinds_until_a_rule_taints_one():
    first = slice_object([a_device("a"), a_device("b")])
    second = msgspec.structs.replace(first, metadata=ObjectMeta(name="slice-2"))
    kinds = KindTable()
    one, two = CompiledSlice(first, kinds, ()), CompiledSlice(second, kinds, ())
    assert one.kinds is two.kinds
    tainted = CompiledSlice(second, kinds, [taint_rule_object(device="a")])
    assert [kind is other for kind, other in zip(tainted.kinds, one.kinds, strict=True)] == [False, True]
    del one, two, tainted
    gc.collect()
    assert len(kinds) == 0


def test_only_devices_that_draw_counters_are_left_out_while_counters_are_off():
    drawing = a_device("drawing", consumesCounters=[{"counterSet": "set", "counters": {"c": {"value": "1"}}}])
    published = slice_object([drawing, "plain"])
    off = Features(partitionable_devices=False)
    answer = allocate_on(node_object(), [claim_object()], slices=[published], classes=[class_object()], features=off)
    assert isinstance(answer, Allocation)
    assert answer.devices()[0][0].device_id.device == "plain"
    answer = allocate_on(
        node_object(), [claim_object(any_request(count=2))], slices=[published], classes=[class_object()], features=off
    )
    assert isinstance(answer, NoFit)
    assert [reason.code for reason in answer.reasons] == ["chosen-already", "counters-off"]


def test_a_slice_with_counter_sets_completes_its_pool_while_counters_are_off():
    slices = [
        slice_object(1, count=2),
        slice_object([], name="slice-2", count=2, sharedCounters=[{"name": "set", "counters": {"c": {"value": "1"}}}]),
    ]
    off = Features(partitionable_devices=False)
    answer = allocate_on(node_object(), [claim_object()], slices=slices, classes=[class_object()], features=off)
    assert isinstance(answer, Allocation)
