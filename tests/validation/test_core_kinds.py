"""Pods, the kinds that make them, and quotas: the ground rules, in the words Kubernetes has for them."""

import pytest
from tests.builders.manifests import a_container, a_pod, a_quota

from dray.validation import ValidationContext, validate_create, validate_status_update, validate_update
from dray.validation.errors import Errors
from dray.validation.services import check_service


def pod_with(container=None, **spec):
    return a_pod("p", a_container("c", **(container or {})), **spec)


def texts(errors):
    return [str(error) for error in errors]


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(pod_with({"image": " i"}), ["spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace"], id="image-with-space"),
        pytest.param(pod_with({"imagePullPolicy": "Often"}), ['spec.containers[0].imagePullPolicy: Unsupported value: "Often": supported values: "Always", "IfNotPresent", "Never"'], id="pull-policy"),
        pytest.param(pod_with({"ports": [{"containerPort": 70000}]}), ["spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"], id="port-out-of-range"),
        pytest.param(pod_with({"ports": [{"name": "a"}]}), ["spec.containers[0].ports[0].containerPort: Required value"], id="no-port"),
        pytest.param(pod_with({"ports": [{"containerPort": 1, "name": "-", "protocol": "QUIC"}]}), [
            'spec.containers[0].ports[0].name: Invalid value: "-": must contain at least one letter (a-z)',
            'spec.containers[0].ports[0].name: Invalid value: "-": must not begin or end with a hyphen',
            'spec.containers[0].ports[0].protocol: Unsupported value: "QUIC": supported values: "SCTP", "TCP", "UDP"',
        ], id="port-name-and-protocol"),
        pytest.param(pod_with({"volumeMounts": [{"name": "v", "mountPath": "/a"}]}), ['spec.containers[0].volumeMounts[0].name: Not found: "v"'], id="mount-of-nothing"),
        pytest.param(pod_with({"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]}, volumes=[{"name": "v", "emptyDir": {}}]), ['spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique'], id="mounted-twice"),
        pytest.param(pod_with(volumes=[{"name": "v"}]), ["spec.volumes[0]: Required value: must specify a volume type"], id="volume-without-source"),
        pytest.param(pod_with(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]), ['spec.volumes[1].name: Duplicate value: "v"'], id="volume-twice"),
        pytest.param(pod_with({"resources": {"requests": {"example.com/gpu": "1"}}}), ["spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"], id="extended-resource-without-limit"),
        pytest.param(pod_with({"resources": {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}}), ['spec.containers[0].resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2'], id="extended-resource-below-its-limit"),
        pytest.param(pod_with({"resources": {"limits": {"example.com/gpu": "500m"}}}), ['spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "500m": must be an integer'], id="half-an-extended-resource"),
        pytest.param(pod_with({"resources": {"requests": {"deviceclass.resource.kubernetes.io/gpu": "1"}}}), [], id="implicit-extended-resource"),
        pytest.param(pod_with({"resources": {"limits": {"hugepages-2Mi": "2Mi"}}}), ["spec.containers[0].resources: Forbidden: HugePages require cpu or memory"], id="huge-pages-alone"),
        pytest.param(pod_with(dnsPolicy="Mine"), ['spec.dnsPolicy: Unsupported value: "Mine": supported values: "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"'], id="dns-policy"),
        pytest.param(pod_with(activeDeadlineSeconds=0), ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"], id="deadline"),
        pytest.param(pod_with(tolerations=[{"operator": "Equal"}]), ['spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys"'], id="toleration-without-key"),
        pytest.param(pod_with(tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 5}]), ["spec.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set"], id="toleration-seconds"),
        pytest.param(pod_with(tolerations=[{"key": "k", "operator": "Near", "effect": "Never"}]), [
            'spec.tolerations[0].operator: Unsupported value: "Near": supported values: "Equal", "Exists"',
            'spec.tolerations[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
        ], id="toleration-words"),
        pytest.param(pod_with(schedulingGates=[{"name": "a"}, {"name": "a"}]), ['spec.schedulingGates[1]: Duplicate value: "a"'], id="gate-twice"),
    ],
)  # fmt: skip
def test_pods(pod, expected):
    assert texts(validate_create(pod, ValidationContext())) == expected


def with_volume(**source):
    return pod_with(volumes=[{"name": "v", **source}])


