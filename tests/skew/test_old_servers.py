"""Components that know v1 of resource.k8s.io beside a server that has only an older version of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.client import CLAIMS, Client
from dray.client.older_resource_api import OlderResourceApi
from dray.client.transport import Answer, Call
from tests.skew.plane import ON, skewed_plane

OLD = ["v1beta2", "v1beta1"]


def only(version: str) -> str:
    others = ",".join(f"resource.k8s.io/{each}=false" for each in ("v1", *OLD) if each != version)
    return f"{others},resource.k8s.io/{version}=true"


@pytest.mark.parametrize("version", OLD)
async def test_pods_get_devices_from_a_server_without_v1(tmp_path: Path, version: str) -> None:
    async with skewed_plane(tmp_path, controllers=ON, runtime_config=only(version)) as plane:
        await plane.make_node()
        await plane.publish({"name": "d0", "attributes": {"model": {"string": "x"}}}, {"name": "d1"})
        selectors = [{"cel": {"expression": "'model' in device.attributes['d.example.com']"}}]
        await plane.claim("c", selectors=selectors)
        await plane.pod("p", "c")
        assert await plane.node_of("p") == "n1"
        claim = await plane.client.get(CLAIMS, "c", "default")
        assert [row.device for row in claim.status.allocation.devices.results] == ["d0"]
        assert claim.spec.devices.requests[0].exactly.device_class_name == "any"
        raw = await plane.raw("GET", f"/apis/resource.k8s.io/{version}/namespaces/default/resourceclaims/c")
        assert raw["apiVersion"] == f"resource.k8s.io/{version}"
        assert (await plane.report()).is_clean


class ScriptedServer:
    """Knows some versions, and says which were asked for."""

    def __init__(self, *versions: str) -> None:
        self.versions = versions
        self.asked: list[str] = []

    async def request(self, call: Call) -> Answer:
        self.asked.append(call.path)
        version = call.path.split("/")[3]
        if version not in self.versions:
            return Answer(404, {"content-type": "application/json"}, b"{}")
        kind = b'{"apiVersion": "resource.k8s.io/%s", "kind": "ResourceClaim", "metadata": {"name": "c"}}'
        return Answer(200, {"content-type": "application/json"}, kind % version.encode())

    async def close(self) -> None:
        return None


async def test_a_server_with_v1_is_asked_once_which_versions_it_has() -> None:
    server = ScriptedServer("v1", "v1beta1")
    client = Client(OlderResourceApi(server))
    for _ in range(2):
        await client.get(CLAIMS, "c", "default")
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
    assert server.asked == ["/apis/resource.k8s.io/v1", path, path]


async def test_a_server_that_was_upgraded_is_asked_again() -> None:
    server = ScriptedServer("v1beta1")
    client = Client(OlderResourceApi(server))
    await client.get(CLAIMS, "c", "default")
    server.versions = ("v1",)
    assert (await client.get(CLAIMS, "c", "default")).metadata.name == "c"
    assert server.asked[-1] == "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
