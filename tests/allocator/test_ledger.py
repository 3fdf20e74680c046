"""What is taken, event by event."""

import pytest

from dray.allocator import Allocation, Allocator, Features, Inventory, Ledger, LedgerError, NoFit
from tests.allocator.builders import (
    any_request,
    claim_object,
    class_object,
    holder_object,
    node_object,
    slice_object,
    taint_rule_object,
)
from tests.builders.manifests import a_device


@pytest.fixture
def allocator() -> Allocator:
    inventory = Inventory()
    inventory.apply_slice(slice_object(2))
    return Allocator(inventory, Ledger(), [class_object()])


def first_device(allocator: Allocator) -> str | None:
    answer = allocator.question([claim_object()]).on(node_object())
    return answer.devices()[0][0].device_id.device if isinstance(answer, Allocation) else None


def test_claim_events_take_and_free(allocator):
    assert first_device(allocator) == "dev-0"
    holder = holder_object("dev-0")
    allocator.ledger.apply_claim(holder)
    assert first_device(allocator) == "dev-1"
    allocator.ledger.check([holder])
    allocator.ledger.apply_claim(claim_object(name="holder").__class__(metadata=holder.metadata, spec=holder.spec))
    assert first_device(allocator) == "dev-0"


@pytest.mark.parametrize("kind", ["claims", "slices"])
def test_more_changes_than_are_logged_are_noticed(allocator, monkeypatch, kind):
    """An answer that was given before counts no longer, although nobody knows which changes came."""
    monkeypatch.setattr("dray.allocator.change_log.LONGEST_LOG", 1)
    assert first_device(allocator) == "dev-0"
    for number in range(3):
        if kind == "claims":
            allocator.ledger.apply_claim(holder_object("dev-0"))
            allocator.ledger.apply_claim(holder_object("dev-9", name=f"other-{number}", pool="elsewhere"))
        else:
            allocator.inventory.apply_slice(slice_object([a_device("dev-7")], generation=number + 2))
            allocator.inventory.apply_slice(
                slice_object(1, name=f"other-{number}", pool=f"other-{number}", node="elsewhere")
            )
    assert first_device(allocator) == ("dev-1" if kind == "claims" else "dev-7")


def test_tentative_entries_survive_events_without_allocation(allocator):
    result = holder_object("dev-0").status.allocation
    allocator.ledger.assume("default", "claim", result)
    allocator.ledger.apply_claim(claim_object())
    assert first_device(allocator) == "dev-1"
    assert allocator.ledger.is_tentative("default", "claim")
    allocator.ledger.forget("default", "claim")
    assert first_device(allocator) == "dev-0"


def test_a_confirmed_entry_is_not_forgotten(allocator):
    holder = holder_object("dev-0")
    allocator.ledger.assume("others", "holder", holder.status.allocation)
    allocator.ledger.apply_claim(holder)
    allocator.ledger.forget("others", "holder")
    assert first_device(allocator) == "dev-1"
    allocator.ledger.remove_claim("others", "holder")
    assert first_device(allocator) == "dev-0"


def test_admin_access_takes_nothing(allocator):
    allocator.ledger.apply_claim(holder_object({"device": "dev-0", "adminAccess": True}))
    assert first_device(allocator) == "dev-0"


def test_shares_add_up_and_go_away():
    features = Features()
    ledger = Ledger(features)
    shares = [
        holder_object({"device": "d", "shareID": f"s{i}", "consumedCapacity": {"memory": "3"}}, name=f"c{i}")
        for i in range(2)
    ]
    for share in shares:
        ledger.apply_claim(share)
    (dedicated, counts, consumed) = ledger.totals()["gpu.example.com", "pool"]
    assert (dedicated, counts, consumed) == ({}, {"d": 2}, {"d": {"memory": 6 * 10**9}})
    ledger.check(shares)
    for share in shares:
        ledger.remove_claim("others", share.metadata.name)
    assert ledger.totals() == {}


