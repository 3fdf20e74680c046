"""Cluster IPs of Services, the `kubernetes` Service, and what a node may read of the kinds around pods."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

import pytest
from tests.apiserver.conftest import Client

from dray.apiserver.read.workload_cells import _service as service_cells
from dray.apiserver.request.request_info import User
from dray.apiserver.write.admission.service_addresses import SERVICE_RANGE, AddressBook
from dray.apiserver.write.admission.service_allocations import RESERVED_S
from dray.apiserver.write.admission.service_node_ports import ASKED_FOR, PORT_RANGE, NodePortBook
from dray.clock import SimulatedClock

SERVICES = "/api/v1/namespaces/default/services"
NODE = User("system:node:n1", ("system:nodes", "system:authenticated"))


def _service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def test_each_service_gets_an_address_of_its_own(server: Client) -> None:
    made = await asyncio.gather(*(server.post(SERVICES, _service(f"s{i}")) for i in range(20)))
    addresses = {answer.body["spec"]["clusterIP"] for answer in made}
    assert len(addresses) == 20
    assert all(ip_address(address) in SERVICE_RANGE for address in addresses)
    spec = made[0].body["spec"]
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")


async def test_an_address_is_given_once_and_stays(server: Client) -> None:
    made = await server.post(SERVICES, _service("a", clusterIP="10.96.0.10"))
    assert made.body["spec"]["clusterIP"] == "10.96.0.10"
    taken = await server.post(SERVICES, _service("b", clusterIP="10.96.0.10"))
    assert taken.status == 422
    assert "provided IP is already allocated" in taken.body["message"]
    outside = await server.post(SERVICES, _service("b", clusterIP="192.0.2.1"))
    assert "is not in the valid range" in outside.body["message"]
    kept = await server.send("PUT", f"{SERVICES}/a", _service("a"))
    assert kept.body["spec"]["clusterIP"] == "10.96.0.10"
    moved = await server.patch(f"{SERVICES}/a", {"spec": {"clusterIP": "10.96.0.11", "clusterIPs": ["10.96.0.11"]}})
    assert moved.status == 422
    await server.send("DELETE", f"{SERVICES}/a")
    assert (await server.post(SERVICES, _service("b", clusterIP="10.96.0.10"))).status == 201


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        # The API server's own address, which nobody else may have.
        ({"clusterIPs": ["10.96.0.20", "10.96.0.1"]}, "may specify no more than one IP for each IP family"),
        ({"clusterIPs": ["10.96.0.20", "::ffff:10.96.0.1"]}, "IPv6 is not configured on this cluster"),
        ({"clusterIPs": ["10.96.0.20", "2001:db8::1", "10.96.0.1"]}, "no more than one IP for each IP family"),
        ({"clusterIPs": ["None", "10.96.0.1"]}, "'None' must be the first and only value"),
        ({"clusterIP": "::ffff:10.96.0.1"}, "IPv6 is not configured on this cluster"),
        ({"clusterIP": "2001:db8::1"}, "IPv6 is not configured on this cluster"),
        ({"clusterIP": "10.96.0.0"}, "is not in the valid range"),
        ({"clusterIP": "10.111.255.255"}, "is not in the valid range"),
    ],
)
async def test_a_service_has_one_address_of_the_range(server: Client, spec: dict[str, Any], why: str) -> None:
    assert (await server.post(SERVICES, _service("there", clusterIP="10.96.0.20"))).status == 201
    await server.send("DELETE", f"{SERVICES}/there")
    refused = await server.post(SERVICES, _service("a", **spec))
    assert (refused.status, why in refused.body["message"]) == (422, True), refused.body
    assert (await server.post(SERVICES, _service("a", clusterIP="10.96.0.20"))).status == 201
    if spec.get("clusterIPs", [""])[0] == "10.96.0.20":
        added = await server.patch(f"{SERVICES}/a", {"spec": spec})
        assert (added.status, why in added.body["message"]) == (422, True), added.body


async def test_two_services_at_the_same_moment_do_not_get_one_address(server: Client) -> None:
    names = [f"s{number}" for number in range(8)]
    made = await asyncio.gather(*(server.post(SERVICES, _service(name, clusterIP="10.96.0.10")) for name in names))
    assert sorted(answer.status for answer in made) == [201] + [422] * 7


async def test_an_address_on_its_way_to_the_store_is_free_again_if_it_never_comes_there() -> None:
    clock = SimulatedClock()
    book = AddressBook(clock)
    book.reserve(["10.96.0.10"], "/services/a")
    assert book.is_free("10.96.0.10", "/services/a"), "the same service may try again"
    assert not book.is_free("10.96.0.10", "/services/b")
    await clock.advance(RESERVED_S)
    assert book.is_free("10.96.0.10", "/services/b")


async def test_headless_and_external_services_have_none(server: Client) -> None:
    headless = await server.post(SERVICES, _service("a", clusterIP="None"))
    assert headless.body["spec"]["clusterIPs"] == ["None"]
    external = await server.post(SERVICES, _service("b", type="ExternalName", externalName="x.example.com"))
    assert "clusterIP" not in external.body["spec"]


async def test_the_kubernetes_service_leads_to_the_server(server: Client) -> None:
    url = await server.running.listen("127.0.0.1", 0)
    port = int(url.rpartition(":")[2])
    service = (await server.get(f"{SERVICES}/kubernetes")).body
    assert (service["spec"]["clusterIP"], service["spec"]["ports"][0]["targetPort"]) == ("10.96.0.1", port)
    found = (await server.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")).body
    assert (found["ports"][0]["port"], found["endpoints"][0]["addresses"]) == (port, ["127.0.0.1"])
    old = (await server.get("/api/v1/namespaces/default/endpoints/kubernetes")).body
    assert old["subsets"][0]["addresses"] == [{"ip": "127.0.0.1"}]


async def test_what_a_node_may_read(server: Client) -> None:
    allowed = (
        "/api/v1/services", "/apis/node.k8s.io/v1/runtimeclasses", "/apis/storage.k8s.io/v1/csidrivers",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    )  # fmt: skip
    for path in allowed:
        assert (await server.send("GET", path, user=NODE)).status == 200, path
    refused = (
        "/apis/storage.k8s.io/v1/csinodes", "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/persistentvolumes",
        "/api/v1/persistentvolumeclaims", "/api/v1/endpoints", "/apis/networking.k8s.io/v1/ingresses",
    )  # fmt: skip
    for path in refused:
        assert (await server.send("GET", path, user=NODE)).status == 403, path
    nodes = "/apis/storage.k8s.io/v1/csinodes"
    own = {"metadata": {"name": "n1"}, "spec": {"drivers": []}}
    assert (await server.send("POST", nodes, own, user=NODE)).status == 201
    assert (await server.send("GET", f"{nodes}/n1", user=NODE)).status == 200
    other = {"metadata": {"name": "n2"}, "spec": {"drivers": []}}
    assert (await server.send("POST", nodes, other, user=NODE)).status == 403
    assert (await server.send("GET", f"{nodes}/n2", user=NODE)).status == 403


LOAD_BALANCED = {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}, {"hostname": "lb.example.com"}]}}


@pytest.mark.parametrize(
    ("spec", "status", "shown"),
    [
        ({}, {}, "<none>"),
        ({"externalIPs": ["192.0.2.7", "192.0.2.8"]}, {}, "192.0.2.7,192.0.2.8"),
        ({"externalName": "left.over"}, {}, "<none>"),
        ({"type": "ExternalName", "externalName": "a.b"}, {}, "a.b"),
        ({"type": "LoadBalancer"}, {}, "<pending>"),
        ({"type": "LoadBalancer", "externalIPs": ["192.0.2.7"]}, LOAD_BALANCED, "192.0.2.9,lb.example.com,192.0.2.7"),
    ],
)
def test_the_address_outside_depends_on_the_type(spec: dict[str, Any], status: dict[str, Any], shown: str) -> None:
    document = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], **spec}, "status": status}
    assert service_cells(document, datetime(2026, 1, 1, tzinfo=UTC))[3] == shown


NODE_PORTS = [{"name": "a", "port": 80, "nodePort": 31001}, {"name": "b", "port": 81, "nodePort": 31002}]
LOCAL = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31111}


@pytest.mark.parametrize(
    ("spec", "patch", "gone"),
    [
        pytest.param(
            {"type": "NodePort", "ports": NODE_PORTS},
            {"type": "ClusterIP", "ports": NODE_PORTS[:1]},
            "externalTrafficPolicy",
            id="node-ports-while-a-port-goes",
        ),
        pytest.param(
            {"type": "NodePort", "ports": NODE_PORTS},
            {"type": "ClusterIP", "ports": [{"name": "c", "port": 82}, *reversed(NODE_PORTS)]},
            "externalTrafficPolicy",
            id="node-ports-while-a-port-comes-and-two-change-places",
        ),
        pytest.param(LOCAL, {"externalTrafficPolicy": "Cluster"}, "healthCheckNodePort", id="health-checks"),
        pytest.param(
            {"type": "LoadBalancer", "externalIPs": ["192.0.2.7"]},
            {"type": "ExternalName", "externalName": "a.b"},
            "externalTrafficPolicy",
            id="traffic-from-outside",
        ),
    ],
)
async def test_what_only_the_old_type_needs_goes(
    server: Client, spec: dict[str, Any], patch: dict[str, Any], gone: str
) -> None:
    assert (await server.post(SERVICES, _service("s", **spec))).status == 201
    patched = await server.patch(f"{SERVICES}/s", {"spec": patch})
    assert patched.status == 200, patched.body
    assert gone not in patched.body["spec"]
    needs_ports = patched.body["spec"]["type"] in ("NodePort", "LoadBalancer")
    assert needs_ports or not any(port.get("nodePort") for port in patched.body["spec"]["ports"])


async def test_new_node_ports_are_refused_where_the_type_has_none(server: Client) -> None:
    await server.post(SERVICES, _service("s", type="NodePort", ports=NODE_PORTS))
    other = [{**NODE_PORTS[0], "nodePort": 31003}]
    refused = await server.patch(f"{SERVICES}/s", {"spec": {"type": "ClusterIP", "ports": other}})
    assert "spec.ports[0].nodePort: Forbidden" in refused.body["message"]


async def test_a_replaced_service_keeps_the_node_ports_that_it_leaves_out(server: Client) -> None:
    await server.post(SERVICES, _service("s", **LOCAL, ports=NODE_PORTS))
    ports: list[dict[str, Any]] = [{"name": "b", "port": 90}, {"name": "c", "port": 91, "nodePort": 31001}]
    ports.append({"name": "a", "port": 92})
    new = _service("s", type="LoadBalancer", externalTrafficPolicy="Local", ports=ports)
    kept = (await server.send("PUT", f"{SERVICES}/s", new)).body["spec"]
    assert [port["nodePort"] for port in kept["ports"]][:2] == [31002, 31001]
    assert kept["ports"][2]["nodePort"] not in (31001, 31002, 31111)
    assert kept["healthCheckNodePort"] == 31111


async def test_a_service_may_lose_its_ports_with_its_type(server: Client) -> None:
    await server.post(SERVICES, _service("s", type="NodePort", ports=NODE_PORTS))
    new = {"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "a.b"}}
    replaced = await server.send("PUT", f"{SERVICES}/s", new)
    assert (replaced.status, replaced.body["spec"].get("ports")) == (200, None)
    bare = await server.send("PUT", f"{SERVICES}/s", {"metadata": {"name": "s"}})
    assert bare.status == 422


async def test_a_service_without_balancer_has_no_addresses_of_one(server: Client) -> None:
    await server.post(SERVICES, _service("s", type="LoadBalancer"))
    given = await server.patch(f"{SERVICES}/s/status", {"status": LOAD_BALANCED})
    assert given.body["status"] == LOAD_BALANCED
    patched = await server.patch(f"{SERVICES}/s", {"spec": {"type": "ClusterIP"}})
    assert patched.body["status"] == {"loadBalancer": {}}


# --- families


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"ipFamilyPolicy": "RequireDualStack"},
            'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services',
        ),
        ({"ipFamilies": ["IPv6"]}, 'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'),
        (
            {"ipFamilies": ["IPv4", "IPv6"]},
            'spec.ipFamilyPolicy: Invalid value: "SingleStack": must be \'RequireDualStack\' or \'PreferDualStack\' when '
            "multiple IP families are specified",
        ),
        (
            {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack", "clusterIP": "None", "selector": {"a": "b"}},
            'spec.ipFamilies[1]: Invalid value: "IPv6": not configured on this cluster',
        ),
        ({"ipFamilies": ["IPv4", "IPv4"]}, 'spec.ipFamilies[1]: Duplicate value: "IPv4"'),
        (
            {"clusterIP": "foo"},
            'spec.clusterIPs[0]: Invalid value: "foo": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
        ),
    ],
)  # fmt: skip
async def test_the_cluster_has_one_family(server: Client, spec: dict[str, Any], problem: str) -> None:
    refused = await server.post(SERVICES, _service("a", **spec))
    assert (refused.status, refused.body["message"]) == (422, f'Service "a" is invalid: {problem}')


@pytest.mark.parametrize(
    ("spec", "policy", "families"),
    [
        ({"selector": {"a": "b"}}, "SingleStack", ["IPv4"]),
        ({"ipFamilyPolicy": "PreferDualStack"}, "PreferDualStack", ["IPv4"]),
        ({"clusterIP": "None", "selector": {"a": "b"}}, "SingleStack", ["IPv4"]),
        ({"clusterIP": "None"}, "RequireDualStack", ["IPv4", "IPv6"]),
        ({"clusterIP": "None", "ipFamilies": ["IPv6"]}, "RequireDualStack", ["IPv6", "IPv4"]),
        ({"clusterIP": "None", "ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"}, "SingleStack", ["IPv6"]),
    ],
)
async def test_families_that_a_service_gets(
    server: Client, spec: dict[str, Any], policy: str, families: list[str]
) -> None:
    made = await server.post(SERVICES, _service("a", **spec))
    found = made.body["spec"]
    assert (found["ipFamilyPolicy"], found["ipFamilies"]) == (policy, families)
    replaced = await server.send("PUT", f"{SERVICES}/a", _service("a", **{**spec, "ipFamilies": None}))
    assert (replaced.body["spec"]["ipFamilyPolicy"], replaced.body["spec"]["ipFamilies"]) == (policy, families)


async def test_a_second_family_goes_with_the_policy(server: Client) -> None:
    await server.post(SERVICES, _service("a", clusterIP="None"))
    refused = await server.patch(f"{SERVICES}/a", {"spec": {"ipFamilies": ["IPv4"]}})
    assert "must be 'SingleStack' to release the secondary IP family" in refused.body["message"]
    changed = await server.patch(f"{SERVICES}/a", {"spec": {"ipFamilyPolicy": "SingleStack"}})
    assert changed.body["spec"]["ipFamilies"] == ["IPv4"]


# --- node ports


def _node_ports(body: dict[str, Any]) -> list[int | None]:
    return [port.get("nodePort") for port in body["spec"]["ports"]]


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
async def test_each_port_gets_a_node_port_of_its_own(server: Client, kind: str) -> None:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    services = [_service(f"s{i}", type=kind, ports=ports) for i in range(30)]
    made = await asyncio.gather(*(server.post(SERVICES, service) for service in services))
    numbers = [number for answer in made for number in _node_ports(answer.body)]
    assert len(set(numbers)) == 60
    assert all(number in PORT_RANGE[ASKED_FOR:] for number in numbers)
    assert all("f:nodePort" not in str(answer.body["metadata"]["managedFields"]) for answer in made)
    replaced = await server.send("PUT", f"{SERVICES}/s0", services[0])
    assert _node_ports(replaced.body) == _node_ports(made[0].body)
    labelled = await server.patch(f"{SERVICES}/s1", {"metadata": {"labels": {"a": "b"}}})
    assert _node_ports(labelled.body) == _node_ports(made[1].body)


async def test_protocols_of_one_port_share_a_node_port(server: Client) -> None:
    ports: list[dict[str, Any]] = [
        {"name": protocol.lower(), "port": 53, "protocol": protocol} for protocol in ("TCP", "UDP")
    ]
    made = await server.post(SERVICES, _service("a", type="NodePort", ports=ports))
    assert len(set(_node_ports(made.body))) == 1
    ports[1]["nodePort"] = 30053
    made = await server.post(SERVICES, _service("b", type="NodePort", ports=ports))
    assert _node_ports(made.body) == [30053, 30053]
    ports[1]["port"] = 54
    ports[0]["nodePort"] = 30054
    ports[1]["nodePort"] = 30054
    refused = await server.post(SERVICES, _service("c", type="NodePort", ports=ports))
    problem = "spec.ports[1].nodePort: Invalid value: 30054: provided port is already allocated"
    assert refused.body["message"] == f'Service "c" is invalid: {problem}'


async def test_a_node_port_is_given_once_and_is_free_after_its_service(server: Client) -> None:
    asked = _service("a", type="NodePort", ports=[{"port": 80, "nodePort": 30007}])
    outside = _service("a", type="NodePort", ports=[{"port": 80, "nodePort": 80}])
    refused = await server.post(SERVICES, outside)
    assert refused.status == 422
    assert refused.body["message"] == (
        'Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. '
        "The range of valid ports is 30000-32767"
    )
    assert (await server.post(SERVICES, asked)).status == 201
    other = {**asked, "metadata": {"name": "b"}}
    for path in (SERVICES, f"{SERVICES}?dryRun=All"):
        taken = await server.post(path, other)
        problem = "spec.ports[0].nodePort: Invalid value: 30007: provided port is already allocated"
        assert (taken.status, taken.body["message"]) == (422, f'Service "b" is invalid: {problem}')
    assert (await server.patch(f"{SERVICES}/a", {"spec": {"type": "ClusterIP"}})).status == 200
    assert (await server.post(SERVICES, other)).status == 201
    moved = await server.patch(f"{SERVICES}/b", {"spec": {"ports": [{"port": 80, "nodePort": 30008}]}})
    assert _node_ports(moved.body) == [30008]
    assert (await server.send("PUT", f"{SERVICES}/a", asked)).status == 200
    await server.send("DELETE", f"{SERVICES}/b")
    assert (
        await server.post(SERVICES, _service("c", type="NodePort", ports=[{"port": 80, "nodePort": 30008}]))
    ).status == 201


async def test_two_services_at_the_same_moment_do_not_get_one_node_port(server: Client) -> None:
    asked = [_service(f"s{i}", type="NodePort", ports=[{"port": 80, "nodePort": 30007}]) for i in range(8)]
    made = await asyncio.gather(*(server.post(SERVICES, service) for service in asked))
    assert sorted(answer.status for answer in made) == [201] + [422] * 7


async def test_a_port_that_is_lost_on_the_way_is_chosen_anew(server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """All services see the same free ports in the same order."""
    monkeypatch.setattr(NodePortBook, "free_ports", lambda book, key: (n for n in PORT_RANGE if book.is_free(n, key)))
    made = await asyncio.gather(*(server.post(SERVICES, _service(f"s{i}", type="NodePort")) for i in range(8)))
    assert [answer.status for answer in made] == [201] * 8
    assert {_node_ports(answer.body)[0] for answer in made} == set(PORT_RANGE[:8])


async def test_a_refused_or_tried_service_holds_no_node_ports(server: Client) -> None:
    asked = _service("a", type="NodePort", ports=[{"port": 80, "nodePort": 30007}])
    assert (await server.post(f"{SERVICES}?dryRun=All", asked)).status == 201
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"services.nodeports": "0"}}}
    quotas = "/api/v1/namespaces/default/resourcequotas"
    assert (await server.post(quotas, quota)).status == 201
    used = {"hard": {"services.nodeports": "0"}, "used": {"services.nodeports": "0"}}
    assert (await server.patch(f"{quotas}/q/status", {"status": used})).status == 200
    refused = await server.post(SERVICES, asked)
    assert refused.status == 403, refused.body
    await server.send("DELETE", f"{quotas}/q")
    assert (await server.post(SERVICES, {**asked, "metadata": {"name": "b"}})).status == 201


async def test_a_balancer_may_do_without_node_ports(server: Client) -> None:
    made = await server.post(SERVICES, _service("a", type="LoadBalancer", allocateLoadBalancerNodePorts=False))
    assert _node_ports(made.body) == [None]
    changed = await server.patch(f"{SERVICES}/a", {"spec": {"allocateLoadBalancerNodePorts": True}})
    assert changed.body["spec"]["ports"][0]["nodePort"] in PORT_RANGE


async def test_health_checks_get_a_node_port(server: Client) -> None:
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    made = await server.post(SERVICES, _service("a", **local))
    number = made.body["spec"]["healthCheckNodePort"]
    assert number in PORT_RANGE
    assert number != _node_ports(made.body)[0]
    replaced = await server.send("PUT", f"{SERVICES}/a", _service("a", **local))
    assert replaced.body["spec"]["healthCheckNodePort"] == number
    moved = await server.patch(f"{SERVICES}/a", {"spec": {"healthCheckNodePort": 30001}})
    assert "spec.healthCheckNodePort: Forbidden: field is immutable" in moved.body["message"]
    for wrong, why in ((80, "provided port is not in the valid range"), (number, "provided port is already allocated")):
        refused = await server.post(SERVICES, _service("b", **local, healthCheckNodePort=wrong))
        assert (refused.status, f"HealthCheck NodePort {wrong}: {why}" in refused.body["message"]) == (400, True)


async def test_when_all_node_ports_are_taken(server: Client) -> None:
    ports = [{"name": f"p{i}", "port": i + 1} for i in range(len(PORT_RANGE) + 1)]
    refused = await server.post(SERVICES, _service("a", type="NodePort", ports=ports))
    assert refused.body["message"] == "failed to allocate a nodePort: range is full"
    made = await server.post(SERVICES, _service("a", type="NodePort", ports=ports[1:]))
    assert set(_node_ports(made.body)) == set(PORT_RANGE)


CONTROLLERS = "/api/v1/namespaces/default/replicationcontrollers"


async def test_a_replication_controller_is_scaled_and_found_by_its_size(server: Client) -> None:
    template = {
        "metadata": {"labels": {"app": "web", "tier": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    for name, selector in (("one", {"tier": "a", "app": "web"}), ("two", None)):
        spec = {"replicas": 1, "selector": selector, "template": template}
        assert (await server.post(CONTROLLERS, {"metadata": {"name": name}, "spec": spec})).status == 201
    scale = await server.get(f"{CONTROLLERS}/one/scale")
    assert scale.body["status"] == {"replicas": 0, "selector": "app=web,tier=a"}
    scaled = await server.patch(f"{CONTROLLERS}/one/scale", {"spec": {"replicas": 3}})
    assert scaled.body["spec"] == {"replicas": 3}
    found = await server.get(f"{CONTROLLERS}?fieldSelector=status.replicas%3D0")
    assert [each["metadata"]["name"] for each in found.body["items"]] == ["one", "two"]
    assert (await server.get(f"{CONTROLLERS}?fieldSelector=status.replicas%3D1")).body["items"] == []
