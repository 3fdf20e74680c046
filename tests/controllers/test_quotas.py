"""Quota status: enforced with the server's charges, given back by counting."""

import pytest

from dray.client import CLAIMS, CONFIG_MAPS, PODS, QUOTAS, TEMPLATES, ApiError
from dray.controllers.claims import ClaimController
from dray.controllers.discovery import discover
from dray.controllers.resource_quotas import QuotaController
from tests.builders.manifests import a_quota
from tests.controllers.builders import ns_claim, ns_pod, ns_template

COUNT = "count/resourceclaims.resource.k8s.io"
DEVICES = "gpu.deviceclass.resource.k8s.io/devices"


def ns_quota(hard, name="quota", **fields):
    return a_quota(name, hard, namespace="ns", **fields)


@pytest.fixture
async def quotas(cluster):
    kinds = await discover(cluster.client)
    return await cluster.start(lambda context: QuotaController(context, kinds))


async def used(cluster, expected, name="quota"):
    async def look():
        status = (await cluster.client.get(QUOTAS, name, "ns")).status
        return {resource: str(amount) for resource, amount in status.used.items()} == expected

    await cluster.eventually(look)


async def test_a_new_quota_counts_what_is_there(cluster, quotas):
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.client.create(PODS, ns_pod())
    await cluster.client.create(CONFIG_MAPS, {"metadata": {"name": "m", "namespace": "ns"}})
    hard = {COUNT: "5", DEVICES: "4", "pods": "10", "count/configmaps": "3", "configmaps": "7"}
    await cluster.client.create(QUOTAS, ns_quota(hard))
    await used(cluster, {COUNT: "1", DEVICES: "1", "pods": "1", "count/configmaps": "1", "configmaps": "1"})


async def test_what_ends_is_given_back(cluster, quotas):
    await cluster.client.create(QUOTAS, ns_quota({COUNT: "1", "pods": "2"}))
    await used(cluster, {COUNT: "0", "pods": "0"})
    await cluster.client.create(CLAIMS, ns_claim())
    await used(cluster, {COUNT: "1", "pods": "0"})
    with pytest.raises(ApiError, match="exceeded quota: quota, requested: "):
        await cluster.client.create(CLAIMS, ns_claim("second"))
    await cluster.client.delete(CLAIMS, "claim", "ns")
    await used(cluster, {COUNT: "0", "pods": "0"})
    await cluster.client.create(CLAIMS, ns_claim("second"))
    pod = await cluster.client.create(PODS, ns_pod())
    await used(cluster, {COUNT: "1", "pods": "1"})
    await cluster.set_phase(pod, "Succeeded")
    await used(cluster, {COUNT: "1", "pods": "0"})


async def test_a_changed_limit_is_taken_over(cluster, quotas):
    await cluster.client.create(QUOTAS, ns_quota({COUNT: "1"}))
    await used(cluster, {COUNT: "0"})
    await cluster.client.patch(QUOTAS, "quota", {"spec": {"hard": {COUNT: "3", "pods": "1"}}}, "ns")
    await used(cluster, {COUNT: "0", "pods": "0"})
    status = (await cluster.client.get(QUOTAS, "quota", "ns")).status
    assert {resource: str(amount) for resource, amount in status.hard.items()} == {COUNT: "3", "pods": "1"}


async def test_a_quota_with_scopes_counts_fitting_pods_only(cluster, quotas):
    await cluster.client.create(PODS, ns_pod("plain"))
    pod = ns_pod("terminating")
    pod["spec"]["activeDeadlineSeconds"] = 60
    await cluster.client.create(PODS, pod)
    await cluster.client.create(QUOTAS, ns_quota({"pods": "9"}, scopes=["Terminating"]))
    await used(cluster, {"pods": "1"})


