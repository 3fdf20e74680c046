"""Answers of a stock API server that clients of other kinds than claims rely on; each was read from Kubernetes 1.37."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.apiserver.conftest import Client

PODS = "/api/v1/namespaces/default/pods"
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
SELECTED = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


@pytest.fixture
async def server(server: Client) -> Client:
    """Pods need the service account that a controller makes in a whole cluster."""
    await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    return server


def pod_manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def a_job(name: str = "j", **metadata: Any) -> dict[str, Any]:
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": name, **metadata}, "spec": {"template": {"spec": spec}}}


JOBS = "/apis/batch/v1/namespaces/default/jobs"


async def test_the_condition_of_a_gated_pod_has_a_time(server: Client) -> None:
    made = await server.post(PODS, pod_manifest("gated", schedulingGates=[{"name": "a.io/b"}]))
    (condition,) = made.body["status"]["conditions"]
    assert condition["lastTransitionTime"] >= made.body["metadata"]["creationTimestamp"]


@pytest.mark.parametrize("kind", ["merge", "strategic-merge", "json"])
async def test_a_patch_cannot_change_the_uid(server: Client, kind: str) -> None:
    await server.post(PODS, pod_manifest("p"))
    body: Any = {"metadata": {"uid": "other"}}
    if kind == "json":
        body = [{"op": "replace", "path": "/metadata/uid", "value": "other"}]
    answer = await server.patch(f"{PODS}/p", body, kind)
    assert answer.status == 422
    assert 'Pod "p" is invalid: metadata.uid: Invalid value: "other": field is immutable' in answer.body["message"]


async def test_a_put_with_another_uid_is_about_another_object(server: Client) -> None:
    made = await server.post(PODS, pod_manifest("p"))
    other = {**made.body, "metadata": {**made.body["metadata"], "uid": "other"}}
    assert (await server.send("PUT", f"{PODS}/p", other)).status == 409


async def test_apply_names_the_namespace_as_a_request_does(server: Client) -> None:
    body = b"apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: kube-system}\n"
    answer = await server.patch(f"{PODS}/p?fieldManager=m", body, "apply")
    expected = "the namespace of the provided object does not match the namespace sent on the request"
    assert (answer.status, answer.body["message"]) == (400, expected)


# --- eviction


async def evict(server: Client, name: str, **options: Any) -> Any:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return await server.post(f"{PODS}/{name}/eviction", body)


async def test_an_evicted_pod_says_that_it_was_evicted(server: Client) -> None:
    await server.post(PODS, pod_manifest("p", nodeName="n1"))
    assert (await evict(server, "p")).status == 201
    pod = (await server.get(f"{PODS}/p")).body
    (condition,) = [each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
    assert condition["message"] == "Eviction API: evicting"
    assert condition["lastTransitionTime"]
    assert pod["metadata"]["deletionTimestamp"]


async def test_an_eviction_that_is_only_tried_leaves_no_mark(server: Client) -> None:
    await server.post(PODS, pod_manifest("p", nodeName="n1"))
    assert (await evict(server, "p", dryRun=["All"])).status == 201
    pod = (await server.get(f"{PODS}/p")).body
    assert "conditions" not in pod["status"]
    assert "deletionTimestamp" not in pod["metadata"]


async def test_preconditions_of_an_eviction_hold_before_the_mark(server: Client) -> None:
    made = await server.post(PODS, pod_manifest("p", nodeName="n1"))
    assert (await evict(server, "p", preconditions={"uid": "other"})).status == 409
    assert (await evict(server, "p", preconditions={"resourceVersion": "1"})).status == 409
    assert "conditions" not in (await server.get(f"{PODS}/p")).body["status"]
    version = made.body["metadata"]["resourceVersion"]
    assert (await evict(server, "p", preconditions={"resourceVersion": version})).status == 201


# --- events


async def test_a_core_event_without_a_reporter_has_none_in_the_other_group(server: Client) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "x"},
        "reason": "r",
        "message": "m",
        "type": "Normal",
        "source": {"component": "c"},
    }
    await server.post("/api/v1/namespaces/default/events", event)
    core = (await server.get("/api/v1/namespaces/default/events/e")).body
    assert (core["reportingComponent"], core["reportingInstance"]) == ("", "")
    other = (await server.get("/apis/events.k8s.io/v1/namespaces/default/events/e")).body
    assert not {"reportingController", "reportingInstance"} & other.keys()


async def test_errors_of_events_name_the_core_kind(server: Client) -> None:
    event = {"metadata": {"name": "e"}, "regarding": {"namespace": "default"}}
    answer = await server.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
    assert answer.body["message"].startswith('Event "e" is invalid: ')
    assert "group" not in answer.body["details"]


# --- base64


@pytest.mark.parametrize(
    ("text", "at"), [("!!!", 0), ("YQ=", 3), ("YWJj!", 4), ("YQ==x", 4), ("YWJjZ", 4), ("Y=", 1), ("YWI=YQ==", 4)]
)
async def test_bad_base64_is_told_with_its_place(server: Client, text: str, at: int) -> None:
    answer = await server.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "data": {"a": text}})
    assert answer.status == 400
    assert answer.body["message"].endswith(f"illegal base64 data at input byte {at}")


# --- roles


async def test_errors_of_a_role_come_in_order(server: Client) -> None:
    answer = await server.post(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
        {"metadata": {"name": "r"}, "rules": [{"verbs": []}]},
    )
    assert [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]] == [
        ("rules[0].apiGroups", "Required value: resource rules must supply at least one api group"),
        ("rules[0].resources", "Required value: resource rules must supply at least one resource"),
        ("rules[0].verbs", "Required value"),
    ]


async def test_the_role_of_a_binding_cannot_be_changed(server: Client) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}],
    }
    await server.post(path, binding)
    answer = await server.patch(f"{path}/b", {"roleRef": {"name": "other"}})
    value = '{"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"other"}'
    assert answer.body["message"].endswith(f"roleRef: Invalid value: {value}: field is immutable")


# --- workloads


async def test_a_job_without_labels_has_those_of_its_pods(server: Client) -> None:
    made = (await server.post(JOBS, a_job())).body
    assert made["metadata"]["labels"] == made["spec"]["template"]["metadata"]["labels"]
    assert made["metadata"]["labels"]["job-name"] == "j"
    own = (await server.post(JOBS, a_job("k", labels={"mine": "yes"}))).body
    assert own["metadata"]["labels"] == {"mine": "yes"}


async def test_a_deleted_job_keeps_its_pods_unless_told_otherwise(server: Client) -> None:
    await server.post(JOBS, a_job())
    deleted = await server.send("DELETE", f"{JOBS}/j")
    assert deleted.body["metadata"]["finalizers"] == ["orphan"]
    assert "child pods are preserved by default" in str(deleted.warnings)
    await server.post(JOBS, a_job("k"))
    deleted = await server.send("DELETE", f"{JOBS}/k?propagationPolicy=Background")
    assert deleted.body["status"] == "Success"
    assert "child pods" not in str(deleted.warnings)


async def test_a_job_must_say_when_its_pods_restart(server: Client) -> None:
    job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}
    answer = await server.post(JOBS, job)
    expected = 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    assert answer.body["message"].endswith(expected)


async def test_a_daemon_set_counts_the_changes_of_its_template(server: Client) -> None:
    path, key = "/apis/apps/v1/namespaces/default/daemonsets", "deprecated.daemonset.template.generation"
    made = (await server.post(path, {"metadata": {"name": "d"}, "spec": SELECTED})).body
    assert made["metadata"]["annotations"] == {key: "1"}
    assert made["status"] == {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }
    changed = await server.patch(f"{path}/d", {"metadata": {"annotations": {"x": "y", key: "7"}}})
    assert changed.body["metadata"]["annotations"] == {key: "1", "x": "y"}
    template = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
    changed = await server.patch(f"{path}/d", {"spec": {"template": template}})
    assert changed.body["metadata"]["annotations"][key] == "2"


async def test_a_stateful_set_updates_one_pod_at_a_time(server: Client) -> None:
    path = "/apis/apps/v1/namespaces/default/statefulsets"
    made = (await server.post(path, {"metadata": {"name": "s"}, "spec": {"serviceName": "x", **SELECTED}})).body
    assert made["spec"]["updateStrategy"]["rollingUpdate"] == {"partition": 0, "maxUnavailable": 1}


async def test_a_disruption_budget_starts_with_numbers(server: Client) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    made = (await server.post(path, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1}})).body
    assert made["status"] == {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


MISMATCH = "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`"


@pytest.mark.parametrize(
    ("path", "problems"),
    [
        ("/apis/apps/v1/namespaces/default/deployments", ["spec.selector: Required value", MISMATCH]),
        ("/apis/apps/v1/namespaces/default/statefulsets", ["spec.selector: Required value", MISMATCH]),
        ("/apis/apps/v1/namespaces/default/daemonsets", [MISMATCH]),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            [
                "spec.jobTemplate.spec.template.spec.containers: Required value",
                "spec.jobTemplate.spec.template.spec.restartPolicy: Required value",
                "spec.schedule: Required value",
            ],
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            [
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value",
            ],
        ),
        ("/apis/storage.k8s.io/v1/storageclasses", ["provisioner: Required value"]),
        ("/apis/node.k8s.io/v1/runtimeclasses", ["handler: Required value"]),
        ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", ["addressType: Required value"]),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            [
                "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
                "spec.scaleTargetRef.kind: Required value",
                "spec.scaleTargetRef.name: Required value",
                'spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group',
                "spec.maxReplicas: Required value",
            ],
        ),
    ],
)
async def test_an_object_that_says_nothing_is_refused(server: Client, path: str, problems: list[str]) -> None:
    answer = await server.post(path, {"metadata": {"name": "z"}})
    assert answer.status == 422
    places = [answer.body["message"].index(problem) for problem in problems]
    assert places == sorted(places)


async def test_a_limit_range_without_a_name_is_named(server: Client) -> None:
    limits = {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}
    path = "/api/v1/namespaces/default/limitranges"
    answer = await server.post(path, {"apiVersion": "v1", "kind": "LimitRange", "spec": limits})
    assert answer.status == 201, answer.body
    assert uuid.UUID(answer.body["metadata"]["name"])
    refused = await server.post("/api/v1/namespaces/default/configmaps", {"apiVersion": "v1", "kind": "ConfigMap"})
    assert "name or generateName is required" in refused.body["message"]


async def test_defaults_of_a_csi_driver(server: Client) -> None:
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "x"}, "spec": {}}
    answer = await server.post("/apis/storage.k8s.io/v1/csidrivers", driver)
    assert answer.body["spec"]["preventPodSchedulingIfMissing"] is False


BINDING = {"spec": {"policyName": "p", "validationActions": ["Deny"]}}
MUTATION = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
CONSTRAINTS = {
    "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]
}
ADMISSION_KINDS = {
    "v1/validatingwebhookconfigurations": {"webhooks": []},
    "v1/mutatingwebhookconfigurations": {"webhooks": []},
    "v1/validatingadmissionpolicies": {
        "spec": {"matchConstraints": CONSTRAINTS, "validations": [{"expression": "true"}]}
    },
    "v1/validatingadmissionpolicybindings": BINDING,
    "v1/mutatingadmissionpolicies": {
        "spec": {"matchConstraints": CONSTRAINTS, "reinvocationPolicy": "Never", "mutations": [MUTATION]}
    },
    "v1/mutatingadmissionpolicybindings": {"spec": {"policyName": "p"}},
}
API_SERVICE = {
    "metadata": {"name": "v1.x.example"},
    "spec": {"group": "x.example", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100},
}


@pytest.mark.parametrize(
    ("path", "manifest"),
    [
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"spec": {"minAvailable": 1}}),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {"spec": {"holderIdentity": "me"}}),
        *((f"/apis/admissionregistration.k8s.io/{path}", manifest) for path, manifest in ADMISSION_KINDS.items()),
        ("/apis/apiregistration.k8s.io/v1/apiservices", API_SERVICE),
    ],
)
async def test_a_put_of_these_kinds_names_the_revision(server: Client, path: str, manifest: dict[str, Any]) -> None:
    body = {"metadata": {"name": "x"}, **manifest}
    here = f"{path}/{body['metadata']['name']}"
    made = await server.post(path, body)
    assert made.status == 201, made.body
    refused = await server.send("PUT", here, body)
    problem = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    assert (refused.status, problem in refused.body["message"]) == (422, True)
    assert (await server.send("PUT", here, made.body)).status == 200
    assert (await server.patch(here, {"metadata": {"labels": {"a": "b"}}})).status == 200


async def test_a_group_without_a_service_is_available(server: Client) -> None:
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    made = await server.post(path, API_SERVICE)
    (condition,) = made.body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Available", "True", "Local")
    remote = {**API_SERVICE["spec"], "group": "y.example", "service": {"namespace": "n", "name": "s"}}
    made = await server.post(path, {"metadata": {"name": "v1.y.example"}, "spec": remote})
    assert made.body["status"] == {}


DEPLOYMENT_PATH = "/apis/apps/v1/namespaces/default/deployments"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


async def test_annotations_of_deployments_and_labels_of_endpoint_slices_count(server: Client) -> None:
    both = {"labels": {"l": "1"}}, {"annotations": {"a": "1"}}
    await server.post(DEPLOYMENT_PATH, {"metadata": {"name": "x"}, "spec": SELECTED})
    await server.post(SLICES, {"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": []})
    counted = {
        path: [(await server.patch(f"{path}/x", {"metadata": each})).body["metadata"]["generation"] for each in both]
        for path in (DEPLOYMENT_PATH, SLICES)
    }
    assert counted == {DEPLOYMENT_PATH: [1, 2], SLICES: [2, 2]}


async def test_a_status_does_not_bring_labels(server: Client) -> None:
    await server.post(DEPLOYMENT_PATH, {"metadata": {"name": "x"}, "spec": SELECTED})
    both = {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}}
    seen = (await server.patch(f"{DEPLOYMENT_PATH}/x/status", both)).body["metadata"]
    assert (seen.get("labels"), seen["annotations"], seen["generation"]) == (None, {"a": "1"}, 1)
    ranges = "/apis/networking.k8s.io/v1/servicecidrs"
    await server.post(ranges, {"metadata": {"name": "x"}, "spec": {"cidrs": ["10.200.0.0/16"]}})
    seen = (await server.patch(f"{ranges}/x/status", both)).body["metadata"]
    assert (seen.get("labels"), seen.get("annotations")) == (None, None)


async def test_a_volume_says_since_when_it_is_in_its_phase(server: Client) -> None:
    path = "/api/v1/persistentvolumes"
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    made = await server.post(path, {"metadata": {"name": "x"}, "spec": spec})
    assert made.body["status"] == {
        "phase": "Pending",
        "lastPhaseTransitionTime": made.body["metadata"]["creationTimestamp"],
    }
    since = {"phase": "Pending", "lastPhaseTransitionTime": "2024-01-01T00:00:00Z"}
    assert (await server.patch(f"{path}/x/status", {"status": since})).body["status"] == since
    moved = (await server.patch(f"{path}/x/status", {"status": {"phase": "Available"}})).body["status"]
    assert moved["lastPhaseTransitionTime"] > since["lastPhaseTransitionTime"]


async def test_endpoints_are_deprecated(server: Client) -> None:
    listed = await server.get("/api/v1/endpoints")
    assert listed.warnings == ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def test_cells_of_nodes_and_of_kinds_without_columns(server: Client) -> None:
    info = {"kernelVersion": "6.1", "architecture": "amd64"}
    await server.post("/api/v1/nodes", {"metadata": {"name": "x"}, "status": {"nodeInfo": info}})
    (row,) = (await server.get("/api/v1/nodes", accept=TABLE)).body["rows"]
    assert row["cells"][8] == "6.1 (amd64)"
    capacities = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
    made = await server.post(capacities, {"metadata": {"name": "x"}, "storageClassName": "s"})
    table = (await server.get(capacities, accept=TABLE)).body
    assert [(column["name"], column["type"]) for column in table["columnDefinitions"]] == [
        ("Name", "string"),
        ("Created At", "date"),
    ]
    assert table["rows"][0]["cells"] == ["x", made.body["metadata"]["creationTimestamp"]]


IP_ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
A_SERVICE = {"group": "", "resource": "services", "namespace": "default", "name": "s"}


@pytest.mark.parametrize(
    ("parent", "problem"),
    [
        (None, "spec.parentRef: Required value"),
        ({}, "[spec.parentRef.resource: Required value, spec.parentRef.name: Required value]"),
        ({**A_SERVICE, "group": "A_"}, 'spec.parentRef.group: Invalid value: "A_": a lowercase RFC 1123 subdomain'),
        ({**A_SERVICE, "name": "a/b"}, "spec.parentRef.name: Invalid value: \"a/b\": may not contain '/'"),
    ],
)
async def test_an_address_belongs_to_an_object(server: Client, parent: Any, problem: str) -> None:
    refused = await server.post(IP_ADDRESSES, {"metadata": {"name": "10.0.0.77"}, "spec": {"parentRef": parent}})
    assert (refused.status, problem in refused.body["message"]) == (422, True), refused.body


async def test_an_address_stays_with_its_object(server: Client) -> None:
    made = await server.post(IP_ADDRESSES, {"metadata": {"name": "10.0.0.77"}, "spec": {"parentRef": A_SERVICE}})
    assert made.status == 201, made.body
    refused = await server.patch(f"{IP_ADDRESSES}/10.0.0.77", {"spec": {"parentRef": {"name": "other"}}})
    assert "spec.parentRef: Invalid value: null: field is immutable" in refused.body["message"]


async def test_a_range_gets_a_second_family_and_does_not_change(server: Client) -> None:
    path, first, second = "/apis/networking.k8s.io/v1/servicecidrs", "10.200.0.0/16", "2001:db8::/112"
    await server.post(path, {"metadata": {"name": "x"}, "spec": {"cidrs": [first]}})
    refused = await server.patch(f"{path}/x", {"spec": {"cidrs": ["10.201.0.0/16"]}})
    assert 'spec.cidrs[0]: Invalid value: "10.201.0.0/16": field is immutable' in refused.body["message"]
    assert (await server.patch(f"{path}/x", {"spec": {"cidrs": [first, second]}})).status == 200
    refused = await server.patch(f"{path}/x", {"spec": {"cidrs": [first]}})
    assert f'spec.cidrs: Invalid value: ["{first}"]: field is immutable' in refused.body["message"]


async def test_budgets_and_certificate_requests_have_any_name(server: Client) -> None:
    budget = {"metadata": {"name": "Any_Name"}, "spec": {"minAvailable": 1}}
    assert (await server.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)).status == 201


async def test_definitions_have_columns(server: Client) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": "foos", "singular": "foo", "kind": "Foo", "shortNames": ["fo"]}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    made = await server.post(path, {"metadata": {"name": "foos.example.com"}, "spec": spec})
    table = (await server.get(path, accept=TABLE)).body
    wanted = ["Name", "Scope", "Versions", "Created At", "Group", "Kind", "ShortNames", "Established"]
    assert [column["name"] for column in table["columnDefinitions"]] == wanted
    created = made.body["metadata"]["creationTimestamp"]
    shown = ["foos.example.com", "Namespaced", "v1(storage)", created, "example.com", "Foo", "fo"]
    assert table["rows"][0]["cells"][:-1] == shown


async def test_nobody_owns_labels_by_way_of_a_status(server: Client) -> None:
    await server.post(DEPLOYMENT_PATH, {"metadata": {"name": "x"}, "spec": SELECTED})
    both = {"metadata": {"labels": {"l": "1"}}, "status": {"observedGeneration": 1}}
    seen = (await server.patch(f"{DEPLOYMENT_PATH}/x/status", both)).body["metadata"]
    (entry,) = (entry for entry in seen["managedFields"] if entry.get("subresource") == "status")
    assert entry["fieldsV1"] == {"f:status": {"f:observedGeneration": {}}}


CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
OTHER_SOURCE = {"apiGroup": "x.example", "kind": "Image", "name": "i"}


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ({"dataSource": SNAPSHOT}, {"dataSource": SNAPSHOT, "dataSourceRef": SNAPSHOT}),
        ({"dataSourceRef": OTHER_SOURCE}, {"dataSource": OTHER_SOURCE, "dataSourceRef": OTHER_SOURCE}),
        ({"dataSource": OTHER_SOURCE}, {}),
        ({"dataSourceRef": {**SNAPSHOT, "namespace": "n"}}, {"dataSourceRef": {**SNAPSHOT, "namespace": "n"}}),
        ({}, {}),
    ],
)
async def test_both_fields_of_a_claim_name_its_source(
    server: Client, sent: dict[str, Any], stored: dict[str, Any]
) -> None:
    claim = {"metadata": {"name": "c"}, "spec": {**CLAIM_SPEC, **sent}}
    made = await server.post(CLAIMS, claim)
    assert made.status == 201, made.body
    assert {key: value for key, value in made.body["spec"].items() if key.startswith("dataSource")} == stored
    replaced = await server.send("PUT", f"{CLAIMS}/c", {**claim, "metadata": {"name": "c", "labels": {"a": "b"}}})
    assert replaced.status == 200, replaced.body
    assert replaced.body["spec"] == made.body["spec"]


@pytest.mark.parametrize(
    ("sent", "problems"),
    [
        (
            {"dataSourceRef": {"kind": "Foo", "name": ""}},
            [
                f"spec.{field}{problem}"
                for field in ("dataSource", "dataSourceRef")
                for problem in (
                    ".name: Required value",
                    ": Invalid value: \"Foo\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
                )
            ],
        ),
        (
            {"dataSource": SNAPSHOT, "dataSourceRef": OTHER_SOURCE},
            ["spec: Invalid value: {}: must match dataSourceRef"],
        ),
        (
            {"dataSource": SNAPSHOT, "dataSourceRef": {**SNAPSHOT, "namespace": "n"}},
            ["spec: Invalid value: {}: may not be specified when dataSourceRef.namespace is specified"],
        ),
    ],
)
async def test_sources_that_contradict_each_other(server: Client, sent: dict[str, Any], problems: list[str]) -> None:
    refused = await server.post(CLAIMS, {"metadata": {"name": "c"}, "spec": {**CLAIM_SPEC, **sent}})
    found = [f"{each['field']}: {each['message']}" for each in refused.body["details"]["causes"]]
    assert (refused.status, found) == (422, problems)


async def test_the_attributes_class_of_a_volume(server: Client) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    volume = {"metadata": {"name": "v"}, "spec": {**spec, "volumeAttributesClassName": ""}}
    refused = await server.post("/api/v1/persistentvolumes", volume)
    assert "spec.volumeAttributesClassName: Required value: an empty string is disallowed" in refused.body["message"]
    assert "spec.csi: Required value: has to be specified when using volume" in refused.body["message"]
