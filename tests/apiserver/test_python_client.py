"""The official Python client takes the server for the real thing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import kubernetes
import kubernetes.dynamic
import pytest
from kubernetes.client.exceptions import ApiException
from tests.apiserver import manifests
from tests.apiserver.conftest import Live

CUSTOM = {"group": "resource.k8s.io", "version": "v1"}


@pytest.fixture(scope="module")
def api(live: Live) -> Iterator[kubernetes.client.ApiClient]:
    with kubernetes.config.new_client_from_config(str(live.kubeconfig)) as client:
        yield client


@pytest.fixture(scope="module")
def core(api: kubernetes.client.ApiClient) -> kubernetes.client.CoreV1Api:
    found = kubernetes.client.CoreV1Api(api)
    found.create_namespaced_service_account("default", manifests.service_account())
    return found


@pytest.fixture(scope="module")
def custom(api: kubernetes.client.ApiClient) -> kubernetes.client.CustomObjectsApi:
    return kubernetes.client.CustomObjectsApi(api)


def test_version_and_discovery(api: kubernetes.client.ApiClient) -> None:
    assert kubernetes.client.VersionApi(api).get_code().minor == "37"
    groups = {group.name for group in kubernetes.client.ApisApi(api).get_api_versions().groups}
    assert {"resource.k8s.io", "apps", "rbac.authorization.k8s.io"} <= groups
    resources = {row.name for row in kubernetes.client.CoreV1Api(api).get_api_resources().resources}
    assert {"pods", "pods/binding", "nodes/status"} <= resources


@pytest.mark.parametrize(
    ("plural", "document"),
    [
        ("deviceclasses", manifests.device_class("py")),
        ("resourceslices", manifests.resource_slice("py")),
        ("devicetaintrules", manifests.taint_rule("py")),
    ],
)
def test_cluster_kinds(custom: kubernetes.client.CustomObjectsApi, plural: str, document: dict) -> None:  # type: ignore[type-arg]
    made = custom.create_cluster_custom_object(**CUSTOM, plural=plural, body=document)
    assert made["metadata"]["generation"] == 1
    patched = custom.patch_cluster_custom_object(
        **CUSTOM, plural=plural, name="py", body={"metadata": {"labels": {"a": "b"}}}
    )
    assert patched["metadata"]["labels"] == {"a": "b"}
    found = custom.list_cluster_custom_object(**CUSTOM, plural=plural, label_selector="a=b")
    assert [item["metadata"]["name"] for item in found["items"]] == ["py"]
    custom.delete_cluster_custom_object(**CUSTOM, plural=plural, name="py")
    with pytest.raises(ApiException) as gone:
        custom.get_cluster_custom_object(**CUSTOM, plural=plural, name="py")
    assert gone.value.status == 404


def test_typed_claims(api: kubernetes.client.ApiClient) -> None:
    """The client's own classes, where it has them."""
    resource = kubernetes.client.ResourceV1Api(api)
    made = resource.create_namespaced_resource_claim("default", manifests.claim("typed"))
    assert made.spec.devices.requests[0].exactly.count == 1
    status = {
        "allocation": {
            "devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "typed"}]}
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "aaaaaaaa-0000-4000-8000-000000000001"}],
    }
    written = resource.patch_namespaced_resource_claim_status("typed", "default", {"status": status})
    assert written.status.reserved_for[0].name == "p"
    listed = resource.list_resource_claim_for_all_namespaces(field_selector="metadata.name=typed")
    assert [item.metadata.uid for item in listed.items] == [made.metadata.uid]
    resource.patch_namespaced_resource_claim_status(
        "typed", "default", {"status": {"reservedFor": None, "allocation": None}}
    )
    resource.delete_namespaced_resource_claim("typed", "default")


def test_pod_life(core: kubernetes.client.CoreV1Api) -> None:
    core.create_node(manifests.node("py-node"))
    pod = core.create_namespaced_pod("default", manifests.pod("py-pod"))
    assert (pod.status.phase, pod.status.qos_class) == ("Pending", "BestEffort")
    target = kubernetes.client.V1ObjectReference(kind="Node", name="py-node")
    binding = kubernetes.client.V1Binding(metadata={"name": "py-pod"}, target=target)
    core.create_namespaced_pod_binding("py-pod", "default", binding, _preload_content=False)
    assert core.read_namespaced_pod("py-pod", "default").spec.node_name == "py-node"
    found = core.list_pod_for_all_namespaces(field_selector="spec.nodeName=py-node")
    assert [item.metadata.name for item in found.items] == ["py-pod"]
    core.patch_namespaced_pod_status("py-pod", "default", {"status": {"phase": "Running"}})
    eviction = kubernetes.client.V1Eviction(metadata={"name": "py-pod", "namespace": "default"})
    core.create_namespaced_pod_eviction("py-pod", "default", eviction)
    assert core.read_namespaced_pod("py-pod", "default").metadata.deletion_grace_period_seconds == 30
    core.delete_namespaced_pod("py-pod", "default", grace_period_seconds=0)


