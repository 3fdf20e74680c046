"""How many pods are bound at once: many of few, few of many."""

from tests.builders.objects import a_pod
from tests.scheduler.test_queue import a_queue

from dray.scheduler.assembly import WAITS_FOR_PEOPLE
from dray.scheduler.framework.interface import unresolvable
from dray.scheduler.queue import QueueName
from dray.scheduler.service import FEW_BINDINGS, LONG, MOST_BINDINGS, BindingLimit


def test_few_at_once_from_long_until_worked_off():
    backlog = BindingLimit()
    backlog.look(LONG - 1, 0)
    assert not backlog.is_long
    assert backlog.most_bindings == MOST_BINDINGS
    for ready, coming in ((LONG, 0), (1, LONG - 1), (FEW_BINDINGS, 0), (0, FEW_BINDINGS)):
        backlog.look(ready, coming)
        assert backlog.is_long
        assert backlog.most_bindings == FEW_BINDINGS
    backlog.look(FEW_BINDINGS - 1, 0)
    assert not backlog.is_long


def test_pods_whose_claims_are_being_made_are_coming_and_held_ones_are_not():
    gates = {"held": "SchedulingGates", "claimed": "DynamicResources"}
    queue = a_queue(
        gate=lambda pod: unresolvable("not yet").by(gates[pod.metadata.name]) if pod.metadata.name in gates else None,
        waits_for_people=WAITS_FOR_PEOPLE,
    )
    for name in ("held", "claimed", "ready"):
        queue.add(a_pod(name), 0.0)
    assert queue.coming == 1
    assert queue.counts[QueueName.ACTIVE] == 1
    queue.delete(next(entry.uid for entry in queue.waiting() if entry.pod.metadata.name == "claimed"))
    assert queue.coming == 0
    queue.delete(next(entry.uid for entry in queue.waiting() if entry.pod.metadata.name == "held"))
    assert queue.coming == 0