MODE = "must be a number between 0 and 0777 (octal), both inclusive"
AT = "spec.volumes[0]"


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(with_volume(hostPath={"path": "/var/lib/allowed/../../../etc"}), [f"{AT}.hostPath.path: Invalid value: \"/var/lib/allowed/../../../etc\": must not contain '..'"], id="a-path-of-the-node-that-climbs"),
        pytest.param(with_volume(hostPath={"path": "/a..b/..c", "type": "Directory"}), [], id="dots-in-names"),
        pytest.param(with_volume(hostPath={"type": "Pipe"}), [f"{AT}.hostPath.path: Required value", f'{AT}.hostPath.type: Unsupported value: "Pipe": supported values: "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket", ""'], id="no-path-of-the-node"),
        pytest.param(with_volume(configMap={"name": "m", "defaultMode": 0o4755}), [f"{AT}.configMap.defaultMode: Invalid value: 2541: {MODE}"], id="setuid"),
        pytest.param(with_volume(secret={"secretName": "s", "items": [{"key": "k", "path": "a/../../b", "mode": -1}]}), [f"{AT}.secret.items[0].path: Invalid value: \"a/../../b\": must not contain '..'", f"{AT}.secret.items[0].mode: Invalid value: -1: {MODE}"], id="a-file-that-climbs"),
        pytest.param(with_volume(configMap={"name": "m", "items": [{"path": "..data"}]}), [f"{AT}.configMap.items[0].key: Required value", f"{AT}.configMap.items[0].path: Invalid value: \"..data\": must not start with '..'"], id="two-dots-first"),
        pytest.param(with_volume(downwardAPI={"items": [{"path": "/etc/x", "mode": 0o1000, "fieldRef": {"fieldPath": "metadata.name"}}]}), [f'{AT}.downwardAPI.items[0].path: Invalid value: "/etc/x": must be a relative path', f"{AT}.downwardAPI.items[0].mode: Invalid value: 512: {MODE}"], id="downward"),
        pytest.param(with_volume(projected={"defaultMode": 0o2755, "sources": [{"serviceAccountToken": {"path": "../t"}}, {"secret": {"name": "s", "items": [{"key": "k", "path": ""}]}}]}), [f"{AT}.projected.defaultMode: Invalid value: 1517: {MODE}", f"{AT}.projected.sources[0].serviceAccountToken.path: Invalid value: \"../t\": must not contain '..'", f"{AT}.projected.sources[1].secret.items[0].path: Required value"], id="projected"),
        pytest.param(with_volume(projected={"sources": [{"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "m", "items": [{"key": "ca.crt", "path": "ca.crt", "mode": 0o1777}]}}]}), [f"{AT}.projected.sources[1].configMap.items[0].mode: Invalid value: 1023: {MODE}"], id="projected-with-usual-names"),
        pytest.param(with_volume(projected={"sources": [{"configMap": {"name": "m", "items": [{"key": "k", "path": "a/b", "mode": 0o600}]}}, {"clusterTrustBundle": {"path": "x"}}]}), [], id="files-as-they-should-be"),
    ],
)  # fmt: skip
def test_files_of_volumes(pod, expected):
    assert texts(validate_create(pod, ValidationContext())) == expected


def test_pods_that_are_stored_with_odd_files_can_be_changed():
    pod = a_pod("p", a_container("c"), volumes=[{"name": "v", "configMap": {"name": "m", "defaultMode": 0o4755}}])
    pod["metadata"]["uid"] = "u"
    changed = {**pod, "metadata": {**pod["metadata"], "labels": {"a": "b"}}}
    assert texts(validate_update(changed, pod, ValidationContext())) == []


def sized(cpu, **more):
    return {"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(pod_with(sized("2"), resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}), [], id="fits"),
        pytest.param(
            pod_with(sized("1500m"), resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
            [
                'spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container '
                "requests of 1500m"
            ],
            id="asks-for-more-than-the-pod",
        ),
        pytest.param(
            pod_with(sized("1"), resources={"limits": {"cpu": "500m"}}),
            [
                'spec.containers[0].resources.limits[cpu]: Invalid value: "1": must be less than or equal to pod limits '
                "of 500m"
            ],
            id="limit-above-the-pods",
        ),
        pytest.param(
            pod_with(
                sized("1"),
                initContainers=[
                    {"name": "side", "image": "i", "restartPolicy": "Always", **sized("1")},
                    {"name": "step", "image": "i", **sized("2")},
                ],
                resources={"requests": {"cpu": "2500m"}},
            ),
            [
                'spec.resources.requests[cpu]: Invalid value: "2500m": must be greater than or equal to aggregate '
                "container requests of 3"
            ],
            id="a-step-beside-a-sidecar-counts-most",
        ),
        pytest.param(
            pod_with(
                sized("1"),
                initContainers=[{"name": "step", "image": "i", "resources": {"requests": {"memory": "0"}}}],
                resources={"requests": {"cpu": "1"}},
            ),
            [],
            id="nothing-asked-for-by-one-alone",
        ),
    ],
)
def test_budgets_of_pods(pod, expected):
    assert texts(validate_create(pod, ValidationContext())) == expected


def a_deployment(selector, labels, kind="Deployment", **pod):
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}], **pod}}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "d", "namespace": "default", "resourceVersion": "1", "uid": "u"},
        "spec": {"selector": selector, "template": template, "manualSelector": kind == "Job"},
    }


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(a_deployment(None, {}), ["spec.selector: Required value", "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`"], id="no-selector"),
        pytest.param(a_deployment({}, {}), ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"], id="empty-selector"),
        pytest.param(a_deployment({"matchLabels": {"a": "b"}}, {"a": "c"}), ['spec.template.metadata.labels: Invalid value: {"a":"c"}: `selector` does not match template `labels`'], id="other-labels"),
        pytest.param(a_deployment({"matchLabels": {"a": "b"}}, {"a": "b"}, restartPolicy="Never"), ['spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'], id="deployment-that-ends"),
        pytest.param(a_deployment({"matchLabels": {"a": "b"}}, {"a": "b"}, kind="Job"), ['spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'], id="job-that-never-ends"),
        pytest.param(a_deployment({"matchLabels": {"a": "b"}}, {"a": "b"}), [], id="fine"),
    ],
)  # fmt: skip
def test_kinds_that_make_pods(document, expected):
    assert texts(validate_create(document, ValidationContext())) == expected


