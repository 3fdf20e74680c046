"""What each kind does with a write: generation, status, finalizers, grace, subresources."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apiserver import manifests
from tests.apiserver.conftest import CLAIMS, Client, gold_claim
from tests.builders.manifests import a_class, a_slice

PODS = "/api/v1/namespaces/default/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"


async def created_pod(server: Client, name: str = "p", **spec: Any) -> dict[str, Any]:
    await server.post("/api/v1/namespaces/default/serviceaccounts", manifests.service_account())
    answer = await server.post(PODS, manifests.pod(name, **spec))
    assert answer.status == 201, answer.body
    found: dict[str, Any] = answer.body
    return found


async def test_generation_follows_the_spec(server: Client) -> None:
    await server.post(SLICES, manifests.resource_slice("s"))
    labelled = await server.patch(f"{SLICES}/s", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.body["metadata"]["generation"] == 1
    changed = await server.patch(f"{SLICES}/s", {"spec": {"pool": {"generation": 2}}})
    assert changed.body["metadata"]["generation"] == 2
    classes = "/apis/resource.k8s.io/v1/deviceclasses"
    await server.post(classes, a_class("c"))
    changed = await server.patch(f"{classes}/c", {"spec": {"selectors": None}})
    assert changed.body["metadata"]["generation"] == 2


async def test_empty_lists_of_a_slice_count_as_set_and_are_not_stored(server: Client) -> None:
    document = manifests.resource_slice("s")
    document["spec"]["devices"] = []
    made = await server.post(SLICES, document)
    assert made.status == 201
    assert "devices" not in made.body["spec"]
    assert "f:devices" not in made.body["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
    document["metadata"]["name"], document["spec"]["sharedCounters"] = "t", []
    refused = await server.post(SLICES, document)
    assert [cause["field"] for cause in refused.body["details"]["causes"]] == ["spec"]


async def test_an_empty_quantity_is_none(server: Client) -> None:
    document = manifests.resource_slice("s")
    document["spec"]["devices"][0]["capacity"]["memory"]["value"] = ""
    refused = await server.post(SLICES, document)
    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")
    assert "quantities must match the regular expression" in refused.body["message"]


async def test_a_rule_must_be_updated_with_its_revision(server: Client) -> None:
    made = (await server.post(RULES, manifests.taint_rule("r"))).body
    revision = made["metadata"].pop("resourceVersion")
    refused = await server.send("PUT", f"{RULES}/r", made)
    assert refused.status == 422
    assert refused.body["message"] == (
        'devicetaintrules.resource.k8s.io "r" is invalid: metadata.resourceVersion: Invalid value: 0: '
        "must be specified for an update"
    )
    made["metadata"]["resourceVersion"] = revision
    assert (await server.send("PUT", f"{RULES}/r", made)).status == 200
    gone = await server.send("DELETE", f"{RULES}/r")
    assert (gone.body["kind"], gone.body["status"]) == ("Status", "Success")


async def test_the_effect_of_a_rule_counts_from_its_change(server: Client) -> None:
    document = manifests.taint_rule("r")
    document["spec"]["taint"]["timeAdded"] = "2020-01-01T00:00:00Z"
    await server.post(RULES, document)
    changed = await server.patch(f"{RULES}/r", {"spec": {"taint": {"effect": "NoExecute"}}})
    assert changed.body["spec"]["taint"]["timeAdded"] > "2024"


async def test_generated_names(server: Client) -> None:
    body = gold_claim()
    body["metadata"] = {"generateName": "g" * 70}
    answer = await server.post(CLAIMS, body)
    name = answer.body["metadata"]["name"]
    assert len(name) == 63
    assert set(name[58:]) <= set("bcdfghjklmnpqrstvwxz2456789")


async def test_a_generated_name_that_is_taken_is_drawn_again(server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {**gold_claim(), "metadata": {"generateName": "g-"}}
    drawn = iter(["aaaaa", "aaaaa", "aaaaa", "bbbbb", *["bbbbb"] * 8])
    monkeypatch.setattr(server.core, "new_name_suffix", lambda: next(drawn))
    names = [(await server.post(CLAIMS, body)).body["metadata"]["name"] for _ in range(2)]
    assert names == ["g-aaaaa", "g-bbbbb"]
    refused = await server.post(CLAIMS, body)
    assert (refused.status, refused.headers["retry-after"]) == (409, "1")
    assert refused.body["message"].endswith("the server was not able to generate a unique name for the object")
    assert list(drawn) == []


async def test_a_dry_run_stores_nothing(server: Client) -> None:
    answer = await server.post(f"{CLAIMS}?dryRun=All", gold_claim("d"))
    assert answer.status == 201
    assert "resourceVersion" not in answer.body["metadata"]
    assert (await server.get(f"{CLAIMS}/d")).status == 404
    await server.post(CLAIMS, gold_claim("d"))
    assert (await server.send("DELETE", f"{CLAIMS}/d?dryRun=All")).status == 200
    assert (await server.get(f"{CLAIMS}/d")).status == 200
    refused = await server.post(f"{CLAIMS}?dryRun=Some", gold_claim("e"))
    assert (refused.status, refused.body["details"]["kind"]) == (422, "CreateOptions")


async def test_finalizers_hold_an_object(server: Client) -> None:
    await server.post(CLAIMS, gold_claim("f", finalizers=["example.com/hold"]))
    waiting = await server.send("DELETE", f"{CLAIMS}/f")
    assert waiting.body["metadata"]["deletionGracePeriodSeconds"] == 0
    again = await server.post(CLAIMS, gold_claim("f"))
    assert again.body["message"].startswith("object is being deleted: ")
    released = await server.patch(f"{CLAIMS}/f", {"metadata": {"finalizers": None}})
    assert released.status == 200
    assert (await server.get(f"{CLAIMS}/f")).status == 404


async def test_pods_go_slowly_once_they_have_a_node(server: Client) -> None:
    await created_pod(server, nodeName="n1")
    going = await server.send("DELETE", f"{PODS}/p")
    assert going.body["metadata"]["deletionGracePeriodSeconds"] == 30
    longer = await server.send("DELETE", f"{PODS}/p?gracePeriodSeconds=60")
    assert longer.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await server.send("DELETE", f"{PODS}/p?gracePeriodSeconds=0")).status == 200
    assert (await server.get(f"{PODS}/p")).status == 404


@pytest.mark.parametrize("grace_s", [10**12, 2**62])
async def test_a_pod_may_have_longer_to_end_than_a_timestamp_can_tell(server: Client, grace_s: int) -> None:
    await created_pod(server, nodeName="n1", terminationGracePeriodSeconds=grace_s)
    going = await server.send("DELETE", f"{PODS}/p")
    assert going.status == 200
    assert going.body["metadata"]["deletionGracePeriodSeconds"] == grace_s
    assert going.body["metadata"]["deletionTimestamp"] == "9999-12-31T23:59:59Z"
    sooner = await server.send("DELETE", f"{PODS}/p?gracePeriodSeconds={grace_s - 1}")
    assert sooner.body["metadata"]["deletionGracePeriodSeconds"] == grace_s - 1
    assert (await server.send("DELETE", f"{PODS}/p?gracePeriodSeconds=0")).status == 200


async def test_many_patches_of_one_object_at_once_are_all_made(server: Client) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    await server.post(maps, {"metadata": {"name": "m"}})
    patches = [server.patch(f"{maps}/m", {"data": {f"k{number}": "v"}}) for number in range(40)]
    answers = await asyncio.gather(*patches)
    assert {answer.status for answer in answers} == {200}
    assert len((await server.get(f"{maps}/m")).body["data"]) == 40


async def test_a_negative_grace_means_one_second(server: Client) -> None:
    await created_pod(server, nodeName="n1")
    going = await server.send("DELETE", f"{PODS}/p?gracePeriodSeconds=-5")
    assert going.body["metadata"]["deletionGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schedulingGates": [{"name": "g"}]}, "pod p has non-empty .spec.schedulingGates"),
        ({"nodeName": "n1"}, 'pod p is already assigned to node "n1"'),
    ],
)
async def test_pods_that_cannot_be_bound(server: Client, change: dict[str, Any], why: str) -> None:
    await created_pod(server, **change)
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n2"}}
    refused = await server.post(f"{PODS}/p/binding", binding)
    assert (refused.status, refused.body["details"]["kind"]) == (409, "pods/binding")
    assert refused.body["message"].endswith(why)


async def test_binding_brings_labels_and_annotations(server: Client) -> None:
    await created_pod(server)
    metadata = {"name": "p", "labels": {"zone": "z"}, "annotations": {"a": "b"}}
    answer = await server.post(f"{PODS}/p/binding", {"metadata": metadata, "target": {"name": "n1"}})
    assert answer.status == 201
    pod = (await server.get(f"{PODS}/p")).body
    assert (pod["metadata"]["labels"], pod["metadata"]["annotations"]) == ({"zone": "z"}, {"a": "b"})
    assert pod["status"]["conditions"][0]["type"] == "PodScheduled"


async def test_the_old_path_of_bindings(server: Client) -> None:
    await created_pod(server)
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    assert (await server.post("/api/v1/namespaces/default/bindings", body)).status == 201
    assert (await server.get(f"{PODS}/p")).body["spec"]["nodeName"] == "n1"


async def test_claim_lists_of_a_pod_status(server: Client) -> None:
    await created_pod(server)
    entries = [{"name": "gpu", "resourceClaimName": "x"}]
    await server.patch(f"{PODS}/p/status", {"status": {"resourceClaimStatuses": entries}})
    pod = (await server.get(f"{PODS}/p")).body
    del pod["status"]["resourceClaimStatuses"]
    kept = await server.send("PUT", f"{PODS}/p/status", pod)
    assert kept.body["status"]["resourceClaimStatuses"] == entries
    kept.body["status"]["resourceClaimStatuses"] = []
    cleared = await server.send("PUT", f"{PODS}/p/status", kept.body)
    assert "resourceClaimStatuses" not in cleared.body["status"]


async def test_eviction_respects_budgets(server: Client) -> None:
    await created_pod(server, nodeName="n1")
    await server.patch(f"{PODS}/p", {"metadata": {"labels": {"app": "a"}}})
    await server.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    assert (await server.post(budgets, {"metadata": {"name": "b"}, "spec": spec})).status == 201
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    refused = await server.post(f"{PODS}/p/eviction", eviction)
    assert refused.status == 429
    assert refused.body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert "retry-after" in refused.headers
    status = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    await server.patch(f"{budgets}/b/status", {"status": {**status, "observedGeneration": 1}})
    assert (await server.post(f"{PODS}/p/eviction", eviction)).status == 201
    assert (await server.get(f"{PODS}/p")).body["metadata"]["deletionTimestamp"]


async def test_scale(server: Client) -> None:
    sets = "/apis/apps/v1/namespaces/default/replicasets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    assert (await server.post(sets, {"metadata": {"name": "r"}, "spec": spec})).status == 201
    scale = (await server.get(f"{sets}/r/scale")).body
    assert (scale["spec"]["replicas"], scale["status"]["selector"]) == (1, "a=b")
    scale["spec"]["replicas"] = 5
    assert (await server.send("PUT", f"{sets}/r/scale", scale)).body["spec"]["replicas"] == 5
    assert (await server.patch(f"{sets}/r/scale", {"spec": {"replicas": 2}})).body["spec"]["replicas"] == 2
    assert (await server.send("PUT", f"{sets}/r/scale", scale)).status == 409
    assert (await server.patch(f"{sets}/r/scale", {"spec": {"replicas": -1}})).status == 422
    table = (await server.get(f"{sets}/r/scale", accept="application/json;as=Table;v=v1;g=meta.k8s.io")).body
    titles = [column["name"] for column in table["columnDefinitions"]]
    (row,) = table["rows"]
    assert dict(zip(titles, row["cells"], strict=True)) == {"Name": "r", "Desired": 2, "Available": 0, "Age": "0s"}
    assert (table["kind"], row["object"]["metadata"]["name"]) == ("Table", "r")


@pytest.fixture
async def a_set(server: Client) -> str:
    """The path of a ReplicaSet with one replica."""
    sets = "/apis/apps/v1/namespaces/default/replicasets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    assert (await server.post(sets, {"metadata": {"name": "r"}, "spec": spec})).status == 201
    return f"{sets}/r"


@pytest.mark.parametrize(
    ("kind", "patch", "status"),
    [
        ("merge", [], 400),
        ("strategic-merge", 1, 400),
        ("json", 1, 400),
        ("json", [1], 400),
        ("json", [{"op": "replace", "path": "", "value": 5}], 422),
        ("json", [{"op": "replace", "path": "/metadata", "value": 5}], 422),
        ("merge", {"metadata": 5}, 422),
        ("merge", {"spec": {"replicas": True}}, 422),
        ("merge", {"spec": {"replicas": 2**31}}, 422),
        ("json", [{"op": "replace", "path": "/spec/replicas", "value": 2**40}], 422),
        ("merge", {"metadata": {"uid": "other"}}, 409),
    ],
)
async def test_a_patch_leaves_a_scale_a_scale(server: Client, a_set: str, kind: str, patch: Any, status: int) -> None:
    answer = await server.patch(f"{a_set}/scale", patch, kind)
    assert answer.status == status, answer.body
    assert (await server.get(a_set)).body["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("scale", "why"),
    [
        ([], "must be of type Scale"),
        ({"metadata": []}, "cannot be handled as a Scale"),
        ({"metadata": {"name": "other"}}, "does not match the name on the URL (r)"),
        ({"metadata": {"name": "r"}, "spec": {"replicas": 2**31}}, "ScaleSpec.spec.replicas of type int32"),
        ({"metadata": {"name": "r"}, "kind": "ReplicaSet", "apiVersion": "apps/v1"}, "cannot be handled as a Scale"),
    ],
)
async def test_what_replaces_a_scale_is_one(server: Client, a_set: str, scale: Any, why: str) -> None:
    answer = await server.send("PUT", f"{a_set}/scale", scale)
    assert (answer.status, why in answer.body["message"]) == (400, True), answer.body
    assert (await server.get(a_set)).body["spec"]["replicas"] == 1


async def test_replicas_can_be_applied_by_way_of_the_scale(server: Client, a_set: str) -> None:
    def scale(replicas: int) -> dict[str, Any]:
        kind = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
        return {**kind, "metadata": {"name": "r"}, "spec": {"replicas": replicas}}

    refused = await server.patch(f"{a_set}/scale?fieldManager=one", scale(3), "apply")
    assert (refused.status, refused.body["details"]["causes"][0]["field"]) == (409, ".spec.replicas")
    applied = await server.patch(f"{a_set}/scale?fieldManager=one&force=true", scale(3), "apply")
    assert (applied.status, applied.body["kind"], applied.body["spec"]) == (200, "Scale", {"replicas": 3})
    stored = (await server.get(a_set)).body
    assert stored["spec"]["replicas"] == 3
    owned = next(entry for entry in stored["metadata"]["managedFields"] if entry["manager"] == "one")
    assert (owned["apiVersion"], owned["operation"], owned["subresource"]) == ("apps/v1", "Apply", "scale")
    assert owned["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    again = await server.patch(f"{a_set}/scale?fieldManager=two", scale(4), "apply")
    assert 'conflict with "one" with subresource "scale"' in again.body["message"]
    assert (await server.patch(f"{a_set}/scale?fieldManager=one", scale(2**31), "apply")).status == 400


async def test_lost_updates_are_noticed(server: Client) -> None:
    """Many writers that read, change and write back: nothing is lost, and everybody who failed was told."""
    await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}, "data": {"n": "0"}})

    async def add_one() -> None:
        while True:
            document = (await server.get("/api/v1/namespaces/default/configmaps/m")).body
            document["data"]["n"] = str(int(document["data"]["n"]) + 1)
            answer = await server.send("PUT", "/api/v1/namespaces/default/configmaps/m", document)
            if answer.status == 200:
                return
            assert answer.status == 409

    await asyncio.gather(*(add_one() for _ in range(25)))
    assert (await server.get("/api/v1/namespaces/default/configmaps/m")).body["data"]["n"] == "25"


async def test_patches_do_not_lose_each_other(server: Client) -> None:
    await server.post(CLAIMS, gold_claim("c"))
    patches = (server.patch(f"{CLAIMS}/c", {"metadata": {"labels": {f"l{n}": "x"}}}) for n in range(10))
    answers = await asyncio.gather(*patches)
    assert {answer.status for answer in answers} == {200}
    assert len((await server.get(f"{CLAIMS}/c")).body["metadata"]["labels"]) == 10


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{CLAIMS}/x"),
        ("PUT", CLAIMS),
        ("DELETE", "/api/v1/namespaces"),
        ("PATCH", CLAIMS),
        ("POST", "/api/v1/pods"),
    ],
)
async def test_methods_that_a_path_does_not_have(server: Client, method: str, path: str) -> None:
    assert (await server.send(method, path, {})).status == 405


async def test_a_method_in_small_letters_is_answered(server: Client) -> None:
    """No client sends it, and nothing may break over it."""
    await server.post(CLAIMS, gold_claim("x"))
    assert (await server.send("get", f"{CLAIMS}/x/status", {})).status in (200, 405)


async def test_yaml_in_and_out(server: Client) -> None:
    text = b"metadata: {name: y1}\nspec: {devices: {requests: [{name: r, exactly: {deviceClassName: gold}}]}}\n"
    made = await server.post(CLAIMS, text, content_type="application/yaml", accept="application/yaml")
    assert (made.status, made.headers["content-type"]) == (201, "application/yaml")
    assert b"deviceClassName: gold" in made.body


async def test_a_job_finds_its_pods_by_its_uid(server: Client) -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    made = await server.post(jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})
    assert made.status == 201, made.body
    wanted = made.body["spec"]["selector"]["matchLabels"]
    assert wanted == {"batch.kubernetes.io/controller-uid": made.body["metadata"]["uid"]}
    assert wanted.items() <= made.body["spec"]["template"]["metadata"]["labels"].items()
    relabelled = await server.patch(f"{jobs}/j", {"metadata": {"labels": {"a": "b"}}})
    assert relabelled.status == 200, relabelled.body


async def test_unwise_pods_are_warned_about(server: Client) -> None:
    container = {
        "name": "c",
        "image": "i",
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "ports": [{"containerPort": 1}, {"containerPort": 1}],
        "resources": {"limits": {"memory": "100m"}},
    }
    expected = [
        'nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead',
        'containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be an integer',
        'containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, must be an integer',
        'containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply',
        "containers[0].ports[1]: duplicate port definition with {}.containers[0].ports[0]",
        "terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
    ]
    spec = {
        "containers": [container],
        "nodeSelector": {"beta.kubernetes.io/os": "linux"},
        "terminationGracePeriodSeconds": -1,
    }
    await server.post("/api/v1/namespaces/default/serviceaccounts", manifests.service_account())
    made = await server.post(PODS, {"metadata": {"name": "p"}, "spec": spec})
    assert made.warnings == [f"spec.{text}".format("spec") for text in expected], made.body
    assert not (await server.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})).warnings
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    deployed = await server.post("/apis/apps/v1/namespaces/default/deployments", deployment)
    place = "spec.template.spec"
    assert [text for text in deployed.warnings if "requests" not in text] == [
        f"{place}.{text}".format(place) for text in expected if "requests" not in text
    ]


async def test_an_owner_named_twice_counts_once(server: Client) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    made = await server.post(CLAIMS, gold_claim("c", ownerReferences=[owner, owner]))
    assert made.body["metadata"]["ownerReferences"] == [owner]
    assert made.warnings[0].endswith("please fix your requests; duplicate UID(s) observed: u")
    patch = [{"op": "add", "path": "/metadata/ownerReferences/-", "value": owner}]
    patched = await server.patch(f"{CLAIMS}/c", patch, "json")
    assert patched.body["metadata"]["ownerReferences"] == [owner]
    assert patched.body["metadata"]["resourceVersion"] == made.body["metadata"]["resourceVersion"]
    assert len(patched.warnings) == 1


async def test_text_of_a_secret_comes_back_as_data(server: Client) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "data": {"a": "MQ==", "b": "MQ=="}}
    made = (await server.post(secrets, {**secret, "stringData": {"b": "zwei"}})).body
    assert made["data"] == {"a": "MQ==", "b": "endlaQ=="}
    assert "stringData" not in made
    patched = (await server.patch(f"{secrets}/s", {"stringData": {"a": "eins"}})).body
    assert patched["data"] == {"a": "ZWlucw==", "b": "endlaQ=="}


async def test_a_namespace_with_a_generated_name_wears_it_as_a_label(server: Client) -> None:
    made = await server.post("/api/v1/namespaces", {"metadata": {"generateName": "team-"}})
    metadata = made.body["metadata"]
    assert metadata["labels"] == {"kubernetes.io/metadata.name": metadata["name"]}


async def test_an_update_with_a_value_of_another_type_is_refused_although_python_calls_it_equal(server: Client) -> None:
    made = (await server.post(CLAIMS, gold_claim())).body
    request = made["spec"]["devices"]["requests"][0]["exactly"]
    assert request["count"] == 1
    request["count"] = True
    refused = await server.send("PUT", f"{CLAIMS}/c", made)
    assert (refused.status, "cannot unmarshal bool" in refused.body["message"]) == (400, True)


async def test_an_update_that_leaves_the_spec_alone_keeps_it_and_names_unknown_fields(server: Client) -> None:
    made = (await server.post(CLAIMS, gold_claim())).body
    made["metadata"]["labels"] = {"a": "b"}
    made["surprise"] = 1
    changed = await server.send("PUT", f"{CLAIMS}/c", made)
    assert (changed.status, changed.body["metadata"]["labels"]) == (200, {"a": "b"})
    assert changed.body["spec"] == made["spec"]
    assert any("surprise" in warning for warning in changed.warnings)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b"{bad",
            "couldn't get version/kind; json parse error: invalid character 'b' looking for beginning of object key",
        ),
        (b'{"kind":"Pod","apiVersion":"v1"}', "decoded object cannot be converted to DeleteOptions"),
    ],
)
async def test_a_deletion_with_options_that_are_none(server: Client, body: bytes, expected: str) -> None:
    await server.post(CLAIMS, gold_claim("c"))
    refused = await server.send("DELETE", f"{CLAIMS}/c", body)
    assert refused.status == 400
    assert refused.body["message"].startswith(expected)
    assert (await server.get(f"{CLAIMS}/c")).status == 200


async def test_fields_by_their_oldest_names_come_back_by_their_own(server: Client) -> None:
    device = {"name": "d", "nativeResourceMappings": {"cpu": {"quantityFrom": {"perInstanceQuantity": "2"}}}}
    slices, classes = "/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1/deviceclasses"
    assert (await server.post(slices, a_slice("s", device))).status == 201
    stored = (await server.get(f"{slices}/s")).body["spec"]["devices"]
    assert stored == [{"name": "d", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}]
    assert (await server.post(classes, a_class("c", "", managesNativeResources=True))).status == 201
    assert (await server.get(f"{classes}/c")).body["spec"] == {"managesNodeAllocatableResources": True}
    await created_pod(server, resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}])
    charge = {"claimInfo": {"name": "c"}, "containers": ["main"], "resources": [{"resourceName": "cpu", "quantity": 2}]}
    answer = await server.patch(f"{PODS}/p/status", {"status": {"nativeResourceClaimStatus": [charge]}})
    assert answer.status == 200, answer.body
    status = (await server.get(f"{PODS}/p")).body["status"]
    assert status["nodeAllocatableResourceClaimStatuses"] == [
        {"resourceClaimName": "c", "containers": ["main"], "resources": {"cpu": "2"}}
    ]
    assert "nativeResourceClaimStatus" not in status


async def test_requests_about_claims_are_counted(server: Client) -> None:
    await server.post(CLAIMS, gold_claim("counted"))
    await server.get(f"{CLAIMS}/counted")
    await server.patch(f"{CLAIMS}/counted/status", {"status": {}})
    text = (await server.get("/metrics")).body.decode()
    base = 'group="resource.k8s.io",version="v1",resource="resourceclaims"'
    for verb, subresource, scope, code in (
        ("POST", "", "namespace", 201),
        ("GET", "", "resource", 200),
        ("PATCH", "status", "resource", 200),
    ):
        labels = f'{base},subresource="{subresource}",scope="{scope}"'
        assert f'apiserver_request_total{{verb="{verb}",{labels},code="{code}"}} 1' in text
        assert f'apiserver_request_duration_seconds_count{{verb="{verb}",{labels}}} 1' in text
