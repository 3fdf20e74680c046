import copy

import pytest

from dray.api.defaults import apply_defaults, refresh_taint_time

NOW = "2026-11-15T09:00:00Z"
V1 = "resource.k8s.io/v1"


def defaulted(document: dict) -> dict:
    before = copy.deepcopy(document)
    made = apply_defaults(document, NOW)
    assert document == before, "the input must stay as it was"
    assert apply_defaults(made, "later") == made, "filling in twice changes nothing"
    return made


def request_of(request: dict, api_version: str = V1) -> dict:
    claim = {"apiVersion": api_version, "kind": "ResourceClaim", "spec": {"devices": {"requests": [request]}}}
    return defaulted(claim)["spec"]["devices"]["requests"][0]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        ({}, {"allocationMode": "ExactCount", "count": 1}),
        ({"count": 0}, {"allocationMode": "ExactCount", "count": 1}),
        ({"count": 3}, {"allocationMode": "ExactCount", "count": 3}),
        ({"allocationMode": "All"}, {"allocationMode": "All"}),
        ({"allocationMode": "Other"}, {"allocationMode": "Other"}),
    ],
)
def test_requests_ask_for_one_device(ask, expected):
    assert request_of({"name": "a", "exactly": ask})["exactly"] == expected
    assert request_of({"name": "a", "firstAvailable": [ask]})["firstAvailable"] == [expected]


def test_v1beta1_fills_in_only_with_a_class():
    old = "resource.k8s.io/v1beta1"
    assert request_of({"name": "a", "deviceClassName": "gpu"}, old)["count"] == 1
    assert "count" not in request_of({"name": "a", "deviceClassName": "", "selectors": []}, old)


def test_tolerations_compare_by_default():
    made = request_of({"name": "a", "exactly": {"tolerations": [{"key": "k"}, {"key": "l", "operator": "Exists"}]}})
    assert [t["operator"] for t in made["exactly"]["tolerations"]] == ["Equal", "Exists"]
    claim = {
        "apiVersion": V1,
        "kind": "ResourceClaim",
        "status": {"allocation": {"devices": {"results": [{"tolerations": [{"key": "k"}]}]}}},
    }
    results = defaulted(claim)["status"]["allocation"]["devices"]["results"]
    assert results[0]["tolerations"][0]["operator"] == "Equal"


def test_taints_get_their_time():
    document = {"apiVersion": V1, "kind": "ResourceSlice", "spec": {"devices": [{"taints": [{}, {"timeAdded": "t"}]}]}}
    taints = defaulted(document)["spec"]["devices"][0]["taints"]
    assert [taint["timeAdded"] for taint in taints] == [NOW, "t"]
    rule = {"apiVersion": V1, "kind": "DeviceTaintRule", "spec": {"taint": {"key": "k", "effect": "NoExecute"}}}
    assert defaulted(rule)["spec"]["taint"]["timeAdded"] == NOW


def test_a_changed_effect_refreshes_the_time():
    old = {"spec": {"taint": {"effect": "NoSchedule", "timeAdded": "then"}}}
    new = {"spec": {"taint": {"effect": "NoExecute", "timeAdded": "then"}}}
    assert refresh_taint_time(new, old, NOW)["spec"]["taint"]["timeAdded"] == NOW
    assert refresh_taint_time(old, old, NOW) is old


