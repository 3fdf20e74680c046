"""Searches that take long: in pieces, with the same answer; and not once more for every node that is alike."""

import random

import pytest

from dray.allocator import (
    TIMED_OUT,
    Allocation,
    Allocator,
    Failure,
    Inventory,
    Ledger,
    NoFit,
    Paused,
    TimeLimits,
    reasons,
)
from dray.allocator import allocator as allocator_module
from dray.allocator.search import STEPS_PER_LOOK, Search
from tests.allocator.builders import any_request, claim_object, class_object, holder_object, node_object, slice_object
from tests.builders.manifests import a_device


def hard_devices(values, count, seed):
    """Each device is a point in a cube; no two of a claim may share a coordinate. Few rules see that this cannot work out."""
    chance = random.Random(seed)
    return [
        a_device(f"d{index}", attributes={axis: chance.randrange(values) for axis in "abc"}) for index in range(count)
    ]


def distinct_points(count):
    return claim_object(
        any_request(count=count), constraints=[{"distinctAttribute": f"gpu.example.com/{axis}"} for axis in "abc"]
    )


def an_allocator(devices, nodes=1):
    inventory = Inventory()
    for index in range(1, nodes + 1):
        name = f"node-{index}"
        inventory.apply_slice(slice_object(devices, name=f"slice-{name}", node=name, pool=name))
    return Allocator(inventory, Ledger(), [class_object()])


def in_turns(question, node, limits):
    """The answer, and after how many pauses."""
    for pauses in range(100_000):
        try:
            return question.on(node, limits=limits), pauses
        except Paused:
            pass
    raise AssertionError("it never comes to an end")


class Turn:
    """Over as soon as it is asked about a second time."""

    def __init__(self):
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return self.asked % 2 == 0


LONG = [
    pytest.param(hard_devices(14, 60, 2), 14, 2602, id="no-solution"),
    pytest.param(hard_devices(14, 60, 2), 13, None, id="a-solution-or-not"),
    pytest.param(hard_devices(8, 30, 0), 7, None, id="shorter"),
    pytest.param(hard_devices(10, 40, 1), 10, 702, id="some-steps"),
]


@pytest.mark.parametrize(("devices", "count", "steps"), LONG)
def test_pieces_come_to_the_same_answer_in_the_same_steps(devices, count, steps):
    claims = [distinct_points(count)]
    whole = an_allocator(devices).question(claims).on(node_object())
    limits = TimeLimits(turn_is_over=Turn())
    answer, pauses = in_turns(an_allocator(devices).question(claims), node_object(), limits)
    assert type(answer) is type(whole)
    assert answer.steps == whole.steps
    if steps is not None:
        assert answer.steps == steps
    if isinstance(whole, Allocation):
        assert answer.devices() == whole.devices()
    assert pauses <= whole.steps


def test_questions_asked_anew_go_on_where_the_search_stopped():
    """A scheduler makes a new question of every attempt."""
    allocator, limits = an_allocator(hard_devices(14, 60, 2)), TimeLimits(turn_is_over=Turn())
    turns = 0
    while True:
        turns += 1
        try:
            answer = allocator.question([distinct_points(14)]).on(node_object(), limits=limits)
            break
        except Paused:
            assert turns < 2602
    assert isinstance(answer, NoFit)
    assert answer.steps == 2602


def test_search_starts_again_when_its_node_has_changed():
    allocator = an_allocator(hard_devices(14, 60, 2))
    claims, limits = [distinct_points(14)], TimeLimits(turn_is_over=Turn())
    for _ in range(5):
        with pytest.raises(Paused):
            allocator.question(claims).on(node_object(), limits=limits)
    allocator.ledger.apply_claim(holder_object("d0", pool="node-1"))
    answer, pauses = in_turns(allocator.question(claims), node_object(), limits)
    assert isinstance(answer, NoFit)
    assert answer.steps == 2496, "of the search without d0 alone"
    assert pauses < 2496


