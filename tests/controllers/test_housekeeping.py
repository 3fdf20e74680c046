"""Namespaces, service accounts, the root CA, pods that nobody will finish, nodes that fell silent."""

import pytest

from dray.client import CLAIMS, CONFIG_MAPS, LEASES, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, ServerUnreachable
from dray.clock import SimulatedClock
from dray.controllers.discovery import discover
from dray.controllers.namespaces import NamespaceController
from dray.controllers.node_lifecycle import NodeLifecycleController
from dray.controllers.pod_gc import PodGarbageCollector
from dray.controllers.root_ca_publisher import (
    CONFIG_MAP,
    RootCaController,
)
from dray.controllers.service_accounts import ServiceAccountController
from tests.builders.manifests import a_namespace
from tests.controllers.builders import node_with_ready, ns_claim, ns_pod

# --- namespaces


@pytest.fixture
async def namespaces(cluster):
    kinds = await discover(cluster.client)
    return await cluster.start(lambda context: NamespaceController(context, kinds))


async def namespace_gone(cluster, name="ns"):
    async def look():
        return await cluster.client.find(NAMESPACES, name) is None

    await cluster.eventually(look)


async def test_a_deleted_namespace_takes_everything_with_it(cluster, namespaces):
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.client.create(PODS, ns_pod())
    await cluster.namespace("other")
    await cluster.client.create(CLAIMS, ns_claim(namespace="other"))
    await cluster.client.delete(NAMESPACES, "ns")
    await namespace_gone(cluster)
    assert await cluster.claims("other")
    assert [claim.metadata.namespace for claim in (await cluster.client.list(CLAIMS)).items] == ["other"]


async def test_an_active_namespace_is_left_alone(cluster, namespaces):
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.quiet()
    assert cluster.wire.writes == []


async def test_a_namespace_waits_for_finalizers_and_says_so(cluster, namespaces):
    await cluster.client.create(CLAIMS, ns_claim(finalizers=["example.com/slow"]))
    await cluster.client.delete(NAMESPACES, "ns")

    async def told():
        namespace = await cluster.client.get(NAMESPACES, "ns")
        return {condition.type: condition for condition in namespace.status.conditions}

    conditions = await cluster.eventually(told)
    remaining = conditions["NamespaceContentRemaining"]
    assert (remaining.status, remaining.reason) == ("True", "SomeResourcesRemain")
    assert remaining.message == (
        "Some resources are remaining: resourceclaims.resource.k8s.io has 1 resource instances"
    )
    assert conditions["NamespaceFinalizersRemaining"].message == (
        "Some content in the namespace has finalizers remaining: example.com/slow in 1 resource instances"
    )
    await cluster.client.patch(CLAIMS, "claim", {"metadata": {"finalizers": []}}, "ns")
    await namespace_gone(cluster)


async def test_a_namespace_whose_emptying_fails_is_tried_again(cluster, namespaces):
    from dray.client import ApiError

    await cluster.client.create(CLAIMS, ns_claim())
    cluster.wire.fail("PUT", "/finalize$", ApiError(409, "Conflict", "changed"), times=2)
    await cluster.client.delete(NAMESPACES, "ns")
    await namespace_gone(cluster)


# --- service accounts and root CA


async def test_every_namespace_gets_its_account_and_gets_it_back(cluster):
    await cluster.start(ServiceAccountController)
    await cluster.client.create(NAMESPACES, a_namespace("fresh"))

    async def there():
        return await cluster.client.find(SERVICE_ACCOUNTS, "default", "fresh")

    first = await cluster.eventually(there)
    await cluster.client.delete(SERVICE_ACCOUNTS, "default", "fresh")

    async def there_again():
        found = await there()
        return found is not None and found.metadata.uid != first.metadata.uid

    await cluster.eventually(there_again)


async def test_a_terminating_namespace_gets_nothing(cluster):
    await cluster.start(ServiceAccountController, lambda context: RootCaController(context, "CA"))
    await cluster.quiet()
    await cluster.client.delete(NAMESPACES, "ns")
    cluster.wire.calls.clear()
    await cluster.client.delete(SERVICE_ACCOUNTS, "default", "ns")
    await cluster.client.delete(CONFIG_MAPS, CONFIG_MAP, "ns")
    await cluster.quiet()
    assert cluster.wire.writes == []


