"""A whole node, with agent and driver stopped and started at the wrong moments."""

import asyncio
import os

import pytest

from dray.client import CLAIMS, MERGE_PATCH, NODES, PODS, SLICES, TAINT_RULES, Answer, Client, ServerUnreachable
from dray.features import FeatureGates
from dray.kubelet import server
from dray.kubelet.errors import ContainerError
from tests.kubelet.node_rig import FAN, NODE, NodeRig
from tests.waiting import eventually

RIG = NodeRig


async def test_an_agent_that_stops_leaves_no_server_behind(rig):
    served = rig.agent.pod_resources
    assert served.socket.exists()
    await rig.stop_agent()
    assert not served.socket.exists()


async def test_a_pod_whose_driver_is_not_there_waits_and_can_be_deleted(rig):
    await rig.stop_driver()
    await rig.create_pod()
    text = f"Failed to prepare dynamic resources: prepare dynamic resources: DRA driver {FAN} is not registered"

    async def is_told():
        return ("FailedPrepareDynamicResources", text) in await rig.events()

    await rig.until(is_told, "the event")
    assert (await rig.pod()).status.phase == "Pending"
    await rig.delete_pod()
    assert rig.fan.prepared == rig.fan.unprepared == []
    await rig.create_pod("second")
    await rig.until_bound("second")
    await rig.start_driver()
    await rig.until_phase("Running", "second")


async def test_a_container_restarts_without_its_driver(rig):
    await rig.create_pod()
    await rig.until_output(0, "fan=fan-0")
    await rig.stop_driver()
    rig.kill_containers()
    await rig.until_output(1, "fan=fan-0")
    assert len(rig.fan.prepared) == 1


@pytest.mark.parametrize("with_driver", [True, False], ids=["agent-down", "node-down"])
async def test_a_pod_that_was_deleted_while_nobody_looked_leaves_nothing(rig, with_driver):
    """With the driver down as well it is as after a power cut: claims went elsewhere without being given back here."""
    await rig.create_pod()
    await rig.until_phase("Running")
    await rig.stop_agent()
    if not with_driver:
        await rig.stop_driver()
    await rig.delete_pod(force=True)

    async def is_deallocated():
        return not (await rig.client.list(CLAIMS)).items

    await rig.until(is_deallocated, "the claim to be gone")
    await rig.start_agent()
    if not with_driver:
        await rig.start_driver()
    await rig.until_clean()
    assert len(rig.fan.prepared) == 1
    assert set(rig.fan.unprepared) == set(rig.fan.prepared)


async def test_a_pod_that_was_deleted_before_it_was_prepared_is_never_prepared(rig):
    await rig.stop_agent()
    await rig.create_pod()
    await rig.until_bound()
    await rig.delete_pod(force=True)
    await rig.start_agent()
    await rig.create_pod("next")
    await rig.until_phase("Running", "next")
    assert len(rig.fan.prepared) == 1


async def test_a_pod_that_came_while_the_agent_was_down_is_run(rig):
    await rig.stop_agent()
    await rig.create_pod()
    await rig.until_bound()
    await rig.start_agent()
    await rig.until_output(0, "fan=fan-0")


async def test_an_agent_that_starts_removes_slices_and_leaves_claims_alone(rig):
    await rig.create_pod()
    await rig.until_phase("Running")
    (before,) = (await rig.client.list(CLAIMS)).items
    first = {each.metadata.uid for each in await rig.slices()}
    await rig.stop_agent()
    await rig.start_agent()

    async def is_new():
        found = {each.metadata.uid for each in await rig.slices()}
        return found and not found & first

    await rig.until(is_new, "new slices")
    (after,) = (await rig.client.list(CLAIMS)).items
    assert after.status == before.status
    assert (await rig.pod()).status.phase == "Running"


