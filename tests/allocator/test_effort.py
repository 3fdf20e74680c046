"""Hard shapes stay small: counted steps, not seconds."""

import sys
from pathlib import Path

import pytest

from dray.allocator import TIMED_OUT, Allocation, Allocator, Failure, Inventory, Ledger, scenarios
from tests.allocator.builders import an_option, any_request, claim_object, class_object, node_object, slice_object
from tests.builders.manifests import a_device

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from allocator_worlds import as_line, workloads

SMALL = {workload["name"]: dict(workload, nodes=min(workload.get("nodes", 1), 5)) for workload in workloads()}


@pytest.mark.parametrize("name", sorted(SMALL))
def test_workloads_keep_their_outcome_and_steps(name):
    workload = SMALL[name]
    scenario = scenarios.read_scenario(as_line(workload))
    replies = scenarios.ask(scenarios.World(scenario).question(), scenario)
    assert {scenarios.reply_document(reply)["outcome"] for reply in replies} == {workload["outcome"]}
    assert scenarios.steps_of(replies) <= workload.get("most_steps", 200)


def test_the_staircase_has_one_solution():
    scenario = scenarios.read_scenario(as_line(SMALL["hard: staircase of 32"]))
    ((answer, _),) = scenarios.ask(scenarios.World(scenario).question(), scenario)
    assert isinstance(answer, Allocation)
    assert [device.device_id.device for device in answer.devices()[0]] == [f"dev-{31 - n}" for n in range(32)]


def ask(claims, devices, deadline=None, **spec):
    inventory = Inventory()
    inventory.apply_slice(slice_object(devices, **spec))
    allocator = Allocator(inventory, Ledger(), [class_object()])
    return allocator.fresh_question(claims).on(node_object(), deadline)


def test_many_alternatives_that_all_fail():
    alternatives = [{"name": f"s{i}", **an_option(1 + i)} for i in range(8)]
    requests = [{"name": f"r{n}", "firstAvailable": alternatives} for n in range(12)]
    answer = ask([claim_object(*requests)], 11)
    assert not isinstance(answer, Allocation)
    assert answer.steps < 300


def test_shares_that_do_not_fit_together():
    devices = [a_device(f"d{i}", capacity={"memory": "10"}, allowMultipleAllocations=True) for i in range(6)]
    requests = [any_request(f"r{n}", capacity={"memory": "6"}) for n in range(7)]
    answer = ask([claim_object(*requests)], devices)
    assert not isinstance(answer, Allocation)
    assert answer.steps < 300


def test_shares_that_do_not_fit_on_any_one_root():
    """Each device of a root has room for one share: that is seen before the third device of a root is tried."""
    devices = [
        a_device(f"d{i}", capacity={"memory": "10"}, attributes={"root": i % 3}, allowMultipleAllocations=True)
        for i in range(9)
    ]
    requests = [any_request(f"r{n}", capacity={"memory": "6"}) for n in range(4)]
    answer = ask([claim_object(*requests, constraints=[{"matchAttribute": "gpu.example.com/root"}])], devices)
    assert not isinstance(answer, Allocation)
    assert answer.steps <= 25


def test_several_claims_fight_over_too_few_devices():
    claims = [claim_object(*[any_request(f"r{n}") for n in range(8)], name=f"claim-{c}") for c in range(4)]
    answer = ask(claims, 31)
    assert not isinstance(answer, Allocation)
    assert answer.steps < 200


def test_many_partitions_of_cards_whose_slices_differ():
    """Whole cards come first and leave no room: it must be seen at once that fewer of them are to be taken."""
    slices = range(7)
    counters = {"engines": {"value": "7"}, **{f"slice-{n}": {"value": "1"} for n in slices}}
    sets = [{"name": f"card-{card}", "counters": counters} for card in range(8)]

    def device(name, card, drawn):
        return a_device(name, consumesCounters=[{"counterSet": f"card-{card}", "counters": drawn}])

    whole = [device(f"card-{card}", card, counters) for card in range(8)]
    parts = [
        device(f"part-{card}-{n}", card, {"engines": {"value": "1"}, f"slice-{n}": {"value": "1"}})
        for card in range(8)
        for n in slices
    ]
    inventory = Inventory()
    inventory.apply_slice(slice_object([], name="counters", sharedCounters=sets, count=2))
    inventory.apply_slice(slice_object(whole + parts, name="devices", count=2))
    allocator = Allocator(inventory, Ledger(), [class_object()])
    answer = allocator.fresh_question([claim_object(any_request(count=32))]).on(node_object())
    assert isinstance(answer, Allocation)
    names = [each.device_id.device for each in answer.devices()[0]]
    assert names[:4] == ["card-0", "card-1", "card-2", "card-3"]
    assert names[4:] == [f"part-{card}-{n}" for card in range(4, 8) for n in slices]
    assert answer.steps < 500


def test_distinct_values_run_out():
    devices = [a_device(f"d{i}", attributes={"slot": i % 31}) for i in range(62)]
    limits = [{"distinctAttribute": "gpu.example.com/slot"}]
    for claim in (
        claim_object(any_request(count=32), constraints=limits),
        claim_object(*[any_request(f"r{n}") for n in range(32)], constraints=limits),
    ):
        answer = ask([claim], devices)
        assert not isinstance(answer, Allocation)
        assert answer.steps < 200


def test_deadline_is_honoured_in_mid_search():
    asked = []

    def passed() -> bool:
        asked.append(True)
        return len(asked) > 1

    devices = [a_device(f"d{i}", attributes={"root": min(i // 31, 3)}) for i in range(125)]
    claim = claim_object(any_request(count=32), constraints=[{"matchAttribute": "gpu.example.com/root"}])
    answer = ask([claim], devices, passed)
    assert isinstance(answer, Failure)
    assert answer.code == TIMED_OUT
    assert answer.for_this_node_only
