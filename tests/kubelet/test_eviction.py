"""Pods that have to leave a node which runs out of memory, in the kubelet's order, with what their claims bring along."""

import pytest

from dray.accounting import charges_in_status
from dray.api import codec
from dray.api.core import Pod
from dray.client import NODES
from dray.kubelet.eviction import MemoryState, Threshold, ThresholdError, next_eviction
from tests.builders.manifests import a_container, a_pod
from tests.kubelet.node_rig import NodeRig
from tests.kubelet.test_enforced_values import pod_with_claim

RIG = NodeRig
MI = 2**20
THRESHOLD = Threshold.parse("memory.available<100Mi")


def a_user(name: str, request: str = "", priority: int = 0, claimed: str = "") -> Pod:
    resources = {"requests": {"memory": request}} if request else {}
    entry = {"resourceClaimName": "c", "containers": ["main"], "mapping": [{"name": "memory", "quantity": claimed}]}
    status = {"nodeAllocatableResourceClaimStatuses": [entry] if claimed else []}
    container = a_container("main", resources=resources)
    return codec.to_object(a_pod(name, container, namespace="ns", uid=name, priority=priority, status=status), Pod)


def first_to_go(*pods: tuple[Pod, int], available: int = 50 * MI) -> str:
    used = {pod.metadata.uid: size * MI for pod, size in pods}
    charged = [(pod, charges_in_status(pod.status.node_allocatable_resource_claim_statuses)) for pod, _ in pods]
    eviction = next_eviction(charged, MemoryState(1024 * MI, available, used), THRESHOLD)
    return eviction.pod.metadata.name if eviction else ""


def test_nobody_leaves_while_there_is_memory():
    assert first_to_go((a_user("a"), 500), available=100 * MI) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((a_user("gone"), 10), (a_user("stays", "400Mi"), 300), id="above-its-request"),
        pytest.param((a_user("gone", "1Mi"), 20), (a_user("stays", "1Mi", priority=5), 400), id="lower-priority"),
        pytest.param((a_user("gone", "100Mi"), 400), (a_user("stays", "300Mi"), 500), id="furthest-above"),
        pytest.param((a_user("gone", "50Mi"), 60), (a_user("stays", "50Mi", claimed="300Mi"), 340), id="claims-count"),
        pytest.param((a_user("gone"), 1), (a_user("stays", priority=2_000_001_000), 500), id="critical"),
    ],
)
def test_who_leaves_first(one, other):
    assert first_to_go(one, other) == first_to_go(other, one) == "gone"


def test_the_message_says_what_was_asked_with_claims():
    pod = a_user("p", "50Mi", claimed="300Mi")
    charges = charges_in_status(pod.status.node_allocatable_resource_claim_statuses)
    eviction = next_eviction([(pod, charges)], MemoryState(1024 * MI, 60 * MI, {"p": 400 * MI}), THRESHOLD)
    assert eviction is not None
    assert eviction.message == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi. "
        "The pod was using 400Mi, request is 350Mi with its claims, has larger consumption of memory."
    )


@pytest.mark.parametrize(("text", "size"), [("memory.available<100Mi", 100 * MI), ("memory.available<5%", 50 * MI)])
def test_thresholds(text, size):
    assert Threshold.parse(text).bytes_of(1000 * MI) == size


@pytest.mark.parametrize("text", ["", "memory", "nodefs.available<1Gi", "memory.available<x", "memory.available<200%"])
def test_thresholds_that_cannot_be_read(text):
    with pytest.raises(ThresholdError):
        Threshold.parse(text)


async def test_a_node_that_is_short_of_memory_drives_out_the_pod_that_uses_more_than_it_asked_for(rig):
    """Real processes: one of them holds 60 MiB and asked for nothing."""
    hungry = "python3 -c 'import time; held = bytearray(60 << 20); print(\"holds it\", flush=True); time.sleep(1000)'"
    await rig.create_pod("hungry", script=hungry)
    await rig.create_pod("modest")
    await rig.until_output(0, "holds it", "hungry")
    await rig.until_output(0, "fan=", "modest")
    used = await rig.agent._runtime.memory_used()
    by_name = {name: used[(await rig.pod(name)).metadata.uid] for name in ("hungry", "modest")}
    assert by_name["hungry"] > 60 * MI > by_name["modest"] > 0

    # The node has 4 GiB; all of it has to be free, which it is not.
    await rig.agent.relieve(Threshold.parse("memory.available<100%"))

    async def has_failed() -> bool:
        return (await rig.pod("hungry")).status.phase == "Failed"

    await rig.until(has_failed, "hungry to be driven out")
    pod = await rig.pod("hungry")
    assert pod.status.reason == "Evicted"
    target = next(each for each in pod.status.conditions if each.type == "DisruptionTarget")
    assert (target.status, target.reason) == ("True", "TerminationByKubelet")
    assert (await rig.pod("modest")).status.phase == "Running"
    assert any(reason == "Evicted" for reason, _ in await rig.events())


async def test_under_pressure_the_node_says_so_and_takes_no_pods_without_requests(rig):
    # More than the node has, so that it is short of memory without any pod.
    await rig.agent.relieve(Threshold.parse("memory.available<5Gi"))
    node = await rig.agent._registration.refreshed()
    [pressure] = [each for each in node.status.conditions if each.type == "MemoryPressure"]
    assert pressure.status == "True"

    async def is_tainted() -> bool:
        found = await rig.client.get(NODES, node.metadata.name)
        return ("node.kubernetes.io/memory-pressure", "NoSchedule") in {(t.key, t.effect) for t in found.spec.taints}

    await rig.until(is_tainted, "the node to be tainted")
    admission = rig.agent._context.admission
    assert admission.admit(pod_with_claim(), None).message == "The node had condition: [MemoryPressure]."
    assert admission.admit(pod_with_claim({"requests": {"memory": "1Mi"}}), None).reason != "Evicted"
    claimed = pod_with_claim(mapping=({"name": "memory", "quantity": "1Mi"},))
    assert admission.admit(claimed, None).reason != "Evicted", "its claims give it memory of its own"