async def test_the_root_ca_is_published_and_repaired(cluster):
    await cluster.start(lambda context: RootCaController(context, "CA"))

    async def right():
        found = await cluster.client.find(CONFIG_MAPS, CONFIG_MAP, "ns")
        return found is not None and found.data == {"ca.crt": "CA"}

    await cluster.eventually(right)
    await cluster.client.patch(CONFIG_MAPS, CONFIG_MAP, {"data": {"ca.crt": "evil", "more": "x"}}, "ns")
    await cluster.eventually(right)
    await cluster.client.delete(CONFIG_MAPS, CONFIG_MAP, "ns")
    await cluster.eventually(right)
    await cluster.quiet()
    before = len(cluster.wire.calls)
    await cluster.later_writes()
    assert len(cluster.wire.calls) == before


# --- pod garbage collection

OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


async def collected(cluster, collector, name="pod"):
    await collector.collect()
    return await cluster.pod(name) is None


async def a_stuck_pod(cluster, node="node"):
    """Being deleted, and kept alive by nobody."""
    await cluster.client.create(PODS, ns_pod(node=node))
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=30)


async def a_collector(cluster, **options):
    return await cluster.prepare(lambda context: PodGarbageCollector(context, **options))


@pytest.mark.parametrize(
    ("ready", "taints", "expected"),
    [
        pytest.param("False", [OUT_OF_SERVICE], True, id="lost"),
        pytest.param("Unknown", [OUT_OF_SERVICE], True, id="silent"),
        pytest.param("True", [OUT_OF_SERVICE], False, id="tainted-but-ready"),
        pytest.param("False", [], False, id="not-ready-but-not-declared-lost"),
    ],
)
async def test_pods_stuck_on_lost_nodes_are_removed(cluster, ready, taints, expected):
    await cluster.client.create(NODES, node_with_ready(ready=ready, taints=taints))
    await cluster.client.patch(
        NODES, "node", {"status": {"conditions": [{"type": "Ready", "status": ready}]}}, subresource="status"
    )
    await a_stuck_pod(cluster)
    assert await collected(cluster, await a_collector(cluster)) is expected
    if expected:
        assert (
            'pod_gc_collector_force_delete_pods_total{namespace="ns",reason="out-of-service"} 1'
            in cluster.registry.text()
        )


async def test_a_pod_that_is_not_being_deleted_stays_on_the_lost_node(cluster):
    await cluster.client.create(NODES, node_with_ready(ready="False", taints=[OUT_OF_SERVICE]))
    await cluster.client.create(PODS, ns_pod(node="node"))
    assert not await collected(cluster, await a_collector(cluster))


async def test_an_unscheduled_pod_being_deleted_is_failed_and_removed(cluster):
    await cluster.client.create(PODS, ns_pod(finalizers=["example.com/keep"]))
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=30)
    collector = await a_collector(cluster)
    await collector.collect()
    assert (await cluster.pod()).status.phase == "Failed"
    assert 'reason="unscheduled"} 1' in cluster.registry.text()


async def test_pods_of_a_missing_node_go_after_a_quarantine_and_not_before(cluster):
    await cluster.client.create(PODS, ns_pod(node="lost", finalizers=["example.com/keep"]))
    clock = SimulatedClock()
    collector = await a_collector(cluster)
    collector._clock = clock
    await collector.collect()
    await clock.advance(39)
    await collector.collect()
    assert (await cluster.pod()).status.phase == "Pending"
    await clock.advance(2)
    await collector.collect()
    pod = await cluster.pod()
    assert pod.status.phase == "Failed"
    condition = next(item for item in pod.status.conditions if item.type == "DisruptionTarget")
    assert (condition.status, condition.reason, condition.message) == (
        "True",
        "DeletionByPodGC",
        "PodGC: node no longer exists",
    )
    assert pod.metadata.deletion_timestamp


async def test_a_node_that_comes_back_ends_the_quarantine(cluster):
    await cluster.client.create(PODS, ns_pod(node="node"))
    clock = SimulatedClock()
    collector = await a_collector(cluster)
    collector._clock = clock
    await collector.collect()
    await clock.advance(60)
    await cluster.client.create(NODES, node_with_ready())
    await collector.collect()
    assert await cluster.pod()


