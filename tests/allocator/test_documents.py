"""`allocate(objects, claim)`: plain documents in, an allocation or the reasons out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dray.allocator import Allocated, NotAllocated, allocate
from dray.api.errors import DecodeError

PAGE = Path(__file__).parent.parent.parent / "docs" / "allocator.md"
CLASS = {
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
}


def plain_slice(node: str, *devices: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node,
            "pool": {"name": node, "resourceSliceCount": 1},
            "devices": [{"name": name} for name in devices],
            **spec,
        },
    }


def plain_claim(name: str = "c", **exactly: Any) -> dict[str, Any]:
    request = {"name": "a", "exactly": {"deviceClassName": "gpu", **exactly}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def test_the_example_of_the_page_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(example.splitlines()) <= 22
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
    assert done.stdout == "worker-1 gpu.example.com/worker-1/gpu-0 gpu.example.com/worker-1/gpu-1\n"


def test_defaults_are_those_of_the_server_and_the_inputs_stay() -> None:
    claim = plain_claim()
    answer = allocate([CLASS, plain_slice("n1", "g0", "g1")], claim)
    assert isinstance(answer, Allocated)
    assert (answer.node, [each.device for each in answer.devices]) == ("n1", ["g0"])
    (result,) = answer.allocation["devices"]["results"]
    assert result == {"request": "a", "driver": "gpu.example.com", "pool": "n1", "device": "g0"}
    assert "nodeSelector" in answer.allocation
    assert claim == plain_claim()


def test_claims_hold_their_devices_and_other_nodes_are_tried() -> None:
    first = allocate([CLASS, plain_slice("n1", "g0"), plain_slice("n2", "g0")], plain_claim("first"))
    assert isinstance(first, Allocated)
    taken = {**plain_claim("first"), "kind": "ResourceClaim", "status": {"allocation": first.allocation}}
    world = {"kind": "List", "items": [CLASS, plain_slice("n1", "g0"), plain_slice("n2", "g0"), taken, {"kind": "Pod"}]}
    second = allocate([world], plain_claim("second"))
    assert isinstance(second, Allocated)
    assert second.node == "n2"
    # Nodes are asked in the order of their documents, and only those that are there.
    nodes = [{"kind": "Node", "metadata": {"name": name}} for name in ("n0", "n1")]
    third = allocate([world, *nodes], plain_claim("third"))
    assert isinstance(third, NotAllocated)
    assert list(third.reasons) == ["n0", "n1"]
    assert "in use" in third.reasons["n1"]


def test_older_versions_and_taint_rules_are_read() -> None:
    old = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "a", "deviceClassName": "gpu"}]}},
    }
    objects = [CLASS, plain_slice("n1", "g0")]
    assert isinstance(allocate(objects, old), Allocated)
    rule = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": "gpu.example.com"}, "taint": {"key": "hot", "effect": "NoSchedule"}},
    }
    assert "taint" in str(allocate([*objects, rule], old))


@pytest.mark.parametrize(
    ("objects", "claim", "said"),
    [
        ([CLASS, plain_slice("n1", "g0", drivr="x")], plain_claim(), 'ResourceSlice n1: strict decoding error: unknown field "spec.drivr"'),
        ([CLASS], plain_claim(count="two"), "ResourceClaim c: "),
        ([], {"apiVersion": "resource.k8s.io/v7", **plain_claim()}, "ResourceClaim c: "),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(objects: list[Any], claim: dict[str, Any], said: str) -> None:
    with pytest.raises(DecodeError, match=re.escape(said)):
        allocate(objects, claim)


def test_a_class_that_is_missing_is_the_reason() -> None:
    answer = allocate([plain_slice("n1", "g0")], plain_claim())
    assert isinstance(answer, NotAllocated)
    assert "gpu" in str(answer)
