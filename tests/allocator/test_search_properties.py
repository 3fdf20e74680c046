"""Search against brute force: the same first solution, the same "no", the same errors."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.allocator import Allocation, Allocator, Failure, Inventory, Ledger, NoFit, allocator, search
from dray.api import codec
from dray.api.resource import ResourceSlice
from tests.allocator.builders import class_object, holder_object, node_object
from tests.allocator.plain_search import Chosen, PlainSearch, World, Wrong
from tests.allocator.worlds import as_text, crowded_worlds, worlds

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


def plain_answer(published, held, wanted) -> list[Chosen] | str:
    try:
        found = PlainSearch(World(published, held), wanted).first()
    except Wrong:
        return "error"
    return "no" if found is None else found


def devices_of(answer) -> list[Chosen] | str:
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


def our_answer(allocator: Allocator, wanted) -> list[Chosen] | str:
    return devices_of(allocator.fresh_question(wanted).on(node_object()))


def an_allocator(published, held) -> Allocator:
    inventory = Inventory()
    for one in published:
        inventory.apply_slice(one)
    return Allocator(inventory, Ledger(inventory.features, held), [class_object()])


@settings(RELAXED, max_examples=300)
@given(worlds())
def test_search_agrees_with_brute_force(world):
    published, held, wanted = world
    assert our_answer(an_allocator(published, held), wanted) == plain_answer(published, held, wanted)


@pytest.fixture
def looks_ahead_at_once(monkeypatch):
    """Bounds, kinds and failed states from the first dead end on, and no short cut around the search."""
    monkeypatch.setattr(search, "PLAIN_DEAD_ENDS", 1)
    monkeypatch.setattr(allocator, "first_fit", lambda *_: (None, False, 0))


@settings(RELAXED, max_examples=300)
@given(worlds())
def test_looking_ahead_agrees_with_brute_force(looks_ahead_at_once, world):
    published, held, wanted = world
    assert our_answer(an_allocator(published, held), wanted) == plain_answer(published, held, wanted)


@settings(RELAXED, max_examples=300)
@given(crowded_worlds())
def test_looking_ahead_among_equal_devices_agrees_with_brute_force(looks_ahead_at_once, world):
    published, held, wanted = world
    assert our_answer(an_allocator(published, held), wanted) == plain_answer(published, held, wanted)


@settings(RELAXED, max_examples=150)
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


@settings(RELAXED, max_examples=100)
@given(worlds())
def test_every_no_has_reasons(world):
    published, held, wanted = world
    answer = an_allocator(published, held).fresh_question(wanted).on(node_object())
    if isinstance(answer, NoFit):
        assert answer.reasons
        assert all(reason.text and reason.code for reason in answer.reasons)


def moved(published, number: int):
    """The same slices on another node, under other names, with other names for the roots."""
    text = codec.encode(published).decode()
    for before, after in (
        ('"node-1"', f'"node-{number}"'),
        ('"name":"p"', f'"name":"p{number}"'),
        ('"name":"p-', f'"name":"n{number}-p-'),
        ('"string":"x"', f'"string":"x{number}"'),
    ):
        text = text.replace(before, after)
    return codec.decode(ResourceSlice, text.encode())


@settings(RELAXED, max_examples=120)
@given(st.data(), crowded_worlds())
def test_nodes_that_share_answers_get_the_right_ones(data, world):
    published, _, wanted = world
    everywhere = [moved(one, number) for number in range(5) for one in published]
    devices = [device.name for one in published for device in one.spec.devices]
    held = []
    for number in range(5):
        for device in data.draw(st.lists(st.sampled_from(devices), max_size=2, unique=True)):
            held.append(holder_object(device, name=f"h{len(held)}", pool=f"p{number}"))
    nodes = [node_object(f"node-{number}") for number in range(5)]
    shared = an_allocator(everywhere, held).question(wanted)
    together = [devices_of(answer) for _, answer in shared.on_nodes(nodes)]
    apart = [devices_of(an_allocator(everywhere, held).fresh_question(wanted).on(node)) for node in nodes]
    assert together == apart


@settings(RELAXED, max_examples=80)
@given(st.data(), worlds())
def test_what_is_remembered_never_differs_from_a_fresh_look(data, world):
    """Claims come and go, slices too; one allocator that saw it all answers like one that was just built."""
    published, held, wanted = world
    allocator = an_allocator(published, [])
    asked = allocator.question(wanted)
    present: dict[str, object] = {}
    for claim in data.draw(st.lists(st.sampled_from(held), max_size=8)) if held else []:
        if claim.metadata.name in present:
            allocator.ledger.remove_claim(claim.metadata.namespace, claim.metadata.name)
            del present[claim.metadata.name]
        else:
            allocator.ledger.apply_claim(claim)
            present[claim.metadata.name] = claim
        if data.draw(st.booleans()):
            allocator.inventory.apply_slice(data.draw(st.sampled_from(published)))
        allocator.ledger.check(present.values())
        assert devices_of(asked.on(node_object())) == our_answer(an_allocator(published, present.values()), wanted)