CLAIMED = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def test_a_stateful_set_brings_volumes_of_its_own():
    document = a_deployment({"matchLabels": {"a": "b"}}, {"a": "b"}, kind="StatefulSet")
    document["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    assert texts(validate_create(document, ValidationContext())) == [
        'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "data"'
    ]
    document["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": CLAIMED}]
    assert texts(validate_create(document, ValidationContext())) == []


def test_a_selector_stays():
    old = a_deployment({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"})
    new = a_deployment({"matchLabels": {"c": "d"}}, {"a": "b", "c": "d"})
    assert texts(validate_update(new, old, ValidationContext())) == [
        'spec.selector: Invalid value: {"matchLabels":{"c":"d"}}: field is immutable'
    ]


def quota_with(**spec):
    return a_quota("q", resourceVersion="1", uid="u") | {"spec": spec}


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        pytest.param(quota_with(hard={"pods": "1"}, scopes=["BestEffort"]), [], id="fine"),
        pytest.param(
            quota_with(scopes=["Mine"]), ['spec.scopes: Invalid value: ["Mine"]: unsupported scope'], id="unknown-scope"
        ),
        pytest.param(
            quota_with(hard={"requests.cpu": "1"}, scopes=["BestEffort"]),
            ['spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource'],
            id="scope-without-meaning",
        ),
        pytest.param(
            quota_with(scopes=["Terminating", "NotTerminating"]),
            ['spec.scopes: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes'],
            id="opposites",
        ),
        pytest.param(
            quota_with(scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}),
            [
                "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is "
                "'In' or 'NotIn' for scope selector"
            ],
            id="selector-without-values",
        ),
    ],
)
def test_scopes_of_quotas(quota, expected):
    assert texts(validate_create(quota, ValidationContext())) == expected


def test_scopes_of_a_quota_stay():
    new, old = quota_with(scopes=["BestEffort"]), quota_with(scopes=["NotBestEffort"])
    assert texts(validate_update(new, old, ValidationContext())) == [
        'spec.scopes: Invalid value: ["BestEffort"]: field is immutable'
    ]