async def test_a_quota_changed_while_counting_is_counted_again(cluster, quotas):
    await cluster.client.create(QUOTAS, ns_quota({COUNT: "9"}))
    await used(cluster, {COUNT: "0"})
    await cluster.client.create(CLAIMS, ns_claim("one"))
    await cluster.client.create(CLAIMS, ns_claim("two"))

    async def charge():
        await cluster.client.create(CLAIMS, ns_claim("three"))

    cluster.wire.before("PUT", "/resourcequotas/quota/status$", charge)
    await cluster.client.delete(CLAIMS, "one", "ns")
    await used(cluster, {COUNT: "2"})


async def test_a_refused_claim_of_a_template_is_made_once_there_is_room(cluster, quotas):
    """Quota failures of the claim controller: event, backoff, then success without anybody touching the pod."""
    await cluster.start(ClaimController)
    await cluster.client.create(QUOTAS, ns_quota({COUNT: "1"}))
    await used(cluster, {COUNT: "0"})
    await cluster.client.create(CLAIMS, ns_claim("in-the-way"))
    await cluster.client.create(TEMPLATES, ns_template())
    await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}))

    async def told():
        return await cluster.events("FailedResourceClaimCreation")

    (event, *_) = await cluster.eventually(told)
    assert "exceeded quota: quota" in event.message
    await cluster.client.delete(CLAIMS, "in-the-way", "ns")

    async def made():
        return (await cluster.recorded()).get("gpu")

    await cluster.eventually(made)


async def test_namespaces_without_quotas_cost_nothing(cluster, quotas):
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.client.delete(CLAIMS, "claim", "ns")
    await cluster.quiet()
    assert cluster.wire.writes == []
    assert quotas.queue.delayed == 0


def a_service(name, kind, **spec):
    ports = [{"port": 80}]
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"type": kind, "ports": ports, **spec}}


async def test_ports_and_load_balancers_of_services_are_counted(cluster, quotas):
    services = next(kind for kind in await discover(cluster.client) if kind.plural == "services")
    limits = {"services": "10", "services.nodeports": "1", "services.loadbalancers": "1"}
    await cluster.client.create(QUOTAS, ns_quota(limits))
    await used(cluster, dict.fromkeys(limits, "0"))
    await cluster.client.create(services, a_service("inside", "ClusterIP"))
    await cluster.client.create(services, a_service("outside", "NodePort"))
    await used(cluster, {"services": "2", "services.nodeports": "1", "services.loadbalancers": "0"})
    with pytest.raises(ApiError, match=r"exceeded quota: quota, requested: services\.nodeports=1"):
        await cluster.client.create(services, a_service("balanced", "LoadBalancer"))
    without_ports = a_service("balanced", "LoadBalancer", allocateLoadBalancerNodePorts=False)
    await cluster.client.create(services, without_ports)
    await used(cluster, {"services": "3", "services.nodeports": "1", "services.loadbalancers": "1"})
    await cluster.client.delete(services, "outside", "ns")
    await used(cluster, {"services": "2", "services.nodeports": "0", "services.loadbalancers": "1"})


async def test_storage_is_counted_by_class(cluster, quotas):
    claims = next(kind for kind in await discover(cluster.client) if kind.plural == "persistentvolumeclaims")
    fast = "fast.storageclass.storage.k8s.io/"
    limits = {"persistentvolumeclaims": "5", "requests.storage": "10Gi", f"{fast}requests.storage": "2Gi"}
    await cluster.client.create(QUOTAS, ns_quota(limits))
    await used(cluster, dict.fromkeys(limits, "0"))

    def a_volume_claim(name, size, storage_class):
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        return {"metadata": {"name": name, "namespace": "ns"}, "spec": spec | {"storageClassName": storage_class}}

    await cluster.client.create(claims, a_volume_claim("a", "3Gi", "slow"))
    await cluster.client.create(claims, a_volume_claim("b", "2Gi", "fast"))
    await used(cluster, {"persistentvolumeclaims": "2", "requests.storage": "5Gi", f"{fast}requests.storage": "2Gi"})
    with pytest.raises(ApiError, match="exceeded quota"):
        await cluster.client.create(claims, a_volume_claim("c", "1Gi", "fast"))
