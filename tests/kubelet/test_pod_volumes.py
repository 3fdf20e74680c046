"""Volumes for containers with a file system of their own."""

import base64
import stat

import msgspec
import pytest

from dray.api import codec
from dray.api.core import HostPathVolumeSource, Pod
from dray.client.rest import Answer
from dray.clock import SimulatedClock
from dray.kubelet.container_specs import VolumeFolders
from dray.kubelet.environment import EnvironmentSources
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.isolation import available_isolation
from dray.kubelet.volumes import PodVolumes, host_path
from tests.builders.manifests import a_container, a_pod
from tests.waiting import eventually, let_others_run

OBJECTS = {
    ("ConfigMap", "settings"): {"data": {"a": "1", "b": "2"}, "binaryData": {"raw": base64.b64encode(b"\0").decode()}},
    ("Secret", "key"): {"data": {"password": base64.b64encode(b"hush").decode()}},
}


class TokenApi:
    """Answers requests for tokens, each with another one."""

    def __init__(self):
        self.clock = SimulatedClock()
        self.asked = []

    async def raw(self, method, path, *, body=b"", **_):
        self.asked.append((path, msgspec.json.decode(body)["spec"]))
        return Answer(201, {}, msgspec.json.encode({"status": {"token": f"token-{len(self.asked)}"}}))


async def read(kind, name, namespace):
    return OBJECTS.get((kind, name))


@pytest.fixture
def api():
    return TokenApi()


@pytest.fixture
def volumes(tmp_path, api):
    return PodVolumes(api, tmp_path / "volumes", read)


def pod_with(*given, mounts=None, **spec):
    named = [{"name": f"v{number}", **source} for number, source in enumerate(given)]
    mounts = mounts or [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in named]
    container = a_container("c", volumeMounts=mounts)
    document = a_pod("p", container, namespace="ns", uid="uid", labels={"app": "x"}, volumes=named, **spec)
    return codec.to_object(document, Pod)


async def mounted(volumes, pod):
    return await volumes.mounts(pod, pod.spec.containers[0], EnvironmentSources())


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_config_maps_and_secrets_are_files_that_nobody_changes(volumes):
    pod = pod_with({"configMap": {"name": "settings"}}, {"secret": {"secretName": "key", "defaultMode": 0o400}})
    settings, key = await mounted(volumes, pod)
    assert files(settings.folder) == {"a": b"1", "b": b"2", "raw": b"\0"}
    assert files(key.folder) == {"password": b"hush"}
    assert stat.S_IMODE((key.folder / "password").stat().st_mode) == 0o400
    assert (settings.mount_path, settings.is_read_only, key.is_read_only) == ("/v0", True, True)


async def test_a_file_of_a_volume_never_runs_as_its_owner(volumes):
    """The owner is the agent, and the content is a tenant's."""
    item = {"key": "raw", "path": "program", "mode": 0o6755}
    pod = pod_with(
        {"configMap": {"name": "settings", "items": [item]}}, {"secret": {"secretName": "key", "defaultMode": 0o4755}}
    )
    program, key = await mounted(volumes, pod)
    assert stat.S_IMODE((program.folder / "program").stat().st_mode) == 0o755
    assert stat.S_IMODE((key.folder / "password").stat().st_mode) == 0o755


async def test_keys_are_chosen_and_have_paths(volumes):
    items = [{"key": "a", "path": "deep/one", "mode": 0o600}]
    [found] = await mounted(volumes, pod_with({"configMap": {"name": "settings", "items": items}}))
    assert files(found.folder) == {"deep/one": b"1"}
    assert stat.S_IMODE((found.folder / "deep/one").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
        ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
        ({"configMap": {"name": "settings", "items": [{"key": "z", "path": "z"}]}}, "non-existent key: z"),
        ({"configMap": {"name": "settings", "items": [{"key": "a", "path": "../z"}]}}, "must be a relative path"),
        ({"hostPath": {"path": "/dev/null", "type": "Directory"}}, "/dev/null is not a directory"),
        ({"persistentVolumeClaim": {"claimName": "disk"}}, "of a type that this node agent does not serve"),
    ],
)
async def test_what_cannot_be_mounted_keeps_the_container_waiting(volumes, source, message):
    with pytest.raises(ContainerError, match=message) as caught:
        await mounted(volumes, pod_with(source))
    assert caught.value.reason == "CreateContainerConfigError"


