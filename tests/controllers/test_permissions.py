"""The controllers with the rights of their own role, not an administrator's: nothing they need is refused."""

import asyncio

import pytest

from dray.client import (
    CLAIMS,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    POOL_STATUS_REQUESTS,
    QUOTAS,
    SERVICE_ACCOUNTS,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    Client,
    Informers,
    LeaderElector,
)
from dray.controllers.context import ControllerContext
from dray.controllers.controller_manager import ControllerManager, ControllerOptions
from tests.builders.manifests import a_taint_rule
from tests.controllers.builders import DRIVER, node_with_ready, ns_claim, ns_group, ns_pod, ns_template, pool_slice
from tests.controllers.cluster import Cluster
from tests.controllers.interleaving import Interleaving
from tests.controllers.test_workloads import a_job, a_workload


class Watchful(Interleaving):
    """Remembers every refusal."""

    def __init__(self, inner):
        super().__init__(inner)
        self.refused = []

    async def request(self, call):
        answer = await super().request(call)
        if answer.status in (401, 403):
            self.refused.append((call.method, call.path, answer.body))
        return answer


@pytest.fixture
async def managed_cluster(server):
    admin = await server.https()
    transport = await server.https(user="system:kube-controller-manager", groups=())
    cluster = Cluster(admin)
    cluster.wire = Watchful(transport)
    client = Client(cluster.wire)
    manager = ControllerManager(ControllerContext(client, Informers(client)), ControllerOptions(root_ca="CA"))
    elector = LeaderElector(client, "kube-controller-manager", "me")
    task = asyncio.create_task(elector.run(manager.run))
    async with asyncio.timeout(20):
        await manager.ready.wait()
    cluster.running = manager.controllers
    yield cluster
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await admin.close()
    await transport.close()


async def test_the_role_of_the_controller_manager_suffices(managed_cluster):
    cluster, client = managed_cluster, managed_cluster.client
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})

    async def furnished():
        account = await client.find(SERVICE_ACCOUNTS, "default", "ns")
        return account and await client.find(CONFIG_MAPS, "kube-root-ca.crt", "ns")

    await cluster.eventually(furnished)
    # Claims from templates, quota, reservation, release, deletion.
    hard = {"count/resourceclaims.resource.k8s.io": "100", "pods": "100"}
    quota = {"metadata": {"name": "q", "namespace": "ns"}, "spec": {"hard": hard}}
    await client.create(QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    await client.create(TEMPLATES, ns_template())
    pod = await client.create(PODS, ns_pod(templates={"gpu": "template"}, node="node"))

    async def recorded():
        return (await cluster.recorded()).get("gpu")

    name = await cluster.eventually(recorded)
    await cluster.allocate(name, device="dev")

    async def reserved():
        return (await cluster.claim(name)).status.reserved_for

    await cluster.eventually(reserved)
    # A group gets its claim as well.
    await client.create(POD_GROUPS, ns_group(templates={"gpu": "template"}))

    async def group_served():
        return (await client.get(POD_GROUPS, "group", "ns")).status.resource_claim_statuses

    await cluster.eventually(group_served)
    # A taint rule evicts the pod; its claim is freed and collected.
    await client.create(NODES, node_with_ready())
    lease = {"metadata": {"name": "node", "namespace": "kube-node-lease"}, "spec": {}}
    await client.create(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})
    await client.create(SLICES, pool_slice())
    await client.create(TAINT_RULES, a_taint_rule(driver=DRIVER))

    async def evicted():
        found = await cluster.pod()
        return found is None or found.metadata.deletion_timestamp

    await cluster.eventually(evicted)
    await client.delete(PODS, "pod", "ns", grace_seconds=0, uid=pod.metadata.uid)

    async def collected():
        return await cluster.claim(name) is None

    await cluster.eventually(collected)
    # Workloads.
    await client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2))
    await client.create(JOBS, a_job(completions=1))
    await client.create(DAEMON_SETS, a_workload("DaemonSet", "daemon"))

    async def made():
        return len((await client.list(PODS, "ns")).items) == 4

    await cluster.eventually(made)
    # A budget counts what the Deployment wants, and then fails on pods whose owners have no scale.
    of_sets = {"matchExpressions": [{"key": "pod-template-hash", "operator": "Exists"}]}
    spec = {"maxUnavailable": "50%", "selector": of_sets}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "ns"}}
    await client.create(DISRUPTION_BUDGETS, {**budget, "spec": spec})

    async def counted():
        return (await client.get(DISRUPTION_BUDGETS, "b", "ns")).status.expected_pods == 2

    await cluster.eventually(counted)
    of_daemons = {"matchExpressions": None, "matchLabels": {"app": "daemon"}}
    await client.patch(DISRUPTION_BUDGETS, "b", {"spec": {"selector": of_daemons}}, "ns")

    async def failed():
        conditions = (await client.get(DISRUPTION_BUDGETS, "b", "ns")).status.conditions
        return [each.reason for each in conditions] == ["SyncFailed"]

    await cluster.eventually(failed)
    await client.delete(DEPLOYMENTS, "app", "ns", propagation="Foreground")

    async def deployment_gone():
        return await client.find(DEPLOYMENTS, "app", "ns") is None

    await cluster.eventually(deployment_gone)
    # A taint of the node evicts the pods there that do not tolerate it.
    await client.create(PODS, ns_pod("guest", node="node"))
    await client.patch(NODES, "node", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})

    async def guest_leaves():
        return (await cluster.pod("guest")).metadata.deletion_timestamp

    await cluster.eventually(guest_leaves)
    # A look at the pools, then everything goes.
    request = {"metadata": {"name": "look"}, "spec": {"driver": DRIVER}}
    api = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest"}
    await client.create(POOL_STATUS_REQUESTS, {**api, **request})

    async def answered():
        return (await client.get(POOL_STATUS_REQUESTS, "look")).status

    await cluster.eventually(answered)
    await client.create(CLAIMS, ns_claim(finalizers=["example.com/keep"]))
    await client.delete(NAMESPACES, "ns")

    async def claim_is_going():
        return (await client.get(CLAIMS, "claim", "ns")).metadata.deletion_timestamp

    await cluster.eventually(claim_is_going)
    await client.patch(CLAIMS, "claim", {"metadata": {"finalizers": []}}, "ns")
    for pod in (await client.list(PODS, "ns")).items:
        await client.delete(PODS, pod.metadata.name, "ns", grace_seconds=0)

    async def namespace_gone():
        return await client.find(NAMESPACES, "ns") is None

    await cluster.eventually(namespace_gone, 30)
    assert cluster.wire.refused == []
