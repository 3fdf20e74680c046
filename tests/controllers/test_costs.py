"""What a pod costs the server: every request of every controller, from its creation until nothing of it is left."""

from collections import Counter

import pytest

from dray.client import NODES, PODS, SLICES, TEMPLATES
from dray.controllers.claims import ClaimController
from tests.controllers.builders import node_with_ready, ns_pod, ns_template, pool_slice
from tests.waiting import eventually

PODS_MADE = 10
# What is counted does not depend on what carries it; one test looks at both.
IN_PROCESS = pytest.mark.parametrize("machine", ["in-process"], indirect=True)
CREATED = {"POST resourceclaims": 1, "PATCH pods/status": 1}
RELEASED = {"PUT resourceclaims/status": 1, "PUT resourceclaims": 1}
DELETED = {"DELETE resourceclaims": 1}


def requests(wire, since):
    """Requests by method, kind and subresource; without names."""
    counts = Counter()
    for call in wire.calls[since:]:
        parts = call.path.partition("/namespaces/")[2].split("/")[1:] or call.path.split("/")[-1:]
        counts[f"{call.method} {parts[0]}{f'/{parts[2]}' if len(parts) > 2 else ''}"] += 1
    return dict(counts)


def times(count, *parts):
    return {request: number * count for part in parts for request, number in part.items()}


async def quiet(machine):
    """No request of any controller during many later writes to the server."""
    calls = -1

    async def no_more_calls():
        nonlocal calls
        before, calls = calls, len(machine.wire.calls)
        await machine.cluster.later_writes(150)
        return before == calls == len(machine.wire.calls)

    await eventually(no_more_calls, "the controllers to ask nothing", pause_s=0)


async def pods_with_claims(machine, **fields):
    cluster = machine.cluster
    await machine.client.create(TEMPLATES, ns_template())
    names = [f"pod-{number}" for number in range(PODS_MADE)]
    for name in names:
        await machine.client.create(PODS, ns_pod(name, templates={"gpu": "template"}, **fields))

    async def recorded():
        return all([(await cluster.recorded(name)).get("gpu") for name in names])

    await cluster.eventually(recorded, 20)
    return names


async def in_use(machine, names):
    """As a scheduler and a node would do: allocated, reserved, bound, running."""
    cluster = machine.cluster
    for name in names:
        pod = await cluster.pod(name)
        await cluster.allocate((await cluster.recorded(name))["gpu"], pod)
        await machine.client.bind(pod, "node")
        await cluster.set_phase(pod, "Running")


async def nothing_left(machine):
    async def gone():
        return not await machine.cluster.claims()

    await machine.cluster.eventually(gone, 30)
    await quiet(machine)


@pytest.fixture
async def furnished(machine, monkeypatch):
    # On a busy machine the garbage collector must not come before the claim is released, or both have to try again.
    monkeypatch.setattr("dray.controllers.garbage_collector.SETTLE_S", 2.0)
    await machine.furnish()
    node = node_with_ready()
    node["status"] |= {"allocatable": {"pods": "110"}, "capacity": {"pods": "110"}}
    await machine.client.create(NODES, node)
    await quiet(machine)
    return machine


async def test_a_pod_that_is_deleted_costs_five_writes_and_no_read(furnished):
    wire, before = furnished.wire, len(furnished.wire.calls)
    names = await pods_with_claims(furnished)
    await quiet(furnished)
    assert requests(wire, before) == times(PODS_MADE, CREATED)
    before = len(wire.calls)
    await in_use(furnished, names)
    await quiet(furnished)
    assert requests(wire, before) == {}
    for name in names:
        await furnished.client.delete(PODS, name, "ns", grace_seconds=0)
    await nothing_left(furnished)
    assert requests(wire, before) == times(PODS_MADE, RELEASED, DELETED)


@IN_PROCESS
async def test_a_pod_that_finishes_costs_five_writes_and_no_read(furnished):
    wire, before = furnished.wire, len(furnished.wire.calls)
    names = await pods_with_claims(furnished)
    await in_use(furnished, names)
    for name in names:
        await furnished.cluster.set_phase(await furnished.cluster.pod(name), "Succeeded")
    await nothing_left(furnished)
    for name in names:
        await furnished.client.delete(PODS, name, "ns", grace_seconds=0)
    await quiet(furnished)
    assert requests(wire, before) == times(PODS_MADE, CREATED, RELEASED, DELETED)


@IN_PROCESS
async def test_a_pod_that_never_ran_costs_three_writes_and_no_read(furnished):
    wire, before = furnished.wire, len(furnished.wire.calls)
    for name in await pods_with_claims(furnished):
        await furnished.client.delete(PODS, name, "ns", grace_seconds=0)
    await nothing_left(furnished)
    assert requests(wire, before) == times(PODS_MADE, CREATED, DELETED)


@IN_PROCESS
async def test_pods_without_claims_and_slices_cost_nothing(furnished):
    wire, before = furnished.wire, len(furnished.wire.calls)
    for number in range(PODS_MADE):
        name = f"plain-{number}"
        pod = await furnished.client.create(PODS, ns_pod(name))
        await furnished.client.bind(pod, "node")
        await furnished.client.create(SLICES, pool_slice(name, pool=name))
        await furnished.cluster.set_phase(pod, "Succeeded")
        await furnished.client.delete(PODS, name, "ns", grace_seconds=0)
        await furnished.client.delete(SLICES, name)
    await quiet(furnished)
    assert requests(wire, before) == {}


@IN_PROCESS
async def test_only_changes_that_matter_reach_the_queue(furnished):
    (controller,) = [item for item in furnished.manager.controllers if isinstance(item, ClaimController)]
    taken = []
    releaser, maker = controller._releaser, controller._creator
    release, make = releaser.sync, maker.sync_pod

    async def noting_release(claim):
        taken.append("claim")
        await release(claim)

    async def noting_make(pod):
        taken.append("pod")
        await make(pod)

    releaser.sync, maker.sync_pod = noting_release, noting_make
    names = await pods_with_claims(furnished)
    await in_use(furnished, names)
    await quiet(furnished)
    assert Counter(taken) == {"pod": PODS_MADE}
    for name in names:
        await furnished.client.delete(PODS, name, "ns", grace_seconds=0)
    await nothing_left(furnished)
    assert Counter(taken)["claim"] <= 2 * PODS_MADE