async def test_optional_objects_may_be_missing(volumes):
    pod = pod_with(
        {"configMap": {"name": "none", "optional": True}}, {"secret": {"secretName": "none", "optional": True}}
    )
    assert [files(each.folder) for each in await mounted(volumes, pod)] == [{}, {}]


async def test_an_empty_folder_stays_while_containers_restart(volumes):
    pod = pod_with({"emptyDir": {}}, securityContext={"fsGroup": 4321})
    [first] = await mounted(volumes, pod)
    (first.folder / "left").write_text("here")
    [second] = await mounted(volumes, pod)
    assert files(second.folder) == {"left": b"here"}
    status = second.folder.stat()
    assert (status.st_gid, stat.S_IMODE(status.st_mode), second.is_read_only) == (4321, 0o2777, False)


async def test_sources_are_projected_into_one_folder(volumes, api):
    sources = [
        {"configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}},
        {"secret": {"name": "key"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "vault"}},
    ]
    [found] = await mounted(volumes, pod_with({"projected": {"sources": sources}}, serviceAccountName="robot"))
    assert files(found.folder) == {"a": b"1", "password": b"hush", "name": b"p", "token": b"token-1"}
    [(path, spec)] = api.asked
    assert path == "/api/v1/namespaces/ns/serviceaccounts/robot/token"
    assert spec["boundObjectRef"] == {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid"}
    assert (spec["audiences"], spec["expirationSeconds"]) == (["vault"], 600)
    volumes.forget("uid")


async def test_tokens_are_renewed_until_the_pod_has_left(volumes, api):
    sources = [{"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]
    [found] = await mounted(volumes, pod_with({"projected": {"sources": sources}}))
    await let_others_run()
    await api.clock.advance(481)
    await eventually(lambda: files(found.folder)["token"] == b"token-2", "a new token")
    volumes.forget("uid")
    await let_others_run()
    await api.clock.advance(1000)
    await let_others_run()
    assert len(api.asked) == 2


@pytest.mark.skipif(isinstance(available_isolation(), str), reason=str(available_isolation()))
async def test_a_part_of_a_volume_is_mounted_and_nothing_outside(volumes, tmp_path):
    mounts = [{"name": "v0", "mountPath": "/here", "subPath": "inner"}]
    [found] = await mounted(volumes, pod_with({"emptyDir": {}}, mounts=mounts))
    inner = tmp_path / "volumes" / "uid" / "v0" / "inner"
    assert found.folder.samefile(inner)
    inner.rmdir()
    inner.symlink_to(tmp_path)
    with pytest.raises(ContainerError, match="must not lead out of the volume"):
        await mounted(volumes, pod_with({"emptyDir": {}}, mounts=mounts))
    mounts[0]["subPath"] = "inner/made/by/root"
    with pytest.raises(ContainerError, match="must not lead out of the volume"):
        await mounted(volumes, pod_with({"emptyDir": {}}, mounts=mounts))
    assert not (tmp_path / "made").exists()
    mounts[0]["subPath"] = "../out"
    with pytest.raises(ContainerError, match=r'subPath "\.\./out": must be a relative path'):
        await mounted(volumes, pod_with({"emptyDir": {}}, mounts=mounts))
    VolumeFolders(tmp_path / "volumes").remove("uid")


def test_folders_of_the_node_are_made_where_the_volume_says_so(tmp_path):
    made = host_path(HostPathVolumeSource(path=str(tmp_path / "a/b"), type="DirectoryOrCreate"), "v")
    assert made.is_dir()
    assert host_path(HostPathVolumeSource(path=str(tmp_path / "f"), type="FileOrCreate"), "v").is_file()
