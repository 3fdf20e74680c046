"""EndpointSlices of services: the pods that a selector finds, their ports, and what happens when these change."""

from __future__ import annotations

import pytest

from dray.api import codec
from dray.api.core import Pod
from dray.api.workloads import Service
from dray.client import ENDPOINT_SLICES, PODS, SERVICES
from dray.controllers.endpoint_slices import EndpointSliceController, wanted_slices
from tests.controllers.builders import ns_pod

PORTS = [{"name": "web", "port": 80, "targetPort": "http"}, {"name": "plain", "port": 81, "targetPort": 9000}]


@pytest.fixture
async def controller(cluster):
    return await cluster.start(EndpointSliceController)


def a_service(**spec):
    spec = {"selector": {"app": "web"}, "ports": PORTS, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "ns", "name": "svc", "labels": {"own": "label"}},
        "spec": spec,
    }


async def a_running_pod(cluster, name, ip, *, port=8080, ready=True, app="web"):
    pod = ns_pod(name)
    pod["metadata"]["labels"] = {"app": app}
    pod["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": port}]
    pod["spec"]["nodeName"] = "n1"
    await cluster.client.create(PODS, pod)
    await set_status(cluster, name, ip, ready=ready)


async def set_status(cluster, name, ip, *, ready=True, phase="Running"):
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": phase, "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions}
    await cluster.client.patch(PODS, name, {"status": status}, "ns", subresource="status")


async def slices(cluster):
    return (await cluster.client.list(ENDPOINT_SLICES, "ns")).items


async def until(cluster, expected):
    """Waits for these endpoints: port of `web`, then address and readiness of each pod."""

    async def look():
        found = {}
        for each in await slices(cluster):
            web = next((port["port"] for port in each.ports or () if port["name"] == "web"), None)
            for endpoint in each.endpoints or ():
                found[endpoint["addresses"][0]] = (web, endpoint["conditions"]["ready"])
        return found == expected

    await cluster.eventually(look)


async def test_pods_come_change_and_go(cluster, controller):
    await cluster.client.create(SERVICES, a_service())
    await a_running_pod(cluster, "one", "10.0.0.1")
    await a_running_pod(cluster, "two", "10.0.0.2", ready=False)
    await a_running_pod(cluster, "else", "10.0.0.3", app="other")
    await until(cluster, {"10.0.0.1": (8080, True), "10.0.0.2": (8080, False)})
    (found,) = await slices(cluster)
    service = await cluster.client.get(SERVICES, "svc", "ns")
    assert found.metadata.labels == {
        "own": "label",
        "kubernetes.io/service-name": "svc",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert [owner.uid for owner in found.metadata.owner_references] == [service.metadata.uid]
    assert {(port["name"], port["port"], port["protocol"]) for port in found.ports} == {
        ("web", 8080, "TCP"),
        ("plain", 9000, "TCP"),
    }
    assert found.endpoints[0]["targetRef"]["name"] == "one"
    await set_status(cluster, "two", "10.0.0.2")
    await until(cluster, {"10.0.0.1": (8080, True), "10.0.0.2": (8080, True)})
    await set_status(cluster, "one", "10.0.0.1", phase="Succeeded")
    await until(cluster, {"10.0.0.2": (8080, True)})
    await cluster.client.patch(PODS, "two", {"metadata": {"labels": {"app": "other"}}}, "ns")
    await until(cluster, {})
    assert len(await slices(cluster)) == 1, "a service without pods has an empty one"


async def test_each_set_of_ports_has_its_slice(cluster, controller):
    await a_running_pod(cluster, "one", "10.0.0.1", port=8080)
    await a_running_pod(cluster, "two", "10.0.0.2", port=8081)
    await cluster.client.create(SERVICES, a_service())
    await until(cluster, {"10.0.0.1": (8080, True), "10.0.0.2": (8081, True)})
    assert len(await slices(cluster)) == 2


def test_slices_of_a_service_share_their_labels():
    """A Service may have megabytes of them, and thousands of pods with a port of their own each."""
    service = codec.to_object(a_service(), Service)
    pods = []
    for number in range(3):
        pod = ns_pod(f"p{number}")
        pod["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 8000 + number}]
        pods.append(codec.to_object({**pod, "status": {"podIP": f"10.0.0.{number}"}}, Pod))
    made = list(wanted_slices(service, pods))
    assert len(made) == 3
    assert len({id(each["metadata"]["labels"]) for each in made}) == 1


async def test_what_is_not_ours_is_left_alone(cluster, controller):
    await cluster.client.create(SERVICES, a_service(selector=None))
    own = {"metadata": {"namespace": "ns", "name": "mine", "labels": {"kubernetes.io/service-name": "svc"}}}
    await cluster.client.create(
        ENDPOINT_SLICES,
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": [], **own},
    )
    await a_running_pod(cluster, "one", "10.0.0.1")
    await cluster.quiet()
    assert [each.metadata.name for each in await slices(cluster)] == ["mine"]
    assert cluster.wire.writes == []


async def test_a_slice_that_somebody_deletes_comes_back(cluster, controller):
    await cluster.client.create(SERVICES, a_service())
    await a_running_pod(cluster, "one", "10.0.0.1")
    await until(cluster, {"10.0.0.1": (8080, True)})
    (found,) = await slices(cluster)
    await cluster.client.delete(ENDPOINT_SLICES, found.metadata.name, "ns")
    await until(cluster, {"10.0.0.1": (8080, True)})


async def test_a_service_that_is_a_name_elsewhere_has_no_slices(cluster, controller):
    await cluster.client.create(SERVICES, a_service())
    await a_running_pod(cluster, "one", "10.0.0.1")
    await until(cluster, {"10.0.0.1": (8080, True)})
    patch = {"spec": {"type": "ExternalName", "externalName": "elsewhere.example.com", "clusterIP": None}}
    await cluster.client.patch(SERVICES, "svc", patch, "ns")

    async def gone():
        return not await slices(cluster)

    await cluster.eventually(gone)