class CanBeAway:
    """Reaches the API server until `is_away`; watches that are open stay open."""

    def __init__(self, inner):
        self._inner = inner
        self.is_away = False

    async def request(self, call):
        if self.is_away:
            raise ServerUnreachable("connection refused")
        return await self._inner.request(call)

    def stream(self, call):
        if self.is_away:
            raise ServerUnreachable("connection refused")
        return self._inner.stream(call)

    async def close(self):
        pass


@pytest.mark.parametrize("restarts_before", [False, True], ids=["same-agent", "agent-restarted"])
async def test_a_container_with_an_attribute_restarts_while_the_api_server_is_away(rig, restarts_before):
    await rig.stop_agent()
    transport = CanBeAway(rig.plane.client("kubelet").transport)
    await rig.start_agent(Client(transport))
    await rig.create_pod()
    await rig.until_output(0, "colour=white")
    if restarts_before:
        await rig.stop_agent()
        await rig.start_agent(Client(transport))
        await rig.until(lambda: rig.agent.find_device(FAN, NODE, "fan-0") is not None, "slices")
        await rig.until(lambda: all(each.claim for each in rig.agent.claims.cache), "claims to be read")
    transport.is_away = True
    rig.kill_containers()
    await rig.until_output(1, "fan=fan-0 colour=white")
    transport.is_away = False


async def test_an_agent_without_dra_does_nothing_for_claims(rig):
    """A pod that was prepared before is still given back, so that its devices are not lost."""
    await rig.create_pod()
    await rig.until_output(0, "fan=fan-0")
    await rig.stop_agent()
    off = FeatureGates.default().without("DynamicResourceAllocation")
    await rig.start_agent(gates=off)
    await rig.create_pod("second")
    await rig.until_output(0, "fan= colour=", "second")
    assert len(rig.fan.prepared) == 1
    rig.kill_containers()
    await rig.until_output(1, "fan= colour=")
    await rig.until(lambda: FAN in rig.agent.drivers.names(), "the driver to be registered")
    await rig.delete_pod()
    assert rig.fan.unprepared == rig.fan.prepared


async def test_an_agent_that_does_not_know_attributes_leaves_the_variable_out(rig):
    """The API server knows the reference all the time; both pods were written before their agent started."""
    off = FeatureGates.default().without("DRADownwardDeviceAttributes")
    for name, gates, said in (("one", off, "fan=fan-0 colour=\n"), ("two", None, "fan=fan-1 colour=white\n")):
        await rig.stop_agent()
        await rig.create_pod(name)
        await rig.start_agent(gates=gates)
        await rig.until_output(0, said, name)


async def test_the_attribute_of_a_device_that_all_nodes_reach(rig):
    rig.fan.is_network_attached = True
    await rig.driver.republish()
    await rig.driver.published()
    await rig.create_pod()
    await rig.until_output(0, "colour=white")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root: run the tests as root to see this one")
async def test_the_attribute_of_a_device_in_a_volume(rig):
    folder = "/var/run/kubernetes.io/fans"
    await rig.create_pod(script=f"echo file=$(cat {folder}/colour)", mount_path=folder)
    await rig.until_output(0, "file=white")
    await rig.delete_pod()
    assert list((rig.root / "n/volumes").iterdir()) == []


async def test_a_volume_with_an_attribute_that_cannot_be_mounted_is_an_error(rig):
    await rig.create_pod(mount_path="/no/such/directory", restartPolicy="Never")
    await rig.until_phase("Failed")
    ended = (await rig.pod()).status.container_statuses[0].state.terminated
    assert ended.reason == "StartError"
    assert ended.message.startswith("volume fans cannot be mounted at /no/such/directory: this needs root")


async def test_a_pod_that_is_not_restarted_fails_when_its_device_has_no_such_attribute(rig):
    await rig.create_pod(attribute="weight", restartPolicy="Never")
    await rig.until_phase("Failed")
    ended = (await rig.pod()).status.container_statuses[0].state.terminated
    assert (ended.exit_code, ended.reason) == (128, "CreateContainerConfigError")
    assert ended.message == f"claim fan, request r: device {FAN}/{NODE}/fan-0 has no attribute weight"
    assert ("Failed", f"Error: {ended.message}") in await rig.events()


