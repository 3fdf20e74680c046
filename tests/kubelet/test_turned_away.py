"""Pods that a node turns away or lets in, and what their status then says."""

import pytest

from dray.api import codec
from dray.api.core import Node, Pod
from dray.api.quantity import Quantity
from dray.kubelet.admission import PodAdmission
from dray.kubelet.pod_status import (
    PodProgress,
    status_document,
)
from tests.builders.manifests import a_pod

ALLOCATABLE = {"cpu": Quantity.parse("2"), "pods": Quantity.parse("10"), "example.com/fan": Quantity.parse("1")}


def pod_that_asks(**requests: str) -> Pod:
    names = {name.replace("__", "/").replace("_", "."): amount for name, amount in requests.items()}
    return codec.to_object(a_pod("p", uid="1", node="n", requests=names), Pod)


def test_a_pod_whose_extended_resource_comes_from_devices_is_let_in():
    assert PodAdmission("n", ALLOCATABLE).admit(pod_that_asks(cpu="1", example_com__gpu="1"), None) is None


def test_an_extended_resource_of_the_node_itself_is_counted():
    rejection = PodAdmission("n", ALLOCATABLE).admit(pod_that_asks(example_com__fan="2"), None)
    assert rejection.reason == "OutOfexample.com/fan"


def test_too_much_cpu_is_too_much_whatever_else_is_asked_for():
    rejection = PodAdmission("n", ALLOCATABLE).admit(pod_that_asks(cpu="3", example_com__gpu="1"), None)
    assert rejection.reason == "OutOfcpu"
    assert rejection.message == "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"


def on_a_node(labels: dict[str, str], taints: list[dict[str, str]], **spec: object) -> str | None:
    node = codec.to_object({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}}, Node)
    metadata = {"name": "p", "namespace": "default", "uid": "1"}
    pod = codec.to_object({"metadata": metadata, "spec": {"nodeName": "n", **spec}}, Pod)
    rejection = PodAdmission("n", ALLOCATABLE).admit(pod, node)
    return rejection.reason if rejection else None


def test_required_node_affinity_counts_as_the_node_selector_does():
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    assert on_a_node({"zone": "b"}, [], affinity={"nodeAffinity": required}) == "NodeAffinity"
    assert on_a_node({"zone": "a"}, [], affinity={"nodeAffinity": required}) is None
    assert on_a_node({"zone": "b"}, [], nodeSelector={"zone": "a"}) == "NodeAffinity"


def test_only_taints_that_evict_turn_away():
    taint = {"key": "broken", "value": "yes", "effect": "NoExecute"}
    assert on_a_node({}, [taint]) == "TaintToleration"
    assert on_a_node({}, [taint], tolerations=[{"key": "broken", "value": "yes"}]) is None
    assert on_a_node({}, [{**taint, "effect": "NoSchedule"}]) is None


def rejection_of(spec: dict[str, object], *admitted: dict[str, object]) -> tuple[str, str] | None:
    """Of a pod with this spec, after others were let in."""
    admission = PodAdmission("n", ALLOCATABLE)
    for number, each in enumerate((*admitted, spec)):
        metadata = {"name": f"p{number}", "namespace": "default", "uid": str(number)}
        pod = codec.to_object({"metadata": metadata, "spec": {"nodeName": "n", **each}}, Pod)
        rejection = admission.admit(pod, None)
    return (rejection.reason, rejection.message) if rejection else None


def with_ports(*ports: dict[str, object], kind: str = "containers", **container: object) -> dict[str, object]:
    return {kind: [{"name": "c", "image": "i", "ports": list(ports), **container}]}


