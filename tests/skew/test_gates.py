"""Gates that differ between server and scheduler, and gates that were turned off after objects had been written."""

from dray.client import CLAIMS, PODS, SLICES, TEMPLATES
from tests.skew.plane import skewed_plane, without

SHARES = "DRAConsumableCapacity"
LEDGER = "DRANodeAllocatableResources"
SHARED = {"name": "d0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}
ONE_CPU = {"name": "d0", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}
SOME = {"capacity": {"requests": {"memory": "2Gi"}}}


async def results(plane, name):
    status = (await plane.document(CLAIMS, name, "default")).get("status") or {}
    return (status.get("allocation") or {}).get("devices", {}).get("results", [])


async def test_the_scheduler_knows_shares_and_the_server_does_not(tmp_path):
    """What the server drops was never given: the first claim has the device, the second waits."""
    async with skewed_plane(tmp_path, server=without(SHARES, "DRAFractionalCapacityRange")) as plane:
        await plane.make_node()
        await plane.publish(SHARED)
        stored = (await plane.document(SLICES, "slice"))["spec"]["devices"][0]
        assert "allowMultipleAllocations" not in stored
        for name in ("one", "two"):
            await plane.claim(name, **SOME)
            await plane.pod(name, name)
        places = [await plane.node_of(name) for name in ("one", "two")]
        assert sorted(places) == ["", "n1"]
        assert (await plane.report()).is_clean


async def test_the_server_knows_shares_and_the_scheduler_does_not(tmp_path):
    """A scheduler that does not know shares never gives a shareable device twice."""
    scheduler = without(SHARES, "DRAFractionalCapacityRange")
    async with skewed_plane(tmp_path, scheduler=scheduler) as plane:
        await plane.make_node()
        await plane.publish(SHARED)
        for name in ("one", "two"):
            await plane.claim(name)
            await plane.pod(name, name)
            await plane.node_of(name)
        held = [await results(plane, name) for name in ("one", "two")]
        assert sum(bool(each) for each in held) <= 1
        assert (await plane.report()).is_clean


async def test_shares_survive_a_rollback_and_nothing_is_added_to_them(tmp_path):
    """KEP-5075: claims allocated before stay valid; what is left of the device is not given to others any more."""
    async with skewed_plane(tmp_path) as plane:
        await plane.make_node()
        await plane.publish(SHARED)
        await plane.claim("before", **SOME)
        await plane.pod("before", "before")
        assert await plane.node_of("before") == "n1"
        (share,) = await results(plane, "before")
        assert share["shareID"]
        assert share["consumedCapacity"] == {"memory": "2Gi"}
    off = without(SHARES, "DRAFractionalCapacityRange")
    async with skewed_plane(tmp_path, server=off, scheduler=off) as plane:
        assert await results(plane, "before") == [share], "an allocation from before stays as it is"
        labels = {"metadata": {"labels": {"touched": "yes"}}}
        await plane.client.patch(CLAIMS, "before", labels, "default")
        assert await results(plane, "before") == [share], "also when the claim is written"
        await plane.claim("after")
        assert (
            "capacity"
            not in (await plane.document(CLAIMS, "after", "default"))["spec"]["devices"]["requests"][0]["exactly"]
        )
        await plane.pod("after", "after")
        assert await plane.node_of("after") == ""
        assert (await plane.report()).is_clean
    async with skewed_plane(tmp_path) as plane:
        await plane.claim("again", **SOME)
        await plane.pod("again", "again")
        assert await plane.node_of("again") == "n1", "turned on again, the rest of the device is there for others"
        assert (await plane.report()).is_clean


async def test_the_ledger_after_a_rollback(tmp_path):
    """KEP-5517: pods placed before run on; without the gate claims do not count, with it they count again."""
    async with skewed_plane(tmp_path) as plane:
        await plane.make_node(cpu="4")
        await plane.publish(ONE_CPU, ONE_CPU | {"name": "d1"}, ONE_CPU | {"name": "d2"})
        await plane.claim("before")
        await plane.pod("before", "before", cpu="1")
        assert await plane.node_of("before") == "n1"
        recorded = (await plane.document(PODS, "before", "default"))["status"]["nodeAllocatableResourceClaimStatuses"]
        assert recorded[0]["resources"] == {"cpu": "2"}
        await plane.pod("too-much", cpu="2")
        assert await plane.node_of("too-much") == "", "3 of 4 cpus are taken, 2 of them by the claim"
    off = without(LEDGER)
    async with skewed_plane(tmp_path, server=off, scheduler=off) as plane:
        still = (await plane.document(PODS, "before", "default"))["status"]["nodeAllocatableResourceClaimStatuses"]
        assert still == recorded, "what was recorded stays"
        await plane.client.patch(PODS, "before", {"status": {"message": "touched"}}, "default", subresource="status")
        touched = (await plane.document(PODS, "before", "default"))["status"]["nodeAllocatableResourceClaimStatuses"]
        assert touched == recorded
        await plane.claim("unaccounted")
        await plane.pod("unaccounted", "unaccounted", cpu="100m")
        assert await plane.node_of("unaccounted") == "n1"
        status = (await plane.document(PODS, "unaccounted", "default"))["status"]
        assert "nodeAllocatableResourceClaimStatuses" not in status
    async with skewed_plane(tmp_path) as plane:
        await plane.pod("later", cpu="3500m")
        assert await plane.node_of("later") == "", "the claim from before counts again"


async def test_the_scheduler_counts_claims_and_the_server_does_not(tmp_path):
    """The server drops mappings and the pod's record: nothing to count, and nothing breaks."""
    async with skewed_plane(tmp_path, server=without(LEDGER)) as plane:
        await plane.make_node(cpu="4")
        await plane.publish(ONE_CPU)
        assert "nodeAllocatableResourceMappings" not in (await plane.document(SLICES, "slice"))["spec"]["devices"][0]
        await plane.claim("c")
        await plane.pod("p", "c", cpu="1")
        assert await plane.node_of("p") == "n1"
        assert "nodeAllocatableResourceClaimStatuses" not in (await plane.document(PODS, "p", "default"))["status"]
        assert (await plane.report()).is_clean


async def test_the_server_counts_claims_and_the_scheduler_does_not(tmp_path):
    async with skewed_plane(tmp_path, scheduler=without(LEDGER)) as plane:
        await plane.make_node(cpu="4")
        await plane.publish(ONE_CPU)
        await plane.claim("c")
        await plane.pod("p", "c", cpu="3")
        assert await plane.node_of("p") == "n1", "only the spec counts"
        assert (await plane.report()).is_clean


async def test_with_allocation_off_scheduler_and_controllers_do_nothing_for_claims(tmp_path):
    """The pod has its claims from before: it runs without devices, and nobody makes or allocates a claim."""
    off = without("DynamicResourceAllocation")
    async with skewed_plane(tmp_path, scheduler=off, controllers=off) as plane:
        await plane.make_node()
        await plane.publish({"name": "d0"})
        await plane.claim("named")
        await plane.pod("named", "named")
        requests = [{"name": "r", "exactly": {"deviceClassName": "any"}}]
        await plane.create(TEMPLATES, "template", {"spec": {"devices": {"requests": requests}}}, "default")
        entry = {"name": "made", "resourceClaimTemplateName": "template"}
        spec = {"containers": [{"name": "main", "image": "x"}], "resourceClaims": [entry]}
        await plane.create(PODS, "from-template", spec, "default")
        assert [await plane.node_of(name) for name in ("named", "from-template")] == ["n1", "n1"]
        assert await results(plane, "named") == []
        assert "reservedFor" not in ((await plane.document(CLAIMS, "named", "default")).get("status") or {})
        assert [each.metadata.name for each in (await plane.client.list(CLAIMS, "default")).items] == ["named"]


async def test_attributes_in_containers_are_no_matter_for_scheduler_and_controllers(tmp_path):
    """KEP-5304: only the server and the node agent know the field."""
    off = without("DRADownwardDeviceAttributes")
    async with skewed_plane(tmp_path, scheduler=off, controllers=off) as plane:
        await plane.make_node()
        await plane.publish({"name": "d0", "attributes": {"model": {"string": "a"}}})
        requests = [{"name": "r", "exactly": {"deviceClassName": "any"}}]
        await plane.create(TEMPLATES, "template", {"spec": {"devices": {"requests": requests}}}, "default")
        reference = {"claimName": "made", "requestName": "r", "attribute": "model"}
        container = {
            "name": "main",
            "image": "x",
            "env": [{"name": "MODEL", "valueFrom": {"resourceSliceAttributeRef": reference}}],
            "resources": {"claims": [{"name": "made"}]},
        }
        entry = {"name": "made", "resourceClaimTemplateName": "template"}
        await plane.create(PODS, "p", {"containers": [container], "resourceClaims": [entry]}, "default")
        assert await plane.node_of("p") == "n1"
        stored = (await plane.document(PODS, "p", "default"))["spec"]["containers"][0]["env"]
        assert stored == container["env"]
        (claim,) = (await plane.client.list(CLAIMS, "default")).items
        assert [row.device for row in claim.status.allocation.devices.results] == ["d0"]