class RefusesDeletes:
    """Answers the first calls that would delete slices with errors."""

    def __init__(self, inner, *codes):
        self._inner = inner
        self.codes = list(codes)

    async def request(self, call):
        if call.method == "DELETE" and "resourceslices" in call.path and self.codes:
            code = self.codes.pop(0)
            return Answer(code, {}, b'{"kind":"Status","code":%d,"reason":"x","message":"not now"}' % code)
        return await self._inner.request(call)

    def stream(self, call):
        return self._inner.stream(call)

    async def close(self):
        pass


async def test_slices_that_cannot_be_removed_now_are_removed_later(rig):
    await rig.stop_driver()
    await rig.stop_agent()
    assert await rig.slices()
    transport = RefusesDeletes(rig.plane.client("kubelet").transport, 403, 500)
    await rig.start_agent(Client(transport))

    async def are_gone():
        return not await rig.slices()

    await rig.until(are_gone, "slices to be removed")
    assert transport.codes == []


async def test_an_attribute_that_changes_is_seen_by_containers_that_start_later(rig):
    await rig.create_pod(script="while :; do echo colour=$COLOUR fan=$FAN; sleep 0.1; done")
    await rig.until_output(0, "colour=white")
    rig.fan.colour = "black"
    await rig.driver.republish()
    await rig.driver.published()
    await rig.until(lambda: rig.agent.find_device(FAN, NODE, "fan-0").attributes["colour"].string == "black", "news")
    seen = rig.output(0).count("\n")
    await rig.until(lambda: rig.output(0).count("\n") > seen + 3, "more output")
    assert "black" not in rig.output(0)
    rig.kill_containers()
    await rig.until_output(1, "colour=black")


async def test_a_cdi_file_that_changes_is_seen_by_containers_that_start_later(rig):
    await rig.create_pod(script="while :; do echo fan=$FAN; sleep 0.1; done")
    await rig.until_output(0, "fan=fan-0")
    (path,) = (path for path in (rig.root / "cdi").glob("*.json") if "FAN=" in path.read_text())
    path.write_text(path.read_text().replace("FAN=fan-0", "FAN=changed"))
    seen = rig.output(0).count("\n")
    await rig.until(lambda: rig.output(0).count("\n") > seen + 3, "more output")
    assert "changed" not in rig.output(0)
    rig.kill_containers()
    await rig.until_output(1, "fan=changed")


async def test_without_slices_a_container_waits_for_its_attributes(rig):
    """As between the start of an agent, which removes slices, and the publication of new ones."""
    await rig.create_pod()
    await rig.until_output(0, "colour=white")
    await rig.stop_driver()
    for each in await rig.slices():
        await rig.client.delete(SLICES, each.metadata.name)
    await rig.until(lambda: rig.agent.find_device(FAN, NODE, "fan-0") is None, "the agent to know")
    rig.kill_containers()
    await rig.until_waiting("CreateContainerConfigError")
    text = f"Error: claim fan, request r: no ResourceSlice of this node has device {FAN}/{NODE}/fan-0"

    async def is_told():
        return ("Failed", text) in await rig.events()

    await rig.until(is_told, "the event")
    await rig.start_driver()
    await rig.until_output(1, "colour=white")


async def test_logs_of_a_pod_go_with_it(rig):
    await rig.create_pod()
    await rig.until_output(0, "fan=fan-0")
    await rig.delete_pod()
    await rig.agent.reconcile()
    assert rig.output(0) == ""