HTTP = {"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        pytest.param(with_ports(HTTP), with_ports(HTTP), True, id="same"),
        pytest.param(with_ports(HTTP), with_ports(HTTP | {"protocol": "UDP"}), False, id="other-protocol"),
        pytest.param(with_ports(HTTP), with_ports(HTTP | {"hostIP": "127.0.0.1"}), True, id="any-address-and-one"),
        pytest.param(
            with_ports(HTTP | {"hostIP": "127.0.0.2"}), with_ports(HTTP | {"hostIP": "127.0.0.1"}), False, id="two"
        ),
        pytest.param(with_ports(HTTP), with_ports({"containerPort": 8080}), False, id="not-of-the-host"),
        pytest.param(
            with_ports(HTTP, kind="initContainers", restartPolicy="Always"), with_ports(HTTP), True, id="sidecar"
        ),
        pytest.param(with_ports(HTTP, kind="initContainers"), with_ports(HTTP), False, id="init-container"),
    ],
)
def test_a_host_port_can_be_had_once(first, second, is_refused):
    text = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    assert rejection_of(second, first) == (("NodePorts", text) if is_refused else None)


def test_a_host_port_is_free_again_with_its_pod():
    admission = PodAdmission("n", ALLOCATABLE)
    pods = [
        codec.to_object({"metadata": {"name": u, "uid": u}, "spec": {"nodeName": "n", **with_ports(HTTP)}}, Pod)
        for u in ("a", "b", "c")
    ]
    admission.let_back_in(pods[0])
    assert admission.admit(pods[1], None).reason == "NodePorts"
    admission.release(pods[0])
    assert admission.admit(pods[1], None) is None
    assert admission.admit(pods[2], None).reason == "NodePorts"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"os": {"name": "windows"}},
            ("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"),
        ),
        ({"os": {"name": "linux"}}, None),
        (
            {"nodeSelector": {"kubernetes.io/os": "windows"}},
            (
                "PodOSSelectorNodeLabelDoesNotMatch",
                "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            ),
        ),
        ({"nodeSelector": {"kubernetes.io/os": "linux"}}, None),
        (
            {"nodeName": "elsewhere"},
            ("NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"),
        ),
    ],
)
def test_pods_for_other_nodes_and_systems(spec, expected):
    assert rejection_of(spec) == expected


def test_an_architecture_that_the_node_does_not_have_is_a_matter_of_its_labels():
    assert (
        on_a_node({"kubernetes.io/arch": "amd64"}, [], nodeSelector={"kubernetes.io/arch": "arm64"}) == "NodeAffinity"
    )


def pod_with_cpu_of_a_claim(cpu: str, mapped: str) -> Pod:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    entry = {"resourceClaimName": "c", "containers": ["main"], "mapping": [{"name": "cpu", "quantity": mapped}]}
    return codec.to_object(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "1"},
            "spec": {"nodeName": "n", "containers": [container]},
            "status": {"nodeAllocatableResourceClaimStatuses": [entry]},
        },
        Pod,
    )


def test_what_a_claim_takes_of_the_node_is_counted():
    rejection = PodAdmission("n", ALLOCATABLE).admit(pod_with_cpu_of_a_claim("1", "1500m"), None)
    assert rejection.reason == "OutOfcpu"
    assert rejection.message == "Node didn't have enough resource: cpu, requested: 2500, used: 0, capacity: 2000"
    assert PodAdmission("n", ALLOCATABLE).admit(pod_with_cpu_of_a_claim("1", "1"), None) is None


def test_with_the_gate_off_only_the_spec_counts():
    admission = PodAdmission("n", ALLOCATABLE, counts_claims=False)
    assert admission.admit(pod_with_cpu_of_a_claim("1", "1500m"), None) is None
    assert admission.admit(pod_that_asks(cpu="2"), None) is None, "the same pod stays in"


def test_a_pod_that_was_turned_away_has_no_containers_so_that_kubectl_shows_the_reason():
    progress = PodProgress(is_finished=True, reason="OutOfcpu", message="Pod was rejected: no cpu")
    document = status_document(pod_that_asks(), progress, "2026-01-01T00:00:00Z")
    assert (document["phase"], document["reason"]) == ("Failed", "OutOfcpu")
    assert "containerStatuses" not in document
