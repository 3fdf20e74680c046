"""Every kind that a stock control plane serves: created, shown, listed as a table, watched and deleted, in every version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.certificate_texts import a_certificate, a_signing_request, encoded
from tests.apiserver.conftest import Client

from dray.api.schemas import resource_descriptions
from dray.api.scheme import RESOURCES, Resource, by_kind
from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.read.tables import column_definitions, row_cells
from dray.store.sqlite import SqliteStore

Document = dict[str, Any]

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
# Kinds that need machinery of their own, and those that only an alpha feature serves.
NOT_SERVED = {
    "/componentstatuses",
    "internal.apiserver.k8s.io/storageversions",
    "lifecycle.k8s.io/evictionrequests",
    "lifecycle.k8s.io/evictions",
    "scheduling.k8s.io/compositepodgroups",
}
# Kinds whose rules refuse an object without content have tests of their own.
PLAIN = [
    by_kind(kind)
    for kind in (
        "Endpoints", "LimitRange", "PersistentVolume", "PersistentVolumeClaim", "PodTemplate", "ReplicationController",
        "ControllerRevision", "HorizontalPodAutoscaler", "CronJob", "EndpointSlice", "IngressClass", "Ingress",
        "IPAddress", "NetworkPolicy", "ServiceCIDR", "CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass",
        "VolumeAttachment", "VolumeAttributesClass", "CertificateSigningRequest", "ClusterTrustBundle",
        "PodCertificateRequest", "LeaseCandidate", "RuntimeClass", "FlowSchema", "PriorityLevelConfiguration",
        "StorageVersionMigration",
        "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
    )
]  # fmt: skip


# What an object of these kinds has to say at least.
_POD = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
LEAST: dict[str, Document] = {
    "PersistentVolumeClaim": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
    "HorizontalPodAutoscaler": {
        "spec": {"maxReplicas": 1, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}},
    },
    "CronJob": {"spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": _POD}}}}},
    "ReplicationController": {
        "spec": {
            "selector": {"a": "b"},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {**_POD, "restartPolicy": "Always"}},
        }
    },
    "PodTemplate": {"template": {"spec": _POD}},
    "ControllerRevision": {"revision": 1, "data": {"a": "b"}},
    "CertificateSigningRequest": {
        "spec": {"request": encoded(a_signing_request()), "signerName": "example.com/s", "usages": ["any"]},
    },
    "IngressClass": {"spec": {"controller": "example.com/ingress"}},
    "EndpointSlice": {"addressType": "IPv4", "endpoints": []},
    "PersistentVolume": {
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}},
    },
    "IPAddress": {"spec": {"parentRef": {"resource": "services", "name": "s"}}},
    "ServiceCIDR": {"spec": {"cidrs": ["10.200.0.0/16"]}},
    "Ingress": {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
    "StorageClass": {"provisioner": "p.example.com"},
    "FlowSchema": {"spec": {"priorityLevelConfiguration": {"name": "global-default"}}},
    "PriorityLevelConfiguration": {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}},
    "VolumeAttributesClass": {"driverName": "p.example.com", "parameters": {"a": "b"}},
    "CSIStorageCapacity": {"storageClassName": "c"},
    "VolumeAttachment": {
        "spec": {"attacher": "p.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
    },
    "RuntimeClass": {"handler": "runc"},
    "MutatingAdmissionPolicy": {
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
                ]
            },
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {"expression": '[JSONPatch{op: "add", path: "/x", value: "y"}]'},
                }
            ],
        },
    },
    "MutatingAdmissionPolicyBinding": {"spec": {"policyName": "one"}},
}


@pytest.fixture
async def everything(tmp_path: Path) -> AsyncIterator[Client]:
    """A server with all versions switched on."""
    store = SqliteStore(tmp_path / "state.db")
    running = await start_server(store, ServerOptions(data=tmp_path / "data", runtime_config="api/all=true"))
    yield Client(running, store)
    await running.stop()
    await store.close()


def test_no_kind_is_forgotten() -> None:
    served = {f"{row.group}/{row.plural}" for row in RESOURCES}
    assert set(resource_descriptions()) - served == NOT_SERVED


def _object(row: Resource, version: str, **fields: Any) -> Document:
    name = "192.0.2.1" if row.kind == "IPAddress" else "one"
    return {"apiVersion": row.api_version(version), "kind": row.kind, "metadata": {"name": name}, **fields}


@pytest.mark.parametrize("row", PLAIN, ids=lambda row: row.plural)
async def test_a_kind_in_every_version(everything: Client, row: Resource) -> None:
    namespace = "default" if row.namespaced else ""
    for version in (entry.name for entry in row.versions):
        collection = row.path(namespace, version=version)
        watch = await everything.watch(f"{collection}?watch=1")
        document = _object(row, version, **LEAST.get(row.kind, {"spec": {}} if _has_spec(row) else {}))
        made = await everything.post(collection, document)
        assert made.status == 201, made.body
        assert (made.body["kind"], made.body["apiVersion"]) == (row.kind, row.api_version(version))
        name = document["metadata"]["name"]
        table = (await everything.get(collection, accept=TABLE)).body
        titles = [column["name"] for column in table["columnDefinitions"]]
        # Some kinds have objects from the beginning.
        (cells,) = [found["cells"] for found in table["rows"] if found["cells"][0] == name]
        assert len(cells) == len(titles)
        for subresource in row.subresources:
            if subresource.name in ("status", "approval"):
                shown = await everything.patch(
                    f"{collection}/{name}/{subresource.name}", {"metadata": {"labels": {"a": version}}}
                )
                assert shown.status == 200, shown.body
        deleted = await everything.send("DELETE", f"{collection}/{name}?propagationPolicy=Background")
        assert deleted.status == 200
        types = []
        while not types or types[-1] != "DELETED":
            event = await watch.next()
            assert event is not None
            assert event["object"]["apiVersion"] == row.api_version(version)
            types.append(event["type"])
        assert types[0] == "ADDED"


@pytest.mark.parametrize(
    ("kind", "document", "shown"),
    [
        ("ServiceAccount", {"secrets": [{"name": "s"}]}, {"Name": "one"}),
        (
            "IPAddress",
            {"spec": {"parentRef": {"group": "", "resource": "services", "namespace": "n", "name": "s"}}},
            {"Name": "192.0.2.1", "ParentRef": "services/n/s"},
        ),
        ("APIService", {"spec": {"group": "g"}}, {"Name": "one", "Service": "Local", "Available": "Unknown"}),
        (
            "APIService",
            {
                "spec": {"service": {"namespace": "n", "name": "s"}},
                "status": {"conditions": [{"type": "Available", "status": "False", "reason": "ServiceNotFound"}]},
            },
            {"Name": "one", "Service": "n/s", "Available": "False (ServiceNotFound)"},
        ),
        (
            "APIService",
            {"status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local"}]}},
            {"Name": "one", "Service": "Local", "Available": "True"},
        ),
        (
            "PodGroup",
            {"spec": {"schedulingPolicy": {"basic": {}}}},
            {"Name": "one", "Policy": "Basic", "Workload": "<none>", "Status": "Pending"},
        ),
        (
            "PodGroup",
            {
                "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "workloadRef": {"workloadName": "w"}},
                "status": {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "False"}]},
            },
            {"Name": "one", "Policy": "Gang", "Workload": "w", "Status": "Unschedulable"},
        ),
        (
            "PodGroup",
            {
                "status": {
                    "conditions": [
                        {"type": "PodGroupInitiallyScheduled", "status": "True"},
                        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
                    ]
                }
            },
            {"Name": "one", "Policy": "Basic", "Workload": "<none>", "Status": "PreemptionByScheduler"},
        ),
    ],
)
def test_printed_columns(kind: str, document: Document, shown: Document) -> None:
    row = by_kind(kind)
    titles = [column["name"] for column in column_definitions(row, row.versions[0].name)]
    cells = row_cells(row, row.versions[0].name, _object(row, "", **document), datetime(2030, 1, 1, tzinfo=UTC))
    assert len(cells) == len(titles)
    printed = dict(zip(titles, cells, strict=True))
    age = {} if kind == "IPAddress" else {"Age": "<unknown>"}
    assert printed == shown | age


def _has_spec(row: Resource) -> bool:
    from dray.api.schemas import schema_for

    schema = schema_for(row.api_version(), row.kind)
    return schema is not None and "spec" in schema.fields


async def test_flow_schemas_are_shown_in_the_order_in_which_they_are_tried(server: Client) -> None:
    table = (await server.get(by_kind("FlowSchema").path(), accept=TABLE)).body
    precedences = [row["cells"][2] for row in table["rows"]]
    assert precedences[:2] == [1, 2]
    assert precedences == sorted(precedences)


async def test_defaults_that_clients_read(server: Client) -> None:
    async def made(kind: str, **fields: Any) -> Document:
        row = by_kind(kind)
        answer = await server.post(row.path("default" if row.namespaced else ""), _object(row, "", **fields))
        assert answer.status == 201, answer.body
        found: Document = answer.body
        return found

    claim = await made("PersistentVolumeClaim", **LEAST["PersistentVolumeClaim"], status={"phase": "Bound"})
    assert (claim["spec"]["volumeMode"], claim["status"]) == ("Filesystem", {"phase": "Pending"})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    controller = await made("ReplicationController", spec={"template": template})
    assert (controller["spec"]["selector"], controller["spec"]["replicas"]) == ({"a": "b"}, 1)
    cron = await made("CronJob", **LEAST["CronJob"])
    assert cron["spec"]["concurrencyPolicy"] == "Allow"
    assert cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["schedulerName"] == "default-scheduler"
    storage = await made("StorageClass", provisioner="p.example.com")
    assert (storage["reclaimPolicy"], storage["volumeBindingMode"]) == ("Delete", "Immediate")
    policy = await made("NetworkPolicy", spec={"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]})
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["egress"][0]["ports"][0]["protocol"] == "TCP"


async def test_an_autoscaler_in_v1_and_v2(server: Client) -> None:
    row = by_kind("HorizontalPodAutoscaler")
    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
    pods = {
        "type": "Pods",
        "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "5"}},
    }
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
    sent = _object(row, "v2", spec={"scaleTargetRef": target, "maxReplicas": 3, "metrics": [cpu, pods]})
    made = (await server.post(row.path("default"), sent)).body
    old = (await server.get(row.path("default", "one", version="v1"))).body
    assert (old["spec"]["targetCPUUtilizationPercentage"], "metrics" in old["spec"]) == (70, False)
    assert list(old["metadata"]["annotations"]) == ["autoscaling.alpha.kubernetes.io/metrics"]
    put = await server.send(
        "PUT", row.path("default", "one", version="v1"), {**old, "spec": {**old["spec"], "maxReplicas": 4}}
    )
    assert put.status == 200, put.body
    again = (await server.get(row.path("default", "one"))).body
    assert again["spec"] == {**made["spec"], "maxReplicas": 4}
    assert "annotations" not in again["metadata"]


async def test_a_certificate_request_is_approved_then_signed(server: Client) -> None:
    row = by_kind("CertificateSigningRequest")
    request, certificate = encoded(a_signing_request()), encoded(a_certificate())
    spec = {"request": request, "signerName": "example.com/s", "usages": ["client auth"], "username": "someone else"}
    made = (await server.post(row.path(), _object(row, "", spec=spec))).body
    assert made["spec"]["username"] == "system:apiserver"
    approved = {"type": "Approved", "status": "True", "reason": "Fine", "message": ""}
    sent = {**made, "status": {"conditions": [approved], "certificate": certificate}}
    shown = (await server.send("PUT", f"{row.path(name='one')}/approval", sent)).body
    assert [entry["type"] for entry in shown["status"]["conditions"]] == ["Approved"]
    assert "certificate" not in shown["status"]
    signed = await server.patch(f"{row.path(name='one')}/status", {"status": {"certificate": certificate}})
    assert signed.body["status"]["certificate"] == certificate
    assert [entry["type"] for entry in signed.body["status"]["conditions"]] == ["Approved"]
