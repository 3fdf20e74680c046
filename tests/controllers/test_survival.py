"""All controllers through an outage: restarts of the server, cut watches, forgotten revisions."""

import asyncio

import pytest

from dray.client import (
    CLAIMS,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    TEMPLATES,
)
from dray.controllers.controller_manager import BUILDERS, ControllerOptions
from tests.controllers.builders import node_with_ready, ns_pod, ns_template, pool_slice
from tests.waiting import eventually


async def pod_with_claim(machine, name):
    """A template pod gets its claim, and its claim goes when it is done: the whole way works."""
    cluster = machine.cluster

    async def made():
        return (await cluster.recorded(name)).get("gpu")

    await machine.client.create(PODS, ns_pod(name, templates={"gpu": "template"}, node="node"))
    claim = await cluster.eventually(made, 20)
    await cluster.set_phase(await cluster.pod(name), "Succeeded")

    async def gone():
        return await cluster.claim(claim) is None

    await cluster.eventually(gone, 20)


async def test_restarts_cuts_and_forgotten_revisions(machine):
    await machine.furnish()
    await machine.client.create(TEMPLATES, ns_template())
    await pod_with_claim(machine, "before")
    machine.wire.cut_streams()
    await pod_with_claim(machine, "after-a-cut")
    await machine.restart_server()
    await pod_with_claim(machine, "after-a-restart")
    # Every revision before the present is forgotten while the watches are away: 410, one new list.
    machine.wire.is_down = True
    machine.wire.cut_streams()
    for number in range(5):
        await machine.client.create(PODS, ns_pod(f"meanwhile-{number}", templates={"gpu": "template"}))
    machine.wire.forget_revisions()
    machine.wire.is_down = False
    await pod_with_claim(machine, "after-compaction")

    async def listed_again():
        return all(machine.informers.of(kind).relists >= 2 for kind in (PODS, CLAIMS, TEMPLATES))

    await machine.cluster.eventually(listed_again, 30)

    async def all_served():
        return all([await machine.cluster.recorded(f"meanwhile-{number}") for number in range(5)])

    await machine.cluster.eventually(all_served, 30)
    await machine.client.delete(NAMESPACES, "ns")

    async def gone():
        return await machine.client.find(NAMESPACES, "ns") is None

    await machine.cluster.eventually(gone, 30)
    assert (await machine.client.list(CLAIMS)).items == []
    assert not machine.task.done()


async def test_D13_devices_of_a_lost_node_are_free_again_without_the_node(machine):
    """Power loss: the pod hangs in deletion, the node is declared out of service, and the claim comes free."""
    await machine.furnish()
    client, cluster = machine.client, machine.cluster
    await client.create(TEMPLATES, ns_template())
    await client.create(NODES, node_with_ready(ready="False"))
    pod = await client.create(PODS, ns_pod(templates={"gpu": "template"}, node="node"))

    async def made():
        return (await cluster.recorded()).get("gpu")

    name = await cluster.eventually(made)
    await cluster.allocate(name, pod, node="node")
    await client.delete(PODS, "pod", "ns", grace_seconds=30)
    await cluster.later_writes()
    assert (await cluster.claim(name)).status.allocation is not None
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    await client.patch(NODES, "node", {"spec": {"taints": [taint]}})
    (collector,) = (item for item in machine.manager.controllers if item.name == "pod-garbage-collector-controller")

    async def pod_gone():
        await collector.collect()
        return await cluster.pod() is None

    await cluster.eventually(pod_gone)

    async def claim_gone():
        return await cluster.claim(name) is None

    await cluster.eventually(claim_gone)


async def test_D14_slices_and_pods_of_a_deleted_node_go(machine):
    await machine.furnish()
    client, cluster = machine.client, machine.cluster
    node = await client.create(NODES, node_with_ready())
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": node.metadata.uid}
    resource_slice = pool_slice()
    resource_slice["metadata"]["ownerReferences"] = [owner]
    await client.create(SLICES, resource_slice)
    await client.create(PODS, ns_pod(node="node"))
    await client.delete(NODES, "node")

    async def slice_gone():
        return await client.find(SLICES, "slice") is None

    await cluster.eventually(slice_gone)
    (collector,) = (item for item in machine.manager.controllers if item.name == "pod-garbage-collector-controller")
    await collector.collect()
    assert await cluster.pod()
    collector._missing_since = {"node": -1e9}
    await collector.collect()
    assert await cluster.pod() is None


async def test_an_idle_roster_asks_nothing(machine):
    await machine.furnish()
    await machine.cluster.quiet()
    before = len(machine.wire.calls)
    await machine.cluster.later_writes(200)
    assert machine.wire.calls[before:] == []


async def test_all_controllers_are_there(machine):
    assert {controller.name for controller in machine.manager.controllers} == set(BUILDERS)


async def test_one_failing_controller_is_started_again(machine, caplog):
    class Failing:
        name = "failing"
        runs = 0

        async def run(self):
            self.runs += 1
            if self.runs == 1:
                raise RuntimeError("bug")
            await asyncio.Event().wait()

    failing = Failing()
    task = asyncio.create_task(machine.manager._keep_running(failing))
    await eventually(lambda: failing.runs == 2, "the failing controller to run again")
    task.cancel()
    assert "RuntimeError: bug" in caplog.text


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (("*",), "job-controller", True),
        (("*", "-job-controller"), "job-controller", False),
        (("job-controller",), "job-controller", True),
        (("job-controller",), "namespace-controller", False),
    ],
)
def test_choosing_controllers(text, name, expected):
    assert ControllerOptions(controllers=text).wants(name) is expected