async def test_a_server_that_cannot_be_asked_about_a_node_saves_its_pods(cluster):
    await cluster.client.create(PODS, ns_pod(node="lost"))
    clock = SimulatedClock()
    collector = await a_collector(cluster)
    collector._clock = clock
    await collector.collect()
    await clock.advance(60)
    for _ in range(2):
        cluster.wire.fail("GET", "/nodes/lost$", ServerUnreachable("down"))
    await collector.collect()
    assert await cluster.pod()


async def test_finished_pods_beyond_the_threshold_go_oldest_first(cluster):
    for name in ("a", "b", "c"):
        await cluster.client.create(PODS, ns_pod(name))
        await cluster.set_phase(await cluster.pod(name), "Succeeded")
    await cluster.client.create(PODS, ns_pod("running"))
    collector = await a_collector(cluster, terminated_threshold=1)
    await collector.collect()
    left = [pod.metadata.name for pod in (await cluster.client.list(PODS, "ns")).items]
    assert len(left) == 2
    assert "running" in left


async def test_a_failing_removal_is_counted_and_tried_again(cluster):
    from dray.client import ApiError

    await cluster.client.create(NODES, node_with_ready(ready="False", taints=[OUT_OF_SERVICE]))
    await a_stuck_pod(cluster)
    collector = await a_collector(cluster)
    cluster.wire.fail("DELETE", "/pods/pod$", ApiError(500, "InternalError", "x"))
    assert not await collected(cluster, collector)
    assert 'pod_gc_collector_force_delete_pod_errors_total{namespace="ns",reason="out-of-service"} 1' in (
        cluster.registry.text()
    )
    assert await collected(cluster, collector)


# --- node lifecycle


async def test_a_silent_node_turns_unknown_and_is_tainted_and_recovers(cluster):
    await cluster.client.create(NODES, node_with_ready())
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await cluster.client.patch(NODES, "node", ready, subresource="status")
    lease = {"metadata": {"name": "node", "namespace": "kube-node-lease"}, "spec": {"holderIdentity": "node"}}
    await cluster.client.create(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})
    await cluster.start(lambda context: NodeLifecycleController(context, grace_s=0.3))

    async def state():
        node = await cluster.client.get(NODES, "node")
        (condition,) = node.status.conditions
        return condition.status, sorted((taint.key, taint.effect) for taint in node.spec.taints)

    assert (await state())[0] == "True"
    unreachable = "node.kubernetes.io/unreachable"

    async def silent():
        return await state() == ("Unknown", [(unreachable, "NoExecute"), (unreachable, "NoSchedule")])

    await cluster.eventually(silent)
    await cluster.client.patch(LEASES, "node", {"spec": {"leaseTransitions": 1}}, "kube-node-lease")
    await cluster.client.patch(NODES, "node", ready, subresource="status")

    async def back():
        return (await state())[1] == []

    await cluster.eventually(back)


async def test_a_lease_that_lasts_longer_than_the_grace_period_is_believed(cluster):
    await cluster.client.create(NODES, node_with_ready())
    lease = {"metadata": {"name": "node", "namespace": "kube-node-lease"}, "spec": {"leaseDurationSeconds": 3600}}
    await cluster.client.create(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})
    clock = SimulatedClock()
    await cluster.start(lambda context: NodeLifecycleController(context, grace_s=0.05), clock=clock)
    await clock.advance(60)
    await cluster.quiet()
    assert cluster.wire.count("PATCH", "/status$") == 0


async def test_a_node_written_by_hand_loses_its_taint_and_never_falls_silent(cluster):
    await cluster.client.create(NODES, node_with_ready())
    clock = SimulatedClock()
    await cluster.start(lambda context: NodeLifecycleController(context, grace_s=0.05), clock=clock)
    await clock.advance(60)
    await cluster.quiet()
    assert cluster.wire.count("PATCH", "/status$") == 0
    node = await cluster.client.get(NODES, "node")
    assert (node.spec.taints, node.status.conditions[0].status) == ((), "True")