@pytest.mark.parametrize(
    ("taints", "expected"),
    [
        ([{"key": "k"}], ["metadata.taints[0].effect: Required value"]),
        (
            [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "value": "v", "effect": "NoSchedule"}],
            [
                'metadata.taints[1]: Duplicate value: {"Key":"k","Value":"v","Effect":"NoSchedule","TimeAdded":null}: '
                "taints must be unique by key and effect pair"
            ],
        ),
    ],
)
def test_taints_of_nodes(taints, expected):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": taints}}
    assert texts(validate_create(node, ValidationContext())) == expected


def an_event(**changes):
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default", "resourceVersion": "1", "uid": "u"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingComponent": "example.com/controller",
        "reportingInstance": "one",
        "action": "Look",
        "reason": "Seen",
        "type": "Normal",
        **changes,
    }


MODERN = ValidationContext(api_version="events.k8s.io/v1")


@pytest.mark.parametrize(
    ("event", "context", "expected"),
    [
        pytest.param(an_event(), MODERN, [], id="complete"),
        pytest.param(an_event(eventTime=None, type=""), ValidationContext(), [], id="core-is-lenient"),
        pytest.param(
            an_event(eventTime=None, type="Odd"),
            MODERN,
            ["eventTime: Required value", 'type: Invalid value: "": has invalid value: Odd'],
            id="incomplete",
        ),
        pytest.param(an_event(count=2), MODERN, ['count: Invalid value: "": needs to be unset'], id="old-field"),
        pytest.param(
            an_event(series={"count": 1}),
            MODERN,
            ['series.count: Invalid value: "": should be at least 2', "series.lastObservedTime: Required value"],
            id="series-of-one",
        ),
        pytest.param(
            an_event(message="x" * 1025),
            ValidationContext(),
            ['message: Invalid value: "": can have at most 1024 characters'],
            id="long-story",
        ),
    ],
)
def test_events(event, context, expected):
    assert texts(validate_create(event, context)) == expected


def test_only_the_series_of_an_event_changes():
    series = {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000000Z"}
    assert validate_update(an_event(series=series), an_event(), MODERN) == []
    assert texts(validate_update(an_event(reason="Heard"), an_event(), MODERN)) == [
        'reason: Invalid value: "Heard": field is immutable'
    ]
    assert validate_update(an_event(reason="Heard"), an_event(), ValidationContext()) == []


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("system-node-critical", {"value": 2000001000}, []),
        (
            "system-mine",
            {"value": 5},
            [
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. "
                "error: system-mine is not a known system priority class"
            ],
        ),
        (
            "high",
            {"value": 1000000001},
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        ),
        (
            "odd",
            {"value": 1, "preemptionPolicy": "Odd"},
            ['preemptionPolicy: Unsupported value: "Odd": supported values: "PreemptLowerPriority", "Never"'],
        ),
    ],
)
def test_priority_classes(name, fields, expected):
    document = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, **fields}
    assert texts(validate_create(document, ValidationContext())) == expected


MANY_IPS = "may specify no more than one IP for each IP family"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}, {"ip": "fd00::1"}]}, [], id="one-of-each-family"),
        pytest.param({"podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}, {"ip": "10.1.1.2"}]}, [f'status.podIPs: Invalid value: [{{"IP":"10.1.1.1"}},{{"IP":"10.1.1.2"}}]: {MANY_IPS}'], id="two-of-one-family"),
        pytest.param({"hostIP": "10.1.1.1", "hostIPs": [{"ip": "10.1.1.1"}, {"ip": "10.1.1.2"}]}, [f'status.hostIPs: Invalid value: [{{"IP":"10.1.1.1"}},{{"IP":"10.1.1.2"}}]: {MANY_IPS}'], id="two-of-one-family-for-the-host"),
        pytest.param({"podIP": "10.1.1.300", "podIPs": [{"ip": "10.1.1.300"}]}, ['status.podIPs[0]: Invalid value: "10.1.1.300": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'], id="no-address"),
        pytest.param({"podIP": "10.1.1.01", "podIPs": [{"ip": "10.1.1.01"}]}, ['status.podIPs[0]: Invalid value: "10.1.1.01": must not have leading 0s'], id="leading-zeros"),
        pytest.param({"podIP": "::ffff:1.2.3.4", "podIPs": [{"ip": "::ffff:1.2.3.4"}]}, ['status.podIPs[0]: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address'], id="ipv4-in-ipv6"),
        pytest.param({"hostIP": "10.1.1.2", "hostIPs": [{"ip": "10.1.1.1"}]}, ['status.hostIPs[0].ip: Invalid value: "10.1.1.1": must be equal to `hostIP`'], id="hosts-that-differ"),
    ],
)  # fmt: skip
def test_the_addresses_of_a_pod(status, expected):
    old = pod_with()
    assert texts(validate_status_update(old | {"status": status}, old, ValidationContext())) == expected


