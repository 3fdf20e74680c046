"""Clients that speak v1beta1 or v1beta2 beside components that speak v1."""

import msgspec
import pytest

from dray.client import CLAIMS, SLICES
from dray.client.errors import ApiError
from tests.skew.plane import skewed_plane

OLD = ["v1beta1", "v1beta2"]


def a_claim_in(version: str, name: str) -> bytes:
    request = {"name": "r", "deviceClassName": "any"}
    if version == "v1beta2":
        request = {"name": "r", "exactly": {"deviceClassName": "any"}}
    document = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }
    return msgspec.json.encode(document)


@pytest.mark.parametrize("version", OLD)
async def test_a_claim_of_an_old_client_is_allocated_and_read_in_every_version(tmp_path, version):
    async with skewed_plane(tmp_path) as plane:
        await plane.make_node()
        await plane.publish({"name": "d0"})
        path = f"/apis/resource.k8s.io/{version}/namespaces/default/resourceclaims"
        await plane.raw("POST", path, a_claim_in(version, "c"))
        await plane.pod("p", "c")
        assert await plane.node_of("p") == "n1"
        found = {
            each: await plane.raw("GET", f"/apis/resource.k8s.io/{each}/namespaces/default/resourceclaims/c")
            for each in ("v1", *OLD)
        }
        devices = {each: found[each]["status"]["allocation"]["devices"]["results"][0]["device"] for each in found}
        assert devices == dict.fromkeys(found, "d0")
        assert found["v1beta1"]["spec"]["devices"]["requests"][0]["deviceClassName"] == "any"
        assert found["v1"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "any"
        assert (await plane.report()).is_clean


@pytest.mark.parametrize("version", OLD)
async def test_reading_and_writing_back_in_an_old_version_loses_nothing(tmp_path, version):
    """Also what only newer gates know: a slice with capacities, counters, taints and mappings."""
    rich = {
        "name": "d0",
        "attributes": {"model": {"string": "x"}},
        "capacity": {"memory": {"value": "8Gi", "requestPolicy": {"default": "1Gi", "validValues": ["1Gi", "2Gi"]}}},
        "allowMultipleAllocations": True,
        "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2024-01-01T00:00:00Z"}],
        "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}},
    }
    async with skewed_plane(tmp_path, scheduler=None) as plane:
        await plane.publish(rich)
        before = await plane.document(SLICES, "slice")
        path = f"/apis/resource.k8s.io/{version}/resourceslices/slice"
        old = await plane.raw("GET", path)
        old["metadata"]["labels"] = {"touched": "yes"}
        await plane.raw("PUT", path, msgspec.json.encode(old))
        after = await plane.document(SLICES, "slice")
        assert after["spec"] == before["spec"]
        assert after["metadata"]["labels"] == {"touched": "yes"}


async def test_an_old_client_cannot_lose_an_allocation_by_a_stale_write(tmp_path):
    async with skewed_plane(tmp_path) as plane:
        await plane.make_node()
        await plane.publish({"name": "d0"})
        await plane.claim("c")
        path = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims/c"
        stale = await plane.raw("GET", path)
        await plane.pod("p", "c")
        assert await plane.node_of("p") == "n1"
        with pytest.raises(ApiError) as refused:
            await plane.raw("PUT", f"{path}/status", msgspec.json.encode(stale))
        assert refused.value.is_conflict
        stored = await plane.document(CLAIMS, "c", "default")
        assert stored["status"]["allocation"]["devices"]["results"][0]["device"] == "d0"