def test_small_kinds():
    assert defaulted({"kind": "Namespace", "metadata": {"name": "a"}})["metadata"]["labels"] == {
        "kubernetes.io/metadata.name": "a"
    }
    assert defaulted({"kind": "Node", "status": {"capacity": {"cpu": "4"}}})["status"]["allocatable"] == {"cpu": "4"}
    assert defaulted({"kind": "Secret"})["type"] == "Opaque"
    assert defaulted({"kind": "ResourcePoolStatusRequest", "spec": {}})["spec"]["limit"] == 100
    binding = defaulted({"kind": "RoleBinding", "subjects": [{"kind": "User", "name": "u"}], "roleRef": {"name": "r"}})
    assert binding["roleRef"]["apiGroup"] == binding["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"


class TestPods:
    def pod(self, **spec: object) -> dict:
        return defaulted({"apiVersion": "v1", "kind": "Pod", "spec": spec})["spec"]

    def test_the_usual_defaults(self):
        spec = self.pod(containers=[{"name": "c", "image": "app"}])
        assert spec["restartPolicy"] == "Always"
        assert spec["schedulerName"] == "default-scheduler"
        assert spec["terminationGracePeriodSeconds"] == 30
        assert spec["containers"][0]["imagePullPolicy"] == "Always"
        assert spec["containers"][0]["terminationMessagePath"] == "/dev/termination-log"

    @pytest.mark.parametrize(
        ("image", "policy"),
        [
            ("app", "Always"),
            ("app:latest", "Always"),
            ("app:1", "IfNotPresent"),
            ("host:5000/app", "Always"),
            ("host:5000/app:2", "IfNotPresent"),
            ("app@sha256:abc", "IfNotPresent"),
        ],
    )
    def test_images(self, image, policy):
        assert self.pod(containers=[{"image": image}])["containers"][0]["imagePullPolicy"] == policy

    def test_limits_become_requests(self):
        resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
        made = self.pod(containers=[{"resources": resources}])["containers"][0]["resources"]
        assert made["requests"] == {"cpu": "1", "memory": "1Gi"}

    def test_pod_level_requests_follow_the_containers_or_the_limits(self):
        spec = self.pod(
            containers=[{"resources": {"requests": {"cpu": "500m"}}}, {"resources": {"requests": {"cpu": "250m"}}}],
            initContainers=[{"resources": {"requests": {"cpu": "1"}}}],
            resources={"limits": {"cpu": "2", "memory": "4Gi"}},
        )
        assert spec["resources"]["requests"] == {"cpu": "1", "memory": "4Gi"}

    def test_what_is_said_stays(self):
        spec = self.pod(
            containers=[{"image": "a", "imagePullPolicy": "Never", "ports": [{"containerPort": 80}]}],
            restartPolicy="Never",
            hostNetwork=True,
            volumes=[{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}],
        )
        assert spec["restartPolicy"] == "Never"
        assert spec["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP", "hostPort": 80}]
        assert spec["volumes"] == [
            {"name": "v", "emptyDir": {}},
            {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
        ]

    def test_templates_are_filled_in_too(self):
        replica_set = {"kind": "ReplicaSet", "spec": {"template": {"spec": {"containers": [{"image": "a:1"}]}}}}
        made = defaulted(replica_set)["spec"]
        assert made["replicas"] == 1
        assert made["template"]["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"

    @pytest.mark.parametrize(
        ("kind", "key", "parts"),
        [
            ("Deployment", "strategy", {"maxUnavailable": "25%", "maxSurge": "25%"}),
            ("DaemonSet", "updateStrategy", {"maxUnavailable": 1, "maxSurge": 0}),
        ],
    )
    def test_an_empty_strategy_is_a_rolling_update(self, kind, key, parts):
        for given in ({}, {key: {}}, {key: None}, {key: {"type": "RollingUpdate", "rollingUpdate": {}}}):
            made = defaulted({"kind": kind, "spec": given})["spec"]
            assert made[key] == {"type": "RollingUpdate", "rollingUpdate": parts}
        said = defaulted({"kind": kind, "spec": {key: {"rollingUpdate": {"maxUnavailable": 2}}}})["spec"][key]
        assert said["rollingUpdate"] == {**parts, "maxUnavailable": 2}
        assert defaulted({"kind": kind, "spec": {key: {"type": "OnDelete"}}})["spec"][key] == {"type": "OnDelete"}

    def test_a_template_has_no_creation_time_and_no_service_links(self):
        template = {"metadata": {"creationTimestamp": None, "labels": {"a": "b"}}, "spec": {"containers": []}}
        made = defaulted({"kind": "ReplicaSet", "spec": {"template": template}})["spec"]["template"]
        assert made["metadata"] == {"labels": {"a": "b"}}
        assert "enableServiceLinks" not in made["spec"]
        assert self.pod(containers=[])["enableServiceLinks"] is True

    def test_a_job_with_completions_runs_one_pod_at_a_time(self):
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
        made = defaulted({"kind": "Job", "metadata": {}, "spec": {"completions": 3, "template": template}})
        assert (made["spec"]["completions"], made["spec"]["parallelism"], made["spec"]["backoffLimit"]) == (3, 1, 6)
        assert made["metadata"]["labels"] == {"a": "b"}
        queue = defaulted({"kind": "Job", "spec": {"parallelism": 2, "template": template}})["spec"]
        assert "completions" not in queue
