"""Search against brute force: the same first solution, the same "no", the same errors."""

from hypothesis import HealthCheck, given, settings

from dray.allocator import Allocation, Allocator, Failure, Inventory, Ledger, NoFit
from tests.allocator.builders import a_class, a_node
from tests.allocator.plain_search import Chosen, PlainSearch, World, Wrong
from tests.allocator.worlds import as_text, worlds


def plain_answer(published, held, wanted) -> list[Chosen] | str:
    try:
        found = PlainSearch(World(published, held), wanted).first()
    except Wrong:
        return "error"
    return "no" if found is None else found


def our_answer(allocator: Allocator, wanted) -> list[Chosen] | str:
    answer = allocator.fresh_question(wanted).on(a_node())
    if isinstance(answer, Failure):
        return "error"
    if isinstance(answer, NoFit):
        return "no"
    assert isinstance(answer, Allocation)
    return [
        (index, device.request, device.device_id.pool, device.device_id.device)
        for index, devices in enumerate(answer.devices())
        for device in devices
    ]


def an_allocator(published, held) -> Allocator:
    inventory = Inventory()
    for one in published:
        inventory.apply_slice(one)
    return Allocator(inventory, Ledger(inventory.features, held), [a_class()])


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds())
def test_search_agrees_with_brute_force(world):
    published, held, wanted = world
    assert our_answer(an_allocator(published, held), wanted) == plain_answer(published, held, wanted)


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_inputs_and_ledger_are_unchanged(world):
    published, held, wanted = world
    before = as_text(*world)
    allocator = an_allocator(published, held)
    totals = allocator.ledger.totals()
    first = our_answer(allocator, wanted)
    assert as_text(*world) == before
    assert allocator.ledger.totals() == totals
    allocator.ledger.check(held)
    assert our_answer(allocator, wanted) == first
