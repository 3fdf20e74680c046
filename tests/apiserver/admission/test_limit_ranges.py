"""LimitRanges: what containers are given, and what is beyond the bounds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.admission.world import Document, World, admitted_pod, meta


async def put_range(world: World, kind: str = "Container", **limits: Document) -> None:
    await world.put("LimitRange", "range", "ns", spec={"limits": [{"type": kind, **limits}]})


async def test_containers_get_what_they_leave_open(world: World) -> None:
    await put_range(world, default={"cpu": "1", "memory": "2Gi"}, defaultRequest={"cpu": "500m", "memory": "1Gi"})
    pod = admitted_pod(resources={"requests": {"cpu": "100m"}}, initContainers=[{"name": "init", "image": "x"}])
    given = await world.admit("pods", pod)
    main, init = given["spec"]["containers"][0], given["spec"]["initContainers"][0]
    assert main["resources"] == {
        "requests": {"cpu": "100m", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "2Gi"},
    }
    assert init["resources"] == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "2Gi"},
    }
    assert given["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        f"LimitRanger plugin set: memory request for container {main['name']}; cpu, memory limit for container "
        f"{main['name']}; cpu, memory request for init container init; cpu, memory limit for init container init"
    )


@pytest.mark.parametrize(
    ("kind", "limits", "resources", "expected"),
    [
        pytest.param("Container", {"min": {"cpu": "1"}}, {}, "minimum cpu usage per Container is 1.  No request is specified", id="no-request"),
        pytest.param("Container", {"min": {"cpu": "1"}}, {"requests": {"cpu": "500m"}}, "minimum cpu usage per Container is 1, but request is 500m", id="too-little"),
        pytest.param("Container", {"max": {"memory": "1Gi"}}, {"limits": {"memory": "2Gi"}}, "maximum memory usage per Container is 1Gi, but limit is 2Gi", id="too-much"),
        pytest.param("Container", {"max": {"memory": "1Gi"}}, {}, "maximum memory usage per Container is 1Gi.  No limit is specified", id="no-limit"),
        pytest.param("Container", {"maxLimitRequestRatio": {"cpu": "2"}}, {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}, "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000", id="ratio"),
        pytest.param("Pod", {"max": {"cpu": "1"}}, {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}, "maximum cpu usage per Pod is 1, but limit is 2", id="whole-pod"),
    ],
)  # fmt: skip
async def test_pods_beyond_the_bounds_are_refused(
    world: World, kind: str, limits: dict[str, Any], resources: Document, expected: str
) -> None:
    await put_range(world, kind, **limits)
    error = await world.refused("pods", admitted_pod(resources=resources))
    assert (error.code, error.message) == (403, f'pods "p" is forbidden: {expected}')


async def test_volume_claims_have_bounds(world: World) -> None:
    await put_range(world, "PersistentVolumeClaim", min={"storage": "1Gi"}, max={"storage": "3Gi"})

    def a_volume_claim(size: str) -> Document:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("c"), "spec": spec}

    await world.admit("persistentvolumeclaims", a_volume_claim("2Gi"))
    error = await world.refused("persistentvolumeclaims", a_volume_claim("4Gi"))
    assert error.message.endswith("maximum storage usage per PersistentVolumeClaim is 3Gi, but request is 4Gi")
    error = await world.refused("persistentvolumeclaims", a_volume_claim("500Mi"))
    assert error.message.endswith("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi")


async def test_bounds_are_told_in_their_order(world: World) -> None:
    await put_range(world, "Container", min={"cpu": "1"}, maxLimitRequestRatio={"cpu": "2"})
    error = await world.refused("pods", admitted_pod(resources={"limits": {"cpu": "3"}, "requests": {"cpu": "500m"}}))
    assert error.message == (
        'pods "p" is forbidden: [minimum cpu usage per Container is 1, but request is 500m, '
        "cpu max limit to request ratio per Container is 2, but provided ratio is 6.000000]"
    )