def test_search_goes_on_when_another_node_has_changed():
    allocator = an_allocator(hard_devices(14, 60, 2), nodes=2)
    claims, limits = [distinct_points(14)], TimeLimits(turn_is_over=Turn())
    with pytest.raises(Paused):
        allocator.question(claims).on(node_object(), limits=limits)
    allocator.ledger.apply_claim(holder_object("d0", pool="node-2"))
    answer, pauses = in_turns(allocator.question(claims), node_object(), limits)
    assert answer.steps == 2602
    assert pauses < 2602


def test_nodes_of_a_kind_share_one_deadline():
    """The second node of the kind is given up without a step, and so are the other 48."""
    allocator = an_allocator(hard_devices(20, 120, 0), nodes=50)
    looks = []

    def deadline():
        looks.append(len(looks))
        return len(looks) > 10

    limits = TimeLimits(lambda: deadline)
    question = allocator.question([distinct_points(20)])
    answers = [question.on(node_object(f"node-{index}"), limits=limits) for index in range(1, 51)]
    assert {(type(answer), answer.code) for answer in answers} == {(Failure, TIMED_OUT)}
    assert sum(answer.steps for answer in answers) == answers[0].steps <= 12 * STEPS_PER_LOOK
    assert len(looks) == 11


def test_another_kind_of_node_gets_a_deadline_of_its_own():
    allocator = an_allocator(hard_devices(20, 120, 0), nodes=2)
    allocator.inventory.apply_slice(slice_object(20, name="easy", node="node-3", pool="node-3"))
    allocator.ledger.apply_claim(holder_object("d0", pool="node-2"))
    given = []

    def new_deadline():
        given.append(0)

        def deadline():
            given[-1] += 1
            return given[-1] > 5

        return deadline

    limits = TimeLimits(new_deadline)
    question = allocator.question([distinct_points(20)])
    for name in ("node-1", "node-2"):
        assert question.on(node_object(name), limits=limits).code == TIMED_OUT
    assert given == [6, 6]


def test_next_attempt_goes_on_after_a_timeout():
    """Nothing has changed, so nothing is searched twice: in the end there is an answer."""
    allocator = an_allocator(hard_devices(14, 60, 2))
    attempts = 0
    while True:
        attempts += 1
        looks = []

        def deadline(looks=looks):
            looks.append(True)
            return len(looks) > 120

        answer = allocator.question([distinct_points(14)]).on(
            node_object(), limits=TimeLimits(lambda deadline=deadline: deadline)
        )
        if not isinstance(answer, Failure):
            break
        assert attempts < 20
    assert isinstance(answer, NoFit)
    assert answer.steps == 2602
    assert attempts > 3


def test_long_search_is_remembered_for_a_later_node_of_the_kind():
    allocator = an_allocator(hard_devices(14, 60, 2), nodes=2)
    question = allocator.question([distinct_points(14)])
    assert question.on(node_object("node-1")).steps == 2602
    assert question.on(node_object("node-2")).steps == 0


def test_short_searches_do_not_look_at_the_time():
    allocator = an_allocator(8)
    looked = []
    limits = TimeLimits(lambda: lambda: looked.append("deadline"), lambda: bool(looked.append("turn")))
    simple = allocator.question([claim_object(any_request(count=4))])
    assert isinstance(simple.on(node_object(), limits=limits), Allocation)
    assert looked == []
    constrained = claim_object(any_request(count=1), constraints=[{"distinctAttribute": "gpu.example.com/a"}])
    allocator.question([constrained]).on(node_object(), limits=limits)
    assert looked in ([], ["turn"])


def test_each_table_of_shares_is_followed_by_a_look_at_the_time():
    """Of six devices, three can be told apart by the requests that may take them, and each kind has a table, which may take milliseconds."""
    devices = [
        a_device(f"d{n}", capacity={"memory": "10"}, attributes={"n": n}, allowMultipleAllocations=True)
        for n in range(6)
    ]
    requests = [
        any_request(f"r{n}", capacity={"memory": "6"}, selectors=[f'device.attributes["gpu.example.com"].n >= {n % 3}'])
        for n in range(7)
    ]
    looks = []
    limits = TimeLimits(turn_is_over=lambda: bool(looks.append("turn")))
    answer = an_allocator(devices).question([claim_object(*requests)]).on(node_object(), limits=limits)
    assert isinstance(answer, NoFit)
    assert len(looks) >= len(devices) + 3


