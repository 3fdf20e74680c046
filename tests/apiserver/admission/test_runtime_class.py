"""RuntimeClasses: pods name one that is defined, and get what it says."""

from typing import Any

import pytest
from tests.apiserver.admission.world import Document, World, admitted_pod

from dray.apiserver.write.admission.pod_runtime_plugins import MOST_COMPARED, _merged


async def admitted_spec(world: World, **spec: Any) -> Document:
    pod = await world.admit("pods", admitted_pod(**spec))
    assert pod is not None
    found: Document = pod["spec"]
    return found


async def test_a_runtime_that_nobody_defined(world: World) -> None:
    for name in ("ghost", ""):
        error = await world.refused("pods", admitted_pod(runtimeClassName=name))
        assert (error.code, error.message) == (
            403,
            f'pods "p" is forbidden: pod rejected: RuntimeClass "{name}" not found',
        )


async def test_the_class_says_what_the_runtime_takes(world: World) -> None:
    await world.put("RuntimeClass", "vm", handler="vm", overhead={"podFixed": {"cpu": "250m", "memory": "64Mi"}})
    spec = await admitted_spec(world, runtimeClassName="vm")
    assert spec["overhead"] == {"cpu": "250m", "memory": "64Mi"}
    same = await admitted_spec(world, runtimeClassName="vm", overhead={"cpu": "0.25", "memory": "65536Ki"})
    assert same["overhead"] == {"cpu": "250m", "memory": "64Mi"}
    for other in ({"cpu": "250m"}, {"cpu": "250m", "memory": "65Mi"}):
        error = await world.refused("pods", admitted_pod(runtimeClassName="vm", overhead=other))
        assert error.message == (
            "pods \"p\" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        )


async def test_overhead_without_a_class_that_says_so(world: World) -> None:
    await world.put("RuntimeClass", "plain", handler="runc")
    assert "overhead" not in await admitted_spec(world, runtimeClassName="plain")
    for spec in ({}, {"runtimeClassName": "plain"}):
        error = await world.refused("pods", admitted_pod(overhead={"cpu": "1"}, **spec))
        assert error.message == (
            'pods "p" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead'
        )


async def test_the_class_says_which_nodes_have_the_runtime(world: World) -> None:
    gpu = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    scheduling = {"nodeSelector": {"runtime": "vm"}, "tolerations": [gpu]}
    await world.put("RuntimeClass", "vm", handler="vm", scheduling=scheduling)
    spec = await admitted_spec(world, runtimeClassName="vm", nodeSelector={"zone": "a"})
    assert spec["nodeSelector"] == {"zone": "a", "runtime": "vm"}
    assert spec["tolerations"][-1] == gpu
    assert len(spec["tolerations"]) == 3
    again = await admitted_spec(world, runtimeClassName="vm", nodeSelector={"runtime": "vm"}, tolerations=[gpu])
    assert [entry["key"] for entry in again["tolerations"]].count("gpu") == 1
    error = await world.refused("pods", admitted_pod(runtimeClassName="vm", nodeSelector={"runtime": "runc"}))
    assert error.message == (
        'pods "p" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[runtime] = vm; '
        "pod.spec.nodeSelector[runtime] = runc"
    )


def toleration(key: str = "", operator: str = "Exists", **more: Any) -> Document:
    return {"key": key, "operator": operator, **more}


A = toleration("a", "Equal", value="1")


@pytest.mark.parametrize(
    ("own", "more", "expected"),
    [
        ([A], [A], [A]),
        ([A], [toleration("a")], [toleration("a")]),
        ([toleration("a")], [A], [toleration("a")]),
        ([A], [toleration()], [toleration()]),
        ([A], [toleration("b")], [A, toleration("b")]),
        ([A], [toleration("a", "Equal", value="2")], [A, toleration("a", "Equal", value="2")]),
        ([{**A, "effect": "NoSchedule"}], [A], [A]),
        ([A], [{**A, "effect": "NoSchedule"}], [A]),
        (
            [toleration("a", effect="NoExecute", tolerationSeconds=5)],
            [toleration("a", effect="NoExecute", tolerationSeconds=9)],
            [toleration("a", effect="NoExecute", tolerationSeconds=9)],
        ),
        (
            [toleration("a", effect="NoExecute")],
            [toleration("a", effect="NoExecute", tolerationSeconds=9)],
            [toleration("a", effect="NoExecute")],
        ),
        ([A], [toleration("a", "Gt", value="1")], [A, toleration("a", "Gt", value="1")]),
    ],
)
def test_a_toleration_that_another_includes_is_dropped(
    own: list[Document], more: list[Document], expected: list[Document]
) -> None:
    assert _merged(own, more) == expected


def test_very_many_tolerations_are_not_compared() -> None:
    assert len(_merged([A] * MOST_COMPARED, [A])) == MOST_COMPARED + 1
    assert _merged([A] * (MOST_COMPARED - 1), [A]) == [A]


async def test_no_overhead_is_overhead_too(world: World) -> None:
    error = await world.refused("pods", admitted_pod(overhead={}))
    assert error.message.endswith("Pod Overhead set without corresponding RuntimeClass defined Overhead")