def test_more_digits_than_python_reads_as_a_number_are_no_address():
    address = f"{'1' * 5000}.1.1.1"
    status = {"podIP": address, "podIPs": [{"ip": address}]}
    old = pod_with()
    (found,) = texts(validate_status_update(old | {"status": status}, old, ValidationContext()))
    assert found.startswith('status.podIPs[0]: Invalid value: "111')
    assert found.endswith("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")


def test_addresses_that_were_stored_before_may_stay():
    old = pod_with() | {"status": {"podIP": "010.1.1.1", "podIPs": [{"ip": "010.1.1.1"}]}}
    new = old | {"status": old["status"] | {"phase": "Running"}}
    assert texts(validate_status_update(new, old, ValidationContext())) == []


def a_service(*external_ips):
    metadata = {"name": "web", "namespace": "default"}
    spec = {"ports": [{"port": 80}], "externalIPs": list(external_ips)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("192.0.2.7", None),
        ("2001:db8::7", None),
        ("localhost", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("::", "may not be unspecified (::)"),
        ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("127.8.9.10", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("::1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("169.254.169.254", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("fe80::1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("224.0.0.1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ("ff02::1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ],
)
def test_traffic_of_a_service_goes_to_no_address_that_each_machine_has_for_itself(address, problem):
    found = texts(validate_create(a_service("192.0.2.1", address), ValidationContext()))
    assert found == ([f'spec.externalIPs[1]: Invalid value: "{address}": {problem}'] if problem else [])


def test_addresses_that_a_service_has_already_may_stay():
    old, new = a_service("127.0.0.1"), a_service("127.0.0.1", "127.0.0.2")
    for document in (old, new):
        document["metadata"] |= {"uid": "uid-web", "resourceVersion": "5"}
    assert validate_update(old, old, ValidationContext()) == []
    (refusal,) = texts(validate_update(new, old, ValidationContext()))
    assert refusal.startswith("spec.externalIPs[1]: ")


CONTROLLER_POD = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "containers": [{"name": "c", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}],
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
    },
}


def a_maker(kind, version="apps/v1", **spec):
    metadata = {"name": "web", "namespace": "default"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {"template": CONTROLLER_POD, **spec}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"selector": {"app": "web"}}, []),
        ({}, ["spec.selector: Required value"]),
        ({"selector": {"app": "web"}, "template": None}, ["spec.template: Required value"]),
        (
            {"selector": {"app": "web"}, "replicas": -1},
            ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            {"selector": {"app": "db"}},
            [
                'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`'
            ],
        ),
    ],
    ids=["good", "no-selector", "no-template", "negative", "other-pods"],
)
def test_replication_controllers(spec, expected):
    assert texts(validate_create(a_maker("ReplicationController", "v1", **spec), ValidationContext())) == expected


AT = "spec.strategy.rollingUpdate"


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({}, []),
        ({"type": "Recreate"}, []),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "100%"}}, []),
        (
            {"type": "Foo"},
            [
                'spec.strategy: Unsupported value: {"Type":"Foo","RollingUpdate":null}: supported values: "Recreate", '
                '"RollingUpdate"'
            ],
        ),
        (
            {"type": "Recreate", "rollingUpdate": {}},
            [f"{AT}: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
        ),
        (
            {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}},
            [f'{AT}.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0'],
        ),
        (
            {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "101%"}},
            [f'{AT}.maxUnavailable: Invalid value: "101%": must not be greater than 100%'],
        ),
        (
            {"rollingUpdate": {"maxSurge": -1, "maxUnavailable": 1}},
            [f"{AT}.maxSurge: Invalid value: -1: must be greater than or equal to 0"],
        ),
    ],
)
def test_strategies_of_deployments(strategy, expected):
    deployment = a_maker("Deployment", selector={"matchLabels": {"app": "web"}}, strategy=strategy)
    assert texts(validate_create(deployment, ValidationContext())) == expected


