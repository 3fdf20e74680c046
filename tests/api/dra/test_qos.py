"""The QoS class by the spec alone; objects and documents get the same answer."""

import pytest

from dray.api.codec import to_object
from dray.api.core import Pod
from dray.api.dra.qos import Amounts, qos_class_of, qos_class_of_document, qos_class_of_spec

BOTH = {"cpu": "1", "memory": "1Gi"}


def resources(requests=None, limits=None):
    return {"requests": requests or {}, "limits": limits or {}}


@pytest.mark.parametrize(
    ("containers", "level", "expected"),
    [
        pytest.param([{}], {}, "BestEffort", id="nothing"),
        pytest.param([resources(BOTH, BOTH)], {}, "Guaranteed", id="requests-are-limits"),
        pytest.param([resources(BOTH)], {}, "Burstable", id="requests-only"),
        pytest.param([resources({"cpu": "1"}, {"cpu": "1"})], {}, "Burstable", id="cpu-only"),
        pytest.param([resources(BOTH, BOTH), {}], {}, "Burstable", id="one-of-two-containers"),
        pytest.param([resources({"cpu": "0", "memory": "0"}, BOTH)], {}, "Burstable", id="requests-of-zero"),
        pytest.param([resources({"cpu": "0"}, {"cpu": "0"})], {}, "BestEffort", id="only-zero"),
        pytest.param([resources({"x.io/gpu": "1"}, {"x.io/gpu": "1"})], {}, "BestEffort", id="extended-resource"),
        pytest.param([{}], resources(BOTH, BOTH), "Guaranteed", id="the-pod-as-a-whole"),
        pytest.param([resources(BOTH, BOTH)], resources(BOTH), "Burstable", id="the-pod-decides-alone"),
        pytest.param([resources(BOTH, BOTH)], resources({"x.io/gpu": "1"}), "Guaranteed", id="no-pod-level-resource"),
    ],
)
def test_the_class_of_a_spec(containers, level, expected):
    spec = {"containers": [{"name": f"c{i}", "resources": each} for i, each in enumerate(containers)]}
    if level:
        spec["resources"] = level
    pod = to_object({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, Pod)
    assert qos_class_of_spec(pod) == qos_class_of_document(spec) == expected


def test_amounts_decide_part_by_part():
    even, uneven = Amounts({"cpu": 2, "memory": 2}, {"cpu": 2, "memory": 2}), Amounts({"cpu": 1}, {"cpu": 3})
    assert qos_class_of([]) == "BestEffort"
    assert qos_class_of([even, even]) == "Guaranteed"
    assert qos_class_of([even, uneven]) == "Burstable"
