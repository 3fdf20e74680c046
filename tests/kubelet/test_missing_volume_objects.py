"""A pod waits for the ConfigMaps and Secrets that its volumes and variables name, whatever its containers run in."""

import pytest

from dray.client import CONFIG_MAPS, PODS
from dray.kubelet.runtime.isolation import available_isolation
from dray.kubelet.runtime.none import NoRuntime
from dray.kubelet.runtime.process import ProcessRuntime
from tests.kubelet.node_rig import NodeRig

RUNTIMES = ["process", "isolated process", "none"]


@pytest.fixture(params=RUNTIMES)
async def rig(request, tmp_path):
    isolation = available_isolation() if request.param == "isolated process" else None
    if isinstance(isolation, str):
        pytest.skip(isolation)

    def runtime(root, clock):
        return NoRuntime(clock) if request.param == "none" else ProcessRuntime(root, clock, isolation=isolation)

    async with NodeRig(tmp_path, runtime) as rig:
        yield rig


async def create_pod(rig, name, volume=None, *, mounted=True, **container):
    container = {"name": "main", "image": "i", "command": ["sleep", "1000"], **container}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    if volume is not None:
        spec["volumes"] = [{"name": "v", **volume}]
        container["volumeMounts"] = [{"name": "v", "mountPath": "/mnt"}] if mounted else []
    await rig.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")


ABSENT = [
    pytest.param({"secret": {"secretName": "key"}}, 'secret "key" not found', id="secret"),
    pytest.param({"configMap": {"name": "key"}}, 'configmap "key" not found', id="configmap"),
    pytest.param({"projected": {"sources": [{"secret": {"name": "key"}}]}}, 'secret "key" not found', id="projected"),
]


@pytest.mark.parametrize(("volume", "missing"), ABSENT)
async def test_a_volume_of_a_missing_object_keeps_the_pod_waiting(rig, volume, missing):
    await create_pod(rig, "p", volume)
    expected = ("FailedMount", f'MountVolume.SetUp failed for volume "v" : {missing}')

    async def is_told():
        return expected in await rig.events()

    await rig.until(is_told, "the event")
    pod = await rig.pod()
    assert (pod.status.phase, pod.status.container_statuses[0].state.waiting.reason) == ("Pending", "ContainerCreating")
    for plural in ("secrets", "configmaps"):
        await rig.client.raw("POST", f"/api/v1/namespaces/default/{plural}", body=b'{"metadata": {"name": "key"}}')
    await rig.until_phase("Running")


async def test_a_key_that_a_volume_lists_has_to_be_there(rig):
    await rig.client.create(CONFIG_MAPS, {"metadata": {"name": "key"}, "data": {"a": "1"}}, "default")
    await create_pod(rig, "p", {"configMap": {"name": "key", "items": [{"key": "b", "path": "b"}]}})

    async def is_told():
        return any("configmap key references non-existent key: b" in text for _, text in await rig.events())

    await rig.until(is_told, "the event")
    assert (await rig.pod()).status.phase == "Pending"


async def test_what_is_optional_or_not_mounted_is_not_waited_for(rig):
    await create_pod(rig, "optional", {"secret": {"secretName": "key", "optional": True}})
    await create_pod(rig, "unused", {"secret": {"secretName": "key"}}, mounted=False)
    for name in ("optional", "unused"):
        await rig.until_phase("Running", name)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"envFrom": [{"secretRef": {"name": "key"}}]}, id="all-keys"),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "a"}}}]}, id="one-key"
        ),
    ],
)
async def test_variables_of_a_missing_secret_keep_the_container_waiting(rig, fields):
    await create_pod(rig, "p", **fields)
    await rig.until_waiting("CreateContainerConfigError")
    waiting = (await rig.pod()).status.container_statuses[0].state.waiting
    assert waiting.message == 'secret "key" not found'