def test_pages(core: kubernetes.client.CoreV1Api) -> None:
    for number in range(5):
        core.create_namespaced_config_map("kube-public", {"metadata": {"name": f"page-{number}"}})
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map("kube-public", limit=2, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{number}" for number in range(5)]


def test_watch(core: kubernetes.client.CoreV1Api) -> None:
    start = core.list_namespaced_config_map("kube-node-lease").metadata.resource_version
    seen: list[tuple[str, str]] = []

    def follow() -> None:
        for event in kubernetes.watch.Watch().stream(
            core.list_namespaced_config_map, "kube-node-lease", resource_version=start, timeout_seconds=20
        ):
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                return

    reader = threading.Thread(target=follow)
    reader.start()
    core.create_namespaced_config_map("kube-node-lease", {"metadata": {"name": "watched"}})
    core.patch_namespaced_config_map("watched", "kube-node-lease", {"data": {"a": "b"}})
    core.delete_namespaced_config_map("watched", "kube-node-lease")
    reader.join(20)
    assert seen == [("ADDED", "watched"), ("MODIFIED", "watched"), ("DELETED", "watched")]


def test_leases_keep_microseconds(api: kubernetes.client.ApiClient) -> None:
    leases = kubernetes.client.CoordinationV1Api(api)
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2024-01-02T03:04:05.123456Z"}
    leases.create_namespaced_lease("default", {"metadata": {"name": "l"}, "spec": spec})
    assert leases.read_namespaced_lease("l", "default").spec.renew_time.microsecond == 123456


def test_events_are_one_store_with_two_views(
    api: kubernetes.client.ApiClient, core: kubernetes.client.CoreV1Api
) -> None:
    core.create_namespaced_event(
        "default",
        {
            "metadata": {"name": "ev"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            "reason": "Tested",
            "message": "hello",
            "type": "Normal",
            "eventTime": "2024-01-02T03:04:05.000000Z",
            "action": "Testing",
            "reportingComponent": "tests",
            "reportingInstance": "tests-1",
        },
    )
    found = kubernetes.client.EventsV1Api(api).read_namespaced_event("ev", "default")
    assert (found.note, found.regarding.name, found.reason) == ("hello", "p", "Tested")
    listed = core.list_namespaced_event("default", field_selector="involvedObject.name=p,reason=Tested")
    assert [item.metadata.name for item in listed.items] == ["ev"]


def test_conflicts(core: kubernetes.client.CoreV1Api) -> None:
    made = core.create_namespaced_config_map("default", {"metadata": {"name": "raced"}})
    core.patch_namespaced_config_map("raced", "default", {"data": {"first": "1"}})
    made.data = {"second": "2"}
    with pytest.raises(ApiException) as late:
        core.replace_namespaced_config_map("raced", "default", made)
    assert late.value.status == 409
    assert "the object has been modified" in late.value.body


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("device_class", manifests.device_class("typed")),
        ("resource_slice", manifests.resource_slice("typed")),
        ("device_taint_rule", manifests.taint_rule("typed")),
    ],
)
def test_typed_cluster_kinds(api: kubernetes.client.ApiClient, kind: str, document: dict) -> None:  # type: ignore[type-arg]
    """Read, changed and written back as objects of the client, with nothing lost on the way."""
    typed = kubernetes.client.ResourceV1Api(api)
    made = getattr(typed, f"create_{kind}")(document)
    made.metadata.labels = {"a": "b"}
    replaced = getattr(typed, f"replace_{kind}")("typed", made)
    assert replaced.metadata.generation == 1
    assert replaced.spec == made.spec
    assert [item.metadata.name for item in getattr(typed, f"list_{kind}")(label_selector="a=b").items] == ["typed"]
    getattr(typed, f"delete_{kind}")("typed")
    with pytest.raises(ApiException) as gone:
        getattr(typed, f"read_{kind}")("typed")
    assert (gone.value.status, gone.value.reason) == (404, "Not Found")


def test_the_dynamic_client_applies(api: kubernetes.client.ApiClient, tmp_path: Path) -> None:
    client = kubernetes.dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery"))
    templates = client.resources.get(api_version="resource.k8s.io/v1", kind="ResourceClaimTemplate")
    body = {**manifests.template("dynamic"), "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    applied = templates.server_side_apply(body=body, field_manager="dynamic")
    assert applied.metadata.managedFields[0].operation == "Apply"
    events = templates.watch(namespace="default", timeout=1, name="dynamic")
    assert [event["type"] for event in events] == ["ADDED"]
    templates.delete(name="dynamic", namespace="default")


def test_who_issues_tokens(api: kubernetes.client.ApiClient) -> None:
    issuer = kubernetes.client.WellKnownApi(api).get_service_account_issuer_open_id_configuration()
    assert "https://kubernetes.default.svc" in str(issuer)
    assert "ES256" in str(kubernetes.client.OpenidApi(api).get_service_account_issuer_open_id_keyset())
