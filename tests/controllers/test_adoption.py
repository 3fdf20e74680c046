"""Pods that belong to a ReplicaSet by their labels."""

from dray.client import PODS, QUOTAS, REPLICA_SETS, REPLICATION_CONTROLLERS
from dray.controllers.discovery import discover
from dray.controllers.garbage_collector import GarbageCollector
from dray.controllers.replica_sets import ReplicaSetController
from tests.builders.manifests import a_quota
from tests.controllers.builders import ns_pod
from tests.controllers.test_workloads import a_workload, active, has_pods


def owners(pod):
    return [owner.name for owner in pod.metadata.owner_references]


async def test_a_pod_without_an_owner_is_taken_in_and_counted(cluster):
    await cluster.client.create(PODS, ns_pod("stray", labels={"app": "app"}))
    await cluster.client.create(PODS, ns_pod("other", labels={"app": "other"}))
    await cluster.start(ReplicaSetController)
    await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=2))
    await has_pods(cluster, 3)
    assert owners(await cluster.pod("stray")) == ["app"]
    assert owners(await cluster.pod("other")) == []


async def test_a_pod_that_comes_to_match_is_surplus(cluster):
    await cluster.start(ReplicaSetController)
    await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=1))
    await has_pods(cluster, 1)
    await cluster.client.create(PODS, ns_pod("stray"))
    await has_pods(cluster, 2)
    await cluster.client.patch(PODS, "stray", {"metadata": {"labels": {"app": "app"}}}, "ns")
    await has_pods(cluster, 1)


async def test_a_pod_of_somebody_else_is_left_alone(cluster):
    owner = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "thing", "uid": "u", "controller": True}
    await cluster.client.create(PODS, ns_pod("foreign", labels={"app": "app"}, ownerReferences=[owner]))
    await cluster.start(ReplicaSetController)
    await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=1))
    await has_pods(cluster, 2)
    assert owners(await cluster.pod("foreign")) == ["thing"]


async def test_a_relabelled_pod_is_let_go_and_replaced(cluster):
    """How people look into a pod that misbehaves without losing it."""
    await cluster.start(ReplicaSetController)
    await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=1))
    await has_pods(cluster, 1)
    (pod,) = await active(cluster)
    await cluster.client.patch(PODS, pod.metadata.name, {"metadata": {"labels": {"app": "under-the-lamp"}}}, "ns")
    await has_pods(cluster, 2)
    assert owners(await cluster.pod(pod.metadata.name)) == []


async def test_a_set_that_is_made_again_finds_its_pods(cluster):
    kinds = await discover(cluster.client)
    await cluster.start(ReplicaSetController, lambda context: GarbageCollector(context, kinds))
    await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=2))
    await has_pods(cluster, 2)
    before = {pod.metadata.uid for pod in await active(cluster)}
    await cluster.client.delete(REPLICA_SETS, "app", "ns", propagation="Orphan")

    async def orphaned():
        is_gone = await cluster.client.find(REPLICA_SETS, "app", "ns") is None
        return is_gone and all(owners(pod) == [] for pod in await active(cluster))

    await cluster.eventually(orphaned)
    await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=2))

    async def found():
        return all(owners(pod) == ["app"] for pod in await active(cluster))

    await cluster.eventually(found)
    await cluster.quiet()
    assert {pod.metadata.uid for pod in await active(cluster)} == before


async def test_a_set_on_its_way_out_takes_nobody_in(cluster):
    """It is deleted between the decision and the question whether it is still there."""
    await cluster.client.create(PODS, ns_pod("stray", labels={"app": "app"}))
    document = a_workload("ReplicaSet", replicas=1)
    document["metadata"]["finalizers"] = ["example.com/keep"]
    await cluster.client.create(REPLICA_SETS, document)
    cluster.wire.before("GET", "/replicasets/app$", lambda: cluster.client.delete(REPLICA_SETS, "app", "ns"))
    await cluster.start(ReplicaSetController)
    await cluster.quiet()
    assert owners(await cluster.pod("stray")) == []


async def test_of_two_sets_that_want_a_pod_one_gets_it(cluster):
    await cluster.client.create(PODS, ns_pod("stray", labels={"app": "app"}))
    for name in ("one", "two"):
        document = a_workload("ReplicaSet", "app", replicas=1)
        document["metadata"]["name"] = name
        await cluster.client.create(REPLICA_SETS, document)
    await cluster.start(ReplicaSetController)
    await has_pods(cluster, 2)
    assert len(owners(await cluster.pod("stray"))) == 1


async def test_a_replication_controller_has_its_pods_by_its_labels(cluster):
    await cluster.client.create(PODS, ns_pod("stray", labels={"app": "app"}))
    await cluster.start(lambda context: ReplicaSetController(context, REPLICATION_CONTROLLERS, "rc-controller"))
    template = {"metadata": {"labels": {"app": "app"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 2, "template": template}
    await cluster.client.create(REPLICATION_CONTROLLERS, {"metadata": {"name": "rc", "namespace": "ns"}, "spec": spec})
    await has_pods(cluster, 2)
    assert owners(await cluster.pod("stray")) == ["rc"]

    async def is_counted():
        status = (await cluster.client.get(REPLICATION_CONTROLLERS, "rc", "ns")).status
        return (status.replicas, status.fully_labeled_replicas, status.observed_generation) == (2, 2, 1)

    await cluster.eventually(is_counted)


async def test_a_set_says_that_its_pods_could_not_be_made_until_they_are(cluster):
    quota = a_quota("quota", {"pods": "1"}, namespace="ns")
    await cluster.client.create(QUOTAS, quota)
    status = {"hard": {"pods": "1"}, "used": {"pods": "0"}}
    await cluster.client.patch(QUOTAS, "quota", {"status": status}, "ns", subresource="status")
    await cluster.start(ReplicaSetController)
    await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=2))

    async def reasons():
        found = (await cluster.client.get(REPLICA_SETS, "app", "ns")).status.conditions
        return [(each.type, each.status, each.reason) for each in found]

    async def has_failed():
        return await reasons() == [("ReplicaFailure", "True", "FailedCreate")]

    async def has_recovered():
        return await reasons() == []

    await cluster.eventually(has_failed)
    await cluster.client.delete(QUOTAS, "quota", "ns")
    await cluster.client.patch(REPLICA_SETS, "app", {"spec": {"replicas": 3}}, "ns")
    await has_pods(cluster, 3)
    await cluster.eventually(has_recovered)