def test_shares_are_whole_devices_while_the_feature_is_off():
    ledger = Ledger(Features(consumable_capacity=False))
    ledger.apply_claim(holder_object({"device": "d", "shareID": "s"}))
    assert ledger.totals()["gpu.example.com", "pool"][0] == {"d": 1}


def test_check_names_what_differs(allocator):
    allocator.ledger.apply_claim(holder_object("dev-0"))
    with pytest.raises(LedgerError, match="holder"):
        allocator.ledger.check([])


def test_inventory_follows_slices_and_taint_rules(allocator):
    assert first_device(allocator) == "dev-0"
    allocator.inventory.apply_taint_rule(taint_rule_object(device="dev-0"))
    assert first_device(allocator) == "dev-1"
    allocator.inventory.apply_taint_rule(taint_rule_object(effect="None", device="dev-0"))
    assert first_device(allocator) == "dev-0"
    allocator.inventory.apply_taint_rule(taint_rule_object("everything"))
    assert first_device(allocator) is None
    allocator.inventory.remove_taint_rule("everything")
    allocator.inventory.apply_slice(slice_object([a_device("new")], generation=2))
    assert first_device(allocator) == "new"
    allocator.inventory.remove_slice("slice-1")
    assert first_device(allocator) is None


def test_classes_come_and_go(allocator):
    question = [claim_object(any_request(deviceClassName="late"))]
    assert not isinstance(allocator.question(question).on(node_object()), Allocation)
    allocator.apply_class(class_object("late"))
    assert isinstance(allocator.question(question).on(node_object()), Allocation)
    allocator.apply_class(class_object("late", "false"))
    assert isinstance(allocator.question(question).on(node_object()), NoFit)
    allocator.remove_class("late")
    assert not isinstance(allocator.question(question).on(node_object()), (Allocation, NoFit))


def test_many_nodes_one_event(allocator):
    nodes = [node_object(f"node-{i}") for i in range(1, 6)]
    for i in range(2, 6):
        allocator.inventory.apply_slice(slice_object(1, name=f"slice-{i}", pool=f"pool-{i}", node=f"node-{i}"))
    question = allocator.question([claim_object()])
    fits, misses = question.fitting(nodes, 3)
    assert [fit.node_name for fit in fits] == ["node-1", "node-2", "node-3"]
    assert not misses
    allocator.ledger.apply_claim(holder_object("dev-0", pool="pool-2"))
    fits, misses = question.fitting(nodes, 3)
    assert [fit.node_name for fit in fits] == ["node-1", "node-3", "node-4"]
    assert [node.metadata.name for node, _ in misses] == ["node-2"]


def test_census_counts_what_a_request_can_see():
    inventory = Inventory()
    inventory.apply_slice(
        slice_object([a_device("a", attributes={"size": 1}), a_device("b", attributes={"size": 2}), "c"])
    )
    inventory.apply_slice(slice_object(3, name="elsewhere", node="node-2", pool="other"))
    ledger = Ledger(claims=[holder_object("a")])
    allocator = Allocator(inventory, ledger, [class_object()])
    sized = 'has(device.attributes["gpu.example.com"].size)'
    assert allocator.question([claim_object(any_request(selectors=[sized]))]).census(node_object()) == (2, 1)
    assert allocator.question([claim_object()]).census(node_object()) == (3, 1)
    assert allocator.question([claim_object()]).census(node_object("node-2")) == (3, 0)
    assert allocator.question([claim_object(any_request(deviceClassName="none"))]).census(node_object()) == (0, 0)


def test_shares_of_one_device_may_name_different_capacities():
    ledger = Ledger(Features())
    shares = [
        holder_object({"device": "d", "shareID": f"s{i}", "consumedCapacity": consumed}, name=f"c{i}")
        for i, consumed in enumerate(({"memory": "3"}, {"bandwidth": "2"}, {"memory": "0"}))
    ]
    for share in shares:
        ledger.apply_claim(share)
    ledger.check(shares)
    ledger.remove_claim("others", "c0")
    ledger.check(shares[1:])
    ledger.remove_claim("others", "c1")
    ledger.check(shares[2:])
