"""A pod with one claim is bound in the commit that stores its claim, where the server is a part of the same program."""

import pytest
from tests.builders.manifests import a_device
from tests.scheduler.test_extension_points import Watcher
from tests.scheduler.test_through_the_api import GPU_CLASS, ONE_GPU, Cluster, full_node, gpu_pod, gpus, plain_pod

from dray.api.joint_writes import PATH
from dray.apiserver.errors import ApiError
from dray.apiserver.server import failure
from dray.client import CLAIMS
from dray.scheduler.framework.profile import PluginsByPoint, SchedulingProfile
from dray.scheduler.plugins.pod_spec_plugins import DefaultBinder
from dray.scheduler.service import JOINED_WRITES, MOST_BINDINGS
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions


class JointWrites:
    """Notes joint writes on their way from the scheduler to the server; the first `refusals` of them are answered with a conflict."""

    def __init__(self, plane, refusals=0):
        self._handle = plane.running.server.handle
        self._now = self.most = self.count = 0
        self._refusals = refusals
        plane.scheduler.client.transport._handle = self.handle

    async def handle(self, request):
        if request.path != PATH:
            return await self._handle(request)
        self.count += 1
        if self.count <= self._refusals:
            return failure(ApiError(409, "Conflict", "somebody was quicker"))
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            return await self._handle(request)
        finally:
            self._now -= 1


@pytest.fixture
async def cluster(tmp_path):
    plane = ControlPlane(ControlPlaneOptions(tmp_path / "data"))
    await plane.start()
    try:
        yield Cluster(plane)
    finally:
        await plane.stop()


async def claim_of(cluster, pod):
    return await cluster.client.get(CLAIMS, pod.status.resource_claim_statuses[0].resource_claim_name, "default")


async def test_pod_and_claim_are_stored_at_one_revision(cluster):
    writes = JointWrites(cluster.plane)
    await cluster.apply(full_node(), gpus("node1", 1), GPU_CLASS, ONE_GPU, gpu_pod("first"))
    pod = await cluster.bound("first")
    claim = await claim_of(cluster, pod)
    assert claim.metadata.resource_version == pod.metadata.resource_version
    assert [user.uid for user in claim.status.reserved_for] == [pod.metadata.uid]
    assert claim.metadata.finalizers
    assert writes.count == 1


async def test_a_pod_whose_joint_write_is_refused_is_bound_one_write_after_the_other(cluster):
    writes = JointWrites(cluster.plane, refusals=1)
    await cluster.apply(full_node(), gpus("node1", 1), GPU_CLASS, ONE_GPU, gpu_pod("first"))
    pod = await cluster.bound("first")
    claim = await claim_of(cluster, pod)
    assert int(claim.metadata.resource_version) < int(pod.metadata.resource_version)
    assert [user.uid for user in claim.status.reserved_for] == [pod.metadata.uid]
    assert writes.count == 1


async def test_the_next_pod_gets_another_device_before_the_watch_has_shown_the_first(cluster):
    await cluster.apply(full_node(), gpus("node1", 20), GPU_CLASS, ONE_GPU, *(gpu_pod(f"p{at}") for at in range(20)))
    pods = [await cluster.bound(f"p{at}") for at in range(20)]
    claims = [await claim_of(cluster, pod) for pod in pods]
    assert len({claim.status.allocation.devices.results[0].device for claim in claims}) == 20


async def test_few_pods_with_claims_are_bound_at_a_time(cluster):
    writes = JointWrites(cluster.plane)
    names = [f"p{at}" for at in range(4 * MOST_BINDINGS)]
    await cluster.apply(full_node(), GPU_CLASS, ONE_GPU, *(gpu_pod(name) for name in names))
    counts = cluster.plane.scheduler.scheduler.queue.counts

    async def all_wait():
        return sum(counts.values()) == len(names)

    await cluster.until(all_wait)
    await cluster.apply(gpus("node1", len(names)))
    for name in names:
        await cluster.bound(name)
    assert 1 < writes.most <= MOST_BINDINGS / JOINED_WRITES


async def test_pods_with_several_claims_or_none_are_bound_by_single_writes(cluster):
    writes = JointWrites(cluster.plane)
    both = gpu_pod("both")
    both["spec"]["resourceClaims"].append({"name": "other", "resourceClaimTemplateName": "one-gpu"})
    await cluster.apply(full_node(), gpus("node1", 2), GPU_CLASS, ONE_GPU, both, plain_pod("plain"))
    await cluster.bound("both")
    await cluster.bound("plain")
    assert writes.count == 0


async def test_a_pod_whose_device_must_be_made_ready_is_not_bound_with_its_claim(cluster):
    writes = JointWrites(cluster.plane)
    slow = gpus("node1", 1)
    slow["spec"]["devices"] = [a_device("gpu-0", bindingConditions=["attached"], bindingFailureConditions=["broken"])]
    await cluster.apply(full_node(), slow, GPU_CLASS, ONE_GPU, gpu_pod("slow"))

    async def waits():
        return cluster.plane.scheduler.scheduler.handle.waiting == 1

    await cluster.until(waits)
    assert writes.count == 0


class OtherBinder:
    name = "OtherBinder"

    async def bind(self, cycle, pod, node_name):
        return None


@pytest.mark.parametrize(
    ("pre_bind", "bind", "expected"),
    [
        pytest.param([Watcher()], [DefaultBinder(None)], True, id="one-plugin-and-the-default"),
        pytest.param([Watcher(), Watcher("second")], [DefaultBinder(None)], False, id="another-plugin-comes-between"),
        pytest.param([Watcher()], [OtherBinder(), DefaultBinder(None)], False, id="another-plugin-binds"),
        pytest.param([Watcher()], [], False, id="nobody-binds"),
        pytest.param([], [DefaultBinder(None)], False, id="nobody-stores-claims"),
    ],
)
def test_when_the_last_plugin_before_the_binding_may_bind(pre_bind, bind, expected):
    at = PluginsByPoint(pre_bind=tuple(pre_bind), bind=tuple(bind))
    assert SchedulingProfile("s", at, {}, 0).binds_by_default is expected