def nodes_with_a_paused_search(turns=1):
    """Three nodes of different kinds are asked one after another, each for some turns."""
    allocator = an_allocator(hard_devices(14, 60, 2), nodes=3)
    allocator.ledger.apply_claim(holder_object("d0", pool="node-2"))
    allocator.ledger.apply_claim(holder_object("d1", pool="node-3"))
    question = allocator.question([distinct_points(14)])
    for name in ("node-1", "node-2", "node-3"):
        for _ in range(turns):
            with pytest.raises(Paused):
                question.on(node_object(name), limits=TimeLimits(turn_is_over=Turn()))
    return sorted(question.kind.interrupted)


def test_several_interrupted_searches_are_kept():
    assert nodes_with_a_paused_search() == ["node-1", "node-2", "node-3"]


def test_oldest_interrupted_searches_go_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(allocator_module, "MOST_INTERRUPTED", 2)
    assert nodes_with_a_paused_search() == ["node-2", "node-3"]


def test_oldest_interrupted_searches_go_when_they_remember_too_much(monkeypatch):
    monkeypatch.setattr(allocator_module, "MOST_STATES", 0)
    assert nodes_with_a_paused_search(turns=8) == ["node-3"]


def test_every_kind_of_node_gets_its_answer_in_the_end():
    """Each attempt asks three kinds of nodes and times out on all of them; each search continues in the next attempt."""
    allocator = an_allocator(hard_devices(14, 60, 2), nodes=3)
    allocator.ledger.apply_claim(holder_object("d0", pool="node-2"))
    allocator.ledger.apply_claim(holder_object("d1", pool="node-3"))
    for _ in range(20):
        question = allocator.question([distinct_points(14)])
        looks = {}

        def new_deadline(looks=looks):
            number = len(looks)
            looks[number] = 0

            def deadline():
                looks[number] += 1
                return looks[number] > 120

            return deadline

        limits = TimeLimits(new_deadline)
        answers = [question.on(node_object(f"node-{index}"), limits=limits) for index in (1, 2, 3)]
        if all(isinstance(answer, NoFit) for answer in answers):
            return
    raise AssertionError("some search never ended")


def test_all_kinds_of_nodes_together_have_a_limit():
    """Twelve kinds, each with 400 units of time; an attempt has 800. Every kind gets its answer after some attempts."""
    allocator = an_allocator(hard_devices(14, 60, 2), nodes=12)
    for index in range(2, 13):
        allocator.ledger.apply_claim(holder_object(f"d{index}", name=f"holder-{index}", pool=f"node-{index}"))
    clock = Clock()
    for _ in range(40):
        question = allocator.question([distinct_points(14)])
        limits = TimeLimits(lambda: clock.deadline(400), whole_attempt=lambda: clock.deadline(800))
        before = clock.now
        answers = [question.on(node_object(f"node-{index}"), limits=limits) for index in range(1, 13)]
        assert clock.now - before <= 800 + 4 * 12, "few looks for each node that comes too late"
        if all(isinstance(answer, NoFit) for answer in answers):
            return
    raise AssertionError("some search never ended")


class Clock:
    """Each look at it takes one unit of time."""

    def __init__(self):
        self.now = 0

    def deadline(self, units):
        end = self.now + units

        def is_over():
            self.now += 1
            return self.now > end

        return is_over


def test_reasons_of_a_hard_no_are_found_in_few_steps(monkeypatch):
    """The replay gets as deep as it can and stops; the whole search took 9,863 steps."""
    searches = []

    class Counted(Search):
        __slots__ = ()

        def __init__(self, *args):
            super().__init__(*args)
            searches.append(self)

    monkeypatch.setattr(reasons, "Search", Counted)
    answer = an_allocator(hard_devices(30, 128, 0)).question([distinct_points(30)]).on(node_object())
    assert answer.steps > 5000
    assert {reason.code for reason in answer.reasons} == {"chosen-already", "constraint"}
    assert searches[-1].steps <= reasons.ENOUGH_STEPS + 2 * STEPS_PER_LOOK
