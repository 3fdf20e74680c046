"""Pods that a node turns away or lets in, and what their status then says."""

from dray.api import codec
from dray.api.core import Node, Pod
from dray.api.quantity import Quantity
from dray.kubelet.admission import Admission
from dray.kubelet.status import PodProgress, status_document

ALLOCATABLE = {"cpu": Quantity.parse("2"), "pods": Quantity.parse("10"), "example.com/fan": Quantity.parse("1")}


def a_pod(**requests: str) -> Pod:
    names = {name.replace("__", "/").replace("_", "."): amount for name, amount in requests.items()}
    container = {"name": "main", "image": "app", "resources": {"requests": names}}
    metadata = {"name": "p", "namespace": "default", "uid": "1"}
    return codec.to_object({"metadata": metadata, "spec": {"nodeName": "n", "containers": [container]}}, Pod)


def test_a_pod_whose_extended_resource_comes_from_devices_is_let_in():
    assert Admission("n", ALLOCATABLE).admit(a_pod(cpu="1", example_com__gpu="1"), None) is None


def test_an_extended_resource_of_the_node_itself_is_counted():
    rejection = Admission("n", ALLOCATABLE).admit(a_pod(example_com__fan="2"), None)
    assert rejection.reason == "OutOfexample.com/fan"


def test_too_much_cpu_is_too_much_whatever_else_is_asked_for():
    rejection = Admission("n", ALLOCATABLE).admit(a_pod(cpu="3", example_com__gpu="1"), None)
    assert rejection.reason == "OutOfcpu"
    assert rejection.message == "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"


def on_a_node(labels: dict[str, str], taints: list[dict[str, str]], **spec: object) -> str | None:
    node = codec.to_object({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}}, Node)
    metadata = {"name": "p", "namespace": "default", "uid": "1"}
    pod = codec.to_object({"metadata": metadata, "spec": {"nodeName": "n", **spec}}, Pod)
    rejection = Admission("n", ALLOCATABLE).admit(pod, node)
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


def test_a_pod_that_was_turned_away_has_no_containers_so_that_kubectl_shows_the_reason():
    progress = PodProgress(is_finished=True, reason="OutOfcpu", message="Pod was rejected: no cpu")
    document = status_document(a_pod(), progress, "2026-01-01T00:00:00Z")
    assert (document["phase"], document["reason"]) == ("Failed", "OutOfcpu")
    assert "containerStatuses" not in document
