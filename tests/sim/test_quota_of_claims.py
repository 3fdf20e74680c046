"""In `dray up` quotas count what claims take from nodes; a cluster that emulates a release does not."""

import pytest

from dray.client import PODS
from dray.client.kinds import QUOTAS
from dray.features import FeatureGates
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from tests.skew.plane import SkewedPlane
from tests.waiting import eventually


@pytest.mark.parametrize(("emulates", "used"), [(False, "2100m"), (True, "100m")])
async def test_quotas_count_what_claims_take(tmp_path, emulates, used):
    plane = ControlPlane(ControlPlaneOptions(tmp_path, runtime_config="api/all=true", emulates=emulates))
    await plane.start()
    try:
        cluster = SkewedPlane(plane)
        await cluster.make_node()
        await cluster.publish({"name": "d0", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}})
        await cluster.create(QUOTAS, "quota", {"hard": {"requests.cpu": "4"}}, "default")
        await cluster.claim("c")
        await cluster.pod("p", "c")
        assert await cluster.node_of("p") == "n1"

        async def counted():
            status = (await cluster.document(QUOTAS, "quota", "default")).get("status") or {}
            return (status.get("used") or {}).get("requests.cpu") == used

        await eventually(counted, f"requests.cpu {used}")
        statuses = (await cluster.document(PODS, "p", "default"))["status"]["nodeAllocatableResourceClaimStatuses"]
        assert statuses[0]["resources"] == {"cpu": "2"}
    finally:
        await plane.stop()


def test_without_the_gate_nothing_is_counted(tmp_path):
    gates = FeatureGates.default().without("DRANodeAllocatableResources")
    assert not ControlPlaneOptions(tmp_path, gates=gates).quota_counts_claims
