"""A whole server, and people who try what they may not. Every attempt is a 4xx, and nothing has changed afterwards."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders.manifests import a_claim, a_result, a_slice, an_allocation

from dray.apiserver.assembly import RunningServer, ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request, User
from dray.store.sqlite import SqliteStore

Document = dict[str, Any]
DRA = "/apis/resource.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
N1 = User("system:node:n1", ("system:nodes", "system:authenticated"))
ALICE = User("alice", ("system:authenticated",))
SCHEDULER = User("system:kube-scheduler", ("system:authenticated",))
DRIVER = User(
    "system:serviceaccount:drivers:gpu",
    ("system:serviceaccounts", "system:serviceaccounts:drivers", "system:authenticated"),
    "u",
    {"authentication.kubernetes.io/node-name": ("n1",)},
)


class Cluster:
    def __init__(self, running: RunningServer) -> None:
        self._server = running.server

    async def send(
        self,
        user: User | None,
        method: str,
        path: str,
        body: Any = None,
        kind: str = "application/json",
        **headers: str,
    ) -> tuple[int, Document]:
        path, _, query = path.partition("?")
        data = json.dumps(body).encode() if body is not None else b""
        sent = {"content-type": kind, "accept": "application/json", "user-agent": "test/1"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        response = await self._server.handle(Request(method, path, query, sent, data, user))
        try:
            return response.status, json.loads(response.body or b"{}")
        except json.JSONDecodeError:
            return response.status, {"text": response.body.decode()}

    async def make(self, path: str, body: Document) -> Document:
        status, answer = await self.send(LOOPBACK, "POST", path, body)
        assert status == 201, answer
        return answer

    async def read(self, path: str) -> Document:
        status, answer = await self.send(LOOPBACK, "GET", path)
        assert status == 200, answer
        return answer


CLAIMS = f"{DRA}/namespaces/default/resourceclaims"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    store = SqliteStore(tmp_path / "dray.db")
    running = await start_server(store, ServerOptions(tmp_path))
    cluster = Cluster(running)
    await cluster.make(f"{DRA}/resourceslices", a_slice("mine", "gpu-0", "gpu-1", node="n1"))
    await cluster.make(f"{DRA}/resourceslices", a_slice("theirs", "gpu-0", "gpu-1", node="n2"))
    await cluster.make(CLAIMS, a_claim("used"))
    await cluster.make(CLAIMS, a_claim("other"))
    await cluster.make("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    container = {"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}
    for pod, node, claim in (("p1", "n1", "used"), ("p2", "n2", "other")):
        spec = {
            "containers": [container],
            "nodeName": node,
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec}
        await cluster.make("/api/v1/namespaces/default/pods", body)
    yield cluster
    await running.stop()
    await store.close()


async def test_a_node_cannot_publish_in_the_pool_of_another_node(cluster: Cluster) -> None:
    """The devices of one pool are the same devices, whichever slice names them."""
    await cluster.make("/api/v1/nodes", {"metadata": {"name": "n2"}})
    foreign = a_slice("foreign", "gpu-0", node="n1")
    foreign["spec"]["pool"]["name"] = "n2"
    status, answer = await cluster.send(N1, "POST", f"{DRA}/resourceslices", foreign)
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert 'node "n1" cannot publish devices in the pool of the node "n2"' in answer["message"]
    own = a_slice("own", "gpu-0", node="n1")
    for pool in ("n1", "n1-network"):
        own["metadata"]["name"] = own["spec"]["pool"]["name"] = pool
        assert (await cluster.send(N1, "POST", f"{DRA}/resourceslices", own))[0] == 201
    patch = {"spec": {"pool": {"name": "n2", "generation": 2, "resourceSliceCount": 1}}}
    assert (await cluster.send(N1, "PATCH", f"{DRA}/resourceslices/n1", patch, MERGE))[0] in (403, 422)


async def test_a_node_cannot_touch_another_nodes_slices(cluster: Cluster) -> None:
    before = await cluster.read(f"{DRA}/resourceslices/theirs")
    mine = await cluster.read(f"{DRA}/resourceslices/mine")
    attempts: list[tuple[str, str, Any, str]] = [
        ("POST", f"{DRA}/resourceslices", a_slice("new", "gpu-0", "gpu-1", node="n2"), "application/json"),
        ("PUT", f"{DRA}/resourceslices/theirs", before, "application/json"),
        ("PATCH", f"{DRA}/resourceslices/theirs", {"spec": {"devices": []}}, MERGE),
        (
            "PATCH",
            f"{DRA}/resourceslices/theirs?fieldManager=x&force=true",
            a_slice("theirs", "gpu-0", "gpu-1", node="n2"),
            APPLY,
        ),
        ("PATCH", f"{DRA}/resourceslices/fresh?fieldManager=x", a_slice("fresh", "gpu-0", "gpu-1", node="n2"), APPLY),
        ("PATCH", f"{DRA}/resourceslices/fresh?fieldManager=x", a_slice("fresh", "gpu-0", "gpu-1", node="n1"), APPLY),
        ("DELETE", f"{DRA}/resourceslices/theirs", None, "application/json"),
        ("DELETE", f"{DRA}/resourceslices", None, "application/json"),
        ("DELETE", f"{DRA}/resourceslices?fieldSelector=spec.nodeName=n2", None, "application/json"),
        ("DELETE", f"{DRA}/resourceslices?fieldSelector=spec.nodeName!=n1", None, "application/json"),
        ("GET", f"{DRA}/resourceslices/theirs", None, "application/json"),
        ("GET", f"{DRA}/resourceslices", None, "application/json"),
        ("GET", f"{DRA}/resourceslices?watch=true&timeoutSeconds=1", None, "application/json"),
        ("GET", f"{DRA}/resourceslices?fieldSelector=spec.nodeName=n2", None, "application/json"),
        ("GET", f"{DRA}/resourceslices?fieldSelector=metadata.name=theirs", None, "application/json"),
        ("PATCH", f"{DRA}/resourceslices/mine", {"spec": {"nodeName": "n2"}}, MERGE),
        ("PATCH", f"{DRA}/resourceslices/mine", {"spec": {"nodeName": None, "allNodes": True}}, MERGE),
    ]
    for method, path, body, kind in attempts:
        status, answer = await cluster.send(N1, method, path, body, kind)
        assert status in (403, 404, 422), (method, path, answer)
    assert await cluster.read(f"{DRA}/resourceslices/theirs") == before
    assert await cluster.read(f"{DRA}/resourceslices/mine") == mine
    names = [entry["metadata"]["name"] for entry in (await cluster.read(f"{DRA}/resourceslices"))["items"]]
    assert sorted(names) == ["mine", "theirs"]


async def test_a_node_keeps_its_own_slices(cluster: Cluster) -> None:
    status, listed = await cluster.send(N1, "GET", f"{DRA}/resourceslices?fieldSelector=spec.nodeName=n1")
    assert (status, [entry["metadata"]["name"] for entry in listed["items"]]) == (200, ["mine"])
    assert (await cluster.send(N1, "POST", f"{DRA}/resourceslices", a_slice("more", "gpu-0", "gpu-1", node="n1")))[
        0
    ] == 201
    assert (await cluster.send(N1, "PATCH", f"{DRA}/resourceslices/mine", {"metadata": {"labels": {"a": "b"}}}, MERGE))[
        0
    ] == 200
    assert (await cluster.send(N1, "DELETE", f"{DRA}/resourceslices?fieldSelector=spec.nodeName=n1"))[0] == 200
    names = [entry["metadata"]["name"] for entry in (await cluster.read(f"{DRA}/resourceslices"))["items"]]
    assert names == ["theirs"]


async def test_a_node_cannot_write_any_claim(cluster: Cluster) -> None:
    assert (await cluster.send(N1, "GET", f"{CLAIMS}/used"))[0] == 200
    assert (await cluster.send(N1, "GET", f"{CLAIMS}/other"))[0] == 403
    assert (await cluster.send(N1, "GET", CLAIMS))[0] == 403
    claim = await cluster.read(f"{CLAIMS}/used")
    status = {"status": {"allocation": an_allocation(a_result(), node="n1")}}
    for method, path, body, kind in (
        ("PUT", f"{CLAIMS}/used/status", {**claim, **status}, "application/json"),
        ("PATCH", f"{CLAIMS}/used/status", status, MERGE),
        ("PATCH", f"{CLAIMS}/used/status?fieldManager=x&force=true", {**a_claim("used"), **status}, APPLY),
        ("PUT", f"{CLAIMS}/used", claim, "application/json"),
        ("PATCH", f"{CLAIMS}/used", {"metadata": {"finalizers": None}}, MERGE),
        ("DELETE", f"{CLAIMS}/used", None, "application/json"),
        ("DELETE", CLAIMS, None, "application/json"),
        ("POST", CLAIMS, a_claim("new"), "application/json"),
    ):
        code, answer = await cluster.send(N1, method, path, body, kind)
        assert code == 403, (method, path, answer)
    assert await cluster.read(f"{CLAIMS}/used") == claim


async def test_a_node_cannot_steal_claims_through_pod_status(cluster: Cluster) -> None:
    path = "/api/v1/namespaces/default/pods"
    stolen = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "other"}]}}
    code, answer = await cluster.send(N1, "PATCH", f"{path}/p1/status", stolen, MERGE)
    assert (code, "cannot update resource claim statues" in answer["message"]) == (403, True)
    assert (await cluster.send(N1, "PATCH", f"{path}/p2/status", {"status": {"message": "x"}}, MERGE))[0] == 403
    assert (await cluster.send(N1, "PATCH", f"{path}/p1/status", {"status": {"message": "x"}}, MERGE))[0] == 200
    assert (await cluster.send(N1, "DELETE", f"{path}/p2"))[0] == 403
    assert (await cluster.send(N1, "PATCH", f"{path}/p1", {"spec": {"nodeName": "n2"}}, MERGE))[0] == 403
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p2"}}
    assert (await cluster.send(N1, "POST", f"{path}/p2/eviction", eviction))[0] == 403
    own = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p1"}}
    assert (await cluster.send(N1, "POST", f"{path}/p1/eviction", own))[0] == 201


async def test_a_driver_speaks_for_its_own_driver_and_node(cluster: Cluster) -> None:
    rules = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch", "update"]},
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims/driver"],
            "resourceNames": ["gpu.example.com"],
            "verbs": ["associated-node:patch", "associated-node:update"],
        },
    ]
    await cluster.make(f"{RBAC}/clusterroles", {"metadata": {"name": "driver"}, "rules": rules})
    binding = {
        "metadata": {"name": "driver"},
        "subjects": [{"kind": "ServiceAccount", "name": "gpu", "namespace": "drivers"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "driver"},
    }
    await cluster.make(f"{RBAC}/clusterrolebindings", binding)
    allocate = {"status": {"allocation": an_allocation(a_result(), node="n1")}}
    code, answer = await cluster.send(DRIVER, "PATCH", f"{CLAIMS}/used/status", allocate, MERGE)
    assert (code, "resourceclaims/binding" in answer["message"]) == (422, True)
    assert (await cluster.send(SCHEDULER, "PATCH", f"{CLAIMS}/used/status", allocate, MERGE))[0] == 200
    foreign = {"status": {"allocation": an_allocation(a_result(pool="n2"), node="n2")}}
    assert (await cluster.send(SCHEDULER, "PATCH", f"{CLAIMS}/other/status", foreign, MERGE))[0] == 200

    def report(node: str, driver: str = "gpu.example.com") -> Document:
        return {"status": {"devices": [{"driver": driver, "pool": node, "device": "gpu-0", "conditions": []}]}}

    assert (await cluster.send(DRIVER, "PATCH", f"{CLAIMS}/used/status", report("n1"), MERGE))[0] == 200
    code, answer = await cluster.send(DRIVER, "PATCH", f"{CLAIMS}/other/status", report("n2"), MERGE)
    assert (code, "resourceclaims/driver" in answer["message"]) == (422, True)
    assert (await cluster.send(SCHEDULER, "PATCH", f"{CLAIMS}/used/status", report("n1", "x.example.com"), MERGE))[
        0
    ] == 422
    assert (await cluster.send(DRIVER, "PATCH", f"{CLAIMS}/used", {"metadata": {"labels": {"a": "b"}}}, MERGE))[
        0
    ] == 403


async def test_no_device_is_given_twice(cluster: Cluster) -> None:
    allocate = {"status": {"allocation": an_allocation(a_result(), node="n1")}}
    assert (await cluster.send(SCHEDULER, "PATCH", f"{CLAIMS}/used/status", allocate, MERGE))[0] == 200
    for path in (f"{CLAIMS}/other/status", f"{CLAIMS}/other/status?dryRun=All"):
        code, answer = await cluster.send(SCHEDULER, "PATCH", path, allocate, MERGE)
        assert (code, answer["reason"]) == (409, "Conflict")
        assert "is already allocated to claim default/used" in answer["message"]
    claim = await cluster.read(f"{CLAIMS}/other")
    code, answer = await cluster.send(SCHEDULER, "PUT", f"{CLAIMS}/other/status", {**claim, **allocate})
    assert (code, "default/used" in answer["message"]) == (409, True)
    assert "allocation" not in (await cluster.read(f"{CLAIMS}/other"))["status"]
    assert (await cluster.send(LOOPBACK, "DELETE", f"{CLAIMS}/used"))[0] == 200
    assert (await cluster.send(SCHEDULER, "PATCH", f"{CLAIMS}/other/status", allocate, MERGE))[0] == 200


async def test_users_do_not_lift_themselves(cluster: Cluster) -> None:
    def binding(role: str) -> Document:
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}
        return {"metadata": {"name": role}, "subjects": [subject], "roleRef": reference}

    await cluster.make(f"{RBAC}/namespaces/default/rolebindings", binding("admin"))
    mine = f"{RBAC}/namespaces/default"
    everything = {"metadata": {"name": "r"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    attempts: list[tuple[str, str, Any]] = [
        ("POST", f"{mine}/roles", everything),
        ("POST", f"{mine}/rolebindings", binding("cluster-admin")),
        ("POST", f"{RBAC}/clusterrolebindings", binding("cluster-admin")),
        ("POST", f"{RBAC}/clusterroles", everything),
        ("GET", "/api/v1/nodes", None),
        ("GET", "/api/v1/namespaces/kube-system/secrets", None),
        ("DELETE", "/api/v1/namespaces/default", None),
        ("POST", f"{DRA}/deviceclasses", {"metadata": {"name": "x"}, "spec": {}}),
        ("GET", "/metrics", None),
    ]
    for method, path, body in attempts:
        code, answer = await cluster.send(ALICE, method, path, body)
        assert code == 403, (method, path, answer)
    for headers in (
        {"impersonate_user": "root"},
        {"impersonate_user": "alice", "impersonate_group": "system:masters"},
        {"impersonate_user": "system:serviceaccount:kube-system:generic-garbage-collector"},
        {"impersonate_user": "alice", "impersonate_extra_scopes": "x"},
        {"impersonate_user": "alice", "impersonate_uid": "1"},
    ):
        assert (await cluster.send(ALICE, "GET", "/api/v1/namespaces/default/pods", **headers))[0] == 403
    assert (await cluster.send(ALICE, "POST", f"{mine}/roles", {"metadata": {"name": "ok"}, "rules": []}))[0] == 201


async def test_nobody_in_particular_sees_health_and_nothing_else(cluster: Cluster) -> None:
    for path, expected in (("/healthz", 200), ("/version", 200), ("/api", 403), (CLAIMS, 403), ("/metrics", 403)):
        assert (await cluster.send(None, "GET", path))[0] == expected
    for header in ("Bearer nonsense", "Bearer a.b.c", "Bearer " + "x" * 20000):
        assert (await cluster.send(None, "GET", "/healthz", authorization=header))[0] == 401
    assert (await cluster.send(None, "GET", CLAIMS, authorization="Basic YTpi"))[0] == 403
    assert (await cluster.send(None, "GET", CLAIMS, impersonate_user="admin"))[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/apis/resource.k8s.io/v1/namespaces/../resourceslices",
        "/apis/resource.k8s.io/v1/resourceslices/..%2Ftheirs",
        "/apis/resource.k8s.io/v1/resourceslices/mine/../theirs",
        "/apis/resource.k8s.io/v1//resourceslices/theirs",
        "/api/v1/../../apis/resource.k8s.io/v1/resourceslices/theirs",
        "/apis/resource.k8s.io/v1/resourceslices/theirs%00",
        "/apis/RESOURCE.K8S.IO/v1/resourceslices/theirs",
    ],
)
async def test_path_tricks_lead_nowhere(cluster: Cluster, path: str) -> None:
    for method in ("GET", "DELETE"):
        code, _ = await cluster.send(N1, method, path)
        assert code in (400, 403, 404)
    await cluster.read(f"{DRA}/resourceslices/theirs")


async def test_tokens_from_the_server_work_and_stop_working(cluster: Cluster) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    _, answer = await cluster.send(LOOPBACK, "POST", f"{path}/default/token", request)
    header = f"Bearer {answer['status']['token']}"
    code, review = await cluster.send(
        None,
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        authorization=header,
    )
    assert code == 201
    assert review["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
    assert (await cluster.send(LOOPBACK, "DELETE", f"{path}/default"))[0] == 200
    assert (await cluster.send(None, "GET", "/healthz", authorization=header))[0] == 401


async def test_admin_access_needs_a_marked_namespace(cluster: Cluster) -> None:
    wants = a_claim("admin")
    wants["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    code, answer = await cluster.send(LOOPBACK, "POST", CLAIMS, wants)
    assert (code, answer["details"]["causes"][0]["field"]) == (422, "spec.devices.requests[0].adminAccess")
    granted = an_allocation(a_result(), node="n1")
    granted["devices"]["results"][0]["adminAccess"] = True
    patch = {"status": {"allocation": granted}}
    assert (await cluster.send(SCHEDULER, "PATCH", f"{CLAIMS}/used/status", patch, MERGE))[0] == 422
    for label, expected in (("True", 422), ("true", 201)):
        labels = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": label}}}
        assert (await cluster.send(LOOPBACK, "PATCH", "/api/v1/namespaces/default", labels, MERGE))[0] == 200
        assert (await cluster.send(LOOPBACK, "POST", CLAIMS, wants))[0] == expected


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("clusterroles", {"rules": [{"apiGroups": [""], "resources": ["pods"]}]}, "rules[0].verbs"),
        ("clusterroles", {"rules": [{"verbs": ["get"], "resources": ["pods"]}]}, "rules[0].apiGroups"),
        ("clusterroles", {"rules": [{"verbs": ["get"], "apiGroups": [""]}]}, "rules[0].resources"),
        (
            "namespaces/default/roles",
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
            "rules[0].nonResourceURLs",
        ),
        ("clusterrolebindings", {"roleRef": {"kind": "Role", "name": "x"}}, "roleRef.kind"),
        ("clusterrolebindings", {"roleRef": {"kind": "ClusterRole"}}, "roleRef.name"),
        (
            "clusterrolebindings",
            {"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "Robot", "name": "x"}]},
            "subjects[0].kind",
        ),
        (
            "clusterrolebindings",
            {"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "ServiceAccount", "name": "x"}]},
            "subjects[0].namespace",
        ),
    ],
)
async def test_roles_and_bindings_that_say_nothing_are_refused(
    cluster: Cluster, path: str, body: Document, field: str
) -> None:
    code, answer = await cluster.send(LOOPBACK, "POST", f"{RBAC}/{path}", {"metadata": {"name": "x"}, **body})
    assert code == 422, answer
    assert field in [cause["field"] for cause in answer["details"]["causes"]]


async def test_what_a_binding_refers_to_stays(cluster: Cluster) -> None:
    reference = {"kind": "ClusterRole", "name": "view"}
    await cluster.make(f"{RBAC}/clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": reference})
    change = {"roleRef": {"name": "cluster-admin"}}
    code, answer = await cluster.send(LOOPBACK, "PATCH", f"{RBAC}/clusterrolebindings/b", change, MERGE)
    assert (code, answer["message"].endswith("field is immutable")) == (422, True)