@pytest.mark.parametrize("part", ["abc", "\u00b2%", "%", "5"])
def test_a_part_of_the_pods_is_a_number_and_a_percent_sign(part):
    rolling = {"rollingUpdate": {"maxSurge": part, "maxUnavailable": 1}}
    deployment = a_maker("Deployment", selector={"matchLabels": {"app": "web"}}, strategy=rolling)
    (refusal,) = texts(validate_create(deployment, ValidationContext()))
    assert refusal.startswith(
        f'{AT}.maxSurge: Invalid value: "{part}": a valid percent string must be a numeric string'
    )


def test_a_strategy_that_is_stored_may_stay():
    deployment = a_maker("Deployment", selector={"matchLabels": {"app": "web"}}, strategy={"type": "Foo"})
    deployment["metadata"] |= {"uid": "uid-web", "resourceVersion": "5"}
    changed = {**deployment, "spec": {**deployment["spec"], "replicas": 3}}
    assert validate_update(changed, deployment, ValidationContext()) == []


@pytest.mark.parametrize(
    ("name", "amount", "problem"),
    [
        ("cpu", "1500m", None),
        ("cpu", "-5", "must be greater than or equal to 0"),
        ("pods", "1500m", "must be an integer"),
        ("example.com/gpu", "1500m", "must be an integer"),
    ],
)
def test_amounts_of_a_node_are_looked_at_wherever_they_are_written(name, amount, problem):
    old = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u", "resourceVersion": "5"}}
    new = {**old, "status": {"capacity": {name: amount}}}
    expected = [f'status.capacity.{name}: Invalid value: "{amount}": {problem}'] if problem else []
    assert texts(validate_status_update(new, old, ValidationContext())) == expected
    assert validate_update(new, new, ValidationContext()) == []