async def test_a_node_that_was_deleted_and_is_started_again_is_there_again(rig):
    await rig.stop_driver()
    await rig.stop_agent()
    await rig.client.delete(NODES, NODE)

    async def slices_are_gone():
        return not await rig.slices()

    await rig.until(slices_are_gone, "slices to go with their node")
    await rig.start_agent()
    await rig.start_driver()
    await rig.create_pod()
    await rig.until_phase("Running")


async def test_an_agent_that_starts_again_gives_its_node_the_labels_of_now(rig):
    await rig.stop_agent()
    taken = {"metadata": {"labels": {"kubernetes.io/hostname": None}}}
    await rig.client.patch(NODES, NODE, taken, patch_type=MERGE_PATCH)
    await rig.start_agent()

    async def is_labelled():
        return (await rig.client.get(NODES, NODE)).metadata.labels.get("kubernetes.io/hostname") == NODE

    await rig.until(is_labelled, "the label")


async def test_a_label_of_this_moment_counts(rig):
    """The scheduler sees it at once. A pod that is turned away has failed for good."""
    await rig.client.patch(NODES, NODE, {"metadata": {"labels": {"fast": "yes"}}}, patch_type=MERGE_PATCH)
    await rig.create_pod(nodeSelector={"fast": "yes"})
    await rig.until_phase("Running")


async def test_a_driver_that_is_there_before_its_node_waits_for_it(rig, caplog):
    await rig.stop_driver()
    await rig.stop_agent()
    await rig.client.delete(NODES, NODE)
    starting = asyncio.create_task(rig.start_driver())
    await eventually(lambda: "waits for node" in caplog.text, "the driver to wait for its node")
    assert not starting.done()
    await rig.start_agent()
    await asyncio.wait_for(starting, 30)
    assert {each.metadata.owner_references[0].name for each in await rig.slices()} == {NODE}


async def test_a_driver_is_removed_once_nothing_of_it_is_in_use(rig):
    """Taint its devices, wait until no claim is in use, remove it: nothing hangs."""
    await rig.create_pod()
    await rig.until_phase("Running")
    assert rig.agent.claims.claims_in_use() == {"<any>": 1, FAN: 1}
    taint = {"key": "leaving", "effect": "NoExecute"}
    rule = {"metadata": {"name": "leaving"}, "spec": {"deviceSelector": {"driver": FAN}, "taint": taint}}
    await rig.client.create(TAINT_RULES, rule)
    await rig.until_gone()
    await rig.until(lambda: rig.agent.claims.claims_in_use() == {"<any>": 0}, "nothing to be in use")
    await rig.stop_driver()
    await rig.until_clean()


async def test_the_events_of_a_pod_tell_its_story(rig):
    await rig.create_pod()
    await rig.until_phase("Running")
    await rig.client.delete(PODS, "p", "default", grace_seconds=1)
    await rig.until_gone()

    async def is_told():
        return "Killing" in [reason for reason, _ in await rig.events()]

    await rig.until(is_told, "the last event")
    reasons = [reason for reason, _ in await rig.events()]
    assert {"Scheduled", "Pulled", "Created", "Started", "Killing"} <= set(reasons)


async def test_a_node_whose_container_runtime_is_down_says_so(rig, monkeypatch):
    monkeypatch.setattr(server, "RENEW_EVERY_S", 0.05)

    async def down():
        raise ContainerError("RunContainerError", "Version: connection refused")

    async def ready():
        node = await rig.client.get(NODES, NODE)
        return next((each.status, each.reason, each.message) for each in node.status.conditions if each.type == "Ready")

    await rig.stop_driver()
    await rig.stop_agent()
    await rig.start_agent()
    up, rig.agent._runtime.version = rig.agent._runtime.version, down
    text = "container runtime is down: Version: connection refused"

    async def is_down():
        return await ready() == ("False", "KubeletNotReady", text)

    await rig.until(is_down, "the node not to be ready")
    rig.agent._runtime.version = up

    async def is_up():
        return (await ready())[0] == "True"

    await rig.until(is_up, "the node to be ready again")
