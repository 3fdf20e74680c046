"""Own writes: newer than the informer until the informer has caught up, and not a moment longer."""

import pytest

from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.client import PODS, Client, Informer, MutationCache, is_newer
from dray.clock import SimulatedClock


def pod(name, revision, node="n"):
    from dray.api.core import PodSpec

    return Pod(
        metadata=ObjectMeta(namespace="ns", name=name, uid=f"uid-{name}", resource_version=str(revision)),
        spec=PodSpec(node_name=node),
    )


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def informer(clock):
    informer = Informer(Client(None, clock=clock), PODS, indexers={"node": lambda item: (item.spec.node_name,)})
    informer.revision = "10"
    return informer


@pytest.fixture
def writes(informer, clock):
    return MutationCache(informer, clock, limit=3)


def test_a_write_counts_before_the_watch_shows_it(informer, writes):
    informer.objects.put(pod("a", 5))
    writes.remember(pod("a", 11, node="m"))
    assert writes.get("ns/a").metadata.resource_version == "11"
    assert [p.metadata.name for p in writes.by_index("node", "m")] == ["a"]


def test_a_newer_state_wins(informer, writes):
    writes.remember(pod("a", 11))
    informer.objects.put(pod("a", 12, node="other"))
    assert writes.get("ns/a").metadata.resource_version == "12"
    assert len(writes) == 0


def test_once_the_watch_went_past_a_write_it_is_the_truth_also_about_deletion(informer, writes):
    writes.remember(pod("a", 11))
    informer.revision = "15"
    assert writes.get("ns/a") is None
    assert writes.by_index("node", "n") == []


def test_a_write_that_was_overtaken_is_not_remembered(informer, writes):
    informer.revision = "20"
    writes.remember(pod("a", 11))
    assert len(writes) == 0


async def test_limits_in_number_and_time(informer, writes, clock):
    for number in range(4):
        writes.remember(pod(f"p{number}", 11 + number))
    assert writes.get("ns/p0") is None
    assert writes.get("ns/p3") is not None
    await clock.advance(3601)
    assert writes.get("ns/p3") is None


def test_revisions_that_are_no_numbers_are_never_newer():
    assert not is_newer(pod("a", "x"), pod("a", "y"))
    assert is_newer(pod("a", "10"), pod("a", "9"))


def test_what_the_watch_has_shown_is_forgotten_though_nobody_asks(informer, writes):
    writes.remember(pod("a", 11))
    writes.remember(pod("b", 12))
    informer.revision = "12"
    writes.remember(pod("c", 13))
    assert len(writes) == 1