@pytest.mark.parametrize(
    ("name", "whole"), [("pods", True), ("services.nodeports", True), ("cpu", False), ("requests.memory", False)]
)
def test_a_quota_counts_objects_in_whole_numbers(name, whole):
    found = texts(validate_create(a_quota("q", {name: "1500m"}), ValidationContext()))
    assert found == ([f'spec.hard[{name}]: Invalid value: "1500m": must be an integer'] if whole else [])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"overhead": {"podFixed": {"cpu": "250m"}}, "scheduling": {"nodeSelector": {"a": "b"}}}, []),
        ({"overhead": {"podFixed": {"cpu": "-1"}}}, ["overhead.limits[cpu]"]),
        ({"overhead": {"podFixed": {"gpus": "1"}}}, ["overhead.limits[gpus]"]),
        ({"scheduling": {"nodeSelector": {"a b": "c"}}}, ["scheduling.nodeSelector"]),
        ({"scheduling": {"tolerations": [{"operator": "Maybe"}]}}, ["scheduling.tolerations[0].operator"]),
        ({"scheduling": {"tolerations": [{"operator": "Exists"}] * 2}}, ["scheduling.tolerations[1]"]),
    ],
)
def test_runtime_classes(fields, expected):
    document = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vm"}, "handler": "vm"}
    found = {error.field for error in validate_create({**document, **fields}, ValidationContext())}
    assert found == set(expected)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (pod_with(securityContext={"runAsUser": -1}), ["runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"]),
        (pod_with(securityContext={"supplementalGroups": [0, 2**31]}), ["supplementalGroups[1]: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive"]),
        (pod_with(securityContext={"fsGroupChangePolicy": "Never"}), ['fsGroupChangePolicy: Unsupported value: "Never": supported values: "Always", "OnRootMismatch"']),
        (pod_with(securityContext={"seccompProfile": {}}), ["seccompProfile.type: Required value: type is required when seccompProfile is set"]),
        (pod_with(securityContext={"seccompProfile": {"type": "Mine"}}), ['seccompProfile.type: Unsupported value: "Mine": supported values: "Localhost", "RuntimeDefault", "Unconfined"']),
        (pod_with(securityContext={"seccompProfile": {"type": "Localhost"}}), ["seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"]),
        (pod_with(securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "/a/../b"}}), [
            'seccompProfile.localhostProfile: Invalid value: "/a/../b": must be a relative path',
            "seccompProfile.localhostProfile: Invalid value: \"/a/../b\": must not contain '..'",
        ]),
        (pod_with(securityContext={"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}}), ['appArmorProfile.localhostProfile: Invalid value: " a": must not be padded with whitespace']),
        (pod_with(securityContext={"appArmorProfile": {"type": "RuntimeDefault", "localhostProfile": "a"}}), ['appArmorProfile.localhostProfile: Invalid value: "a": can only be set when AppArmor type is Localhost']),
        (pod_with(securityContext={"runAsUser": 0, "fsGroup": 2**31 - 1, "seccompProfile": {"type": "Localhost", "localhostProfile": "a/b"}}), []),
    ],
)  # fmt: skip
def test_security_contexts_of_pods(pod, expected):
    found = texts(validate_create(pod, ValidationContext()))
    assert found == [f"spec.securityContext.{text}" for text in expected]


@pytest.mark.parametrize(
    ("own", "host_users", "expected"),
    [
        ({"privileged": True, "allowPrivilegeEscalation": False}, None, [': Invalid value: {"privileged":true,"allowPrivilegeEscalation":false}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true']),
        ({"privileged": True, "allowPrivilegeEscalation": True}, None, []),
        ({"procMount": "Unmasked"}, None, [".procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"]),
        ({"procMount": "Unmasked"}, False, []),
        ({"procMount": "Open"}, False, ['.procMount: Unsupported value: "Open": supported values: "Default", "Unmasked"']),
        ({"runAsGroup": -1}, None, [".runAsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive"]),
    ],
)  # fmt: skip
def test_security_contexts_of_containers(own, host_users, expected):
    pod = pod_with({"securityContext": own}, hostUsers=host_users)
    found = texts(validate_create(pod, ValidationContext()))
    assert found == [f"spec.containers[0].securityContext{text}" for text in expected]


class CountedText(str):
    """An address that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        CountedText.compared += 1
        return str.__eq__(self, other)


def test_many_external_addresses_that_stay_are_compared_once_each():
    addresses = [CountedText(f"10.1.{i // 250}.{i % 250}") for i in range(500)]
    again = [CountedText(address) for address in addresses]
    old = {"kind": "Service", "metadata": {"name": "s", "namespace": "n"}, "spec": {"externalIPs": addresses}}
    new = {**old, "spec": {"externalIPs": again, "ports": [{"port": 80}]}}
    CountedText.compared = 0
    check_service(new, old, Errors())
    assert CountedText.compared < 2 * len(addresses)


def test_a_quota_with_very_many_unknown_scopes_prints_few_of_them():
    found = validate_create(quota_with(scopes=[f"scope-{i}" for i in range(5000)]), ValidationContext())
    assert 1 <= len(found) <= 100


def a_stateful_set(**spec):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod_with(**spec.pop("pod", {}))["spec"]}
    claims = [
        {
            "metadata": {"name": "v"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    ]
    fixed = {"selector": {"matchLabels": {"a": "b"}}, "volumeClaimTemplates": claims}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s", "namespace": "ns", "resourceVersion": "1"}, "spec": {**fixed, "template": template, **spec}}  # fmt: skip


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}]}, id="claims-without-size"),
        pytest.param({"serviceName": "Not_a_name"}, id="service-name"),
        pytest.param({"pod": {"dnsPolicy": "Mine"}}, id="pods"),
    ],
)
def test_a_stateful_set_of_an_earlier_version_can_still_be_scaled(spec):
    old = a_stateful_set(**spec)
    assert texts(validate_create(old, ValidationContext()))
    new = {**old, "spec": {**old["spec"], "replicas": 3}}
    assert texts(validate_update(new, old, ValidationContext())) == []


def test_a_stateful_set_does_not_become_wrong():
    new = a_stateful_set(pod={"dnsPolicy": "Mine"})
    found = texts(validate_update(new, a_stateful_set(), ValidationContext()))
    assert [error.partition(":")[0] for error in found] == ["spec.template.spec.dnsPolicy"]


@pytest.mark.parametrize(("before", "count"), [(None, 0), ("", 1), ("slow", 1)])
def test_a_volume_claim_gets_its_class_once_and_no_class_is_a_choice(before, count):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "c", "namespace": "ns", "resourceVersion": "1"}
    old = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {**spec, **({} if before is None else {"storageClassName": before})}}  # fmt: skip
    new = {**old, "spec": {**spec, "storageClassName": "fast"}}
    assert len(validate_update(new, old, ValidationContext())) == count
