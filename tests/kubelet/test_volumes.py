"""Downward API volumes: which files they have, and what happens when one cannot be written or mounted."""

import pytest

from dray.api.codec import to_object
from dray.api.core import Pod
from dray.kubelet.container_specs import VolumeFolders
from dray.kubelet.environment import EnvironmentSources
from dray.kubelet.errors import ContainerError
from tests.builders.manifests import a_container, a_pod
from tests.kubelet.test_environment import DEVICES, claim_of

MODEL = {"claimName": "gpus", "requestName": "r", "attribute": "uuid"}


def sources(**fields):
    return EnvironmentSources(
        claims={"gpus": claim_of("gpu-0", "gpu-1")},
        find_device=lambda driver, pool, name: DEVICES.get(name),
        **fields,
    )


def pod_with(volume):
    container = a_container("c", volumeMounts=[{"name": "info", "mountPath": "/info"}])
    document = a_pod("p", container, namespace="ns", uid="u", volumes=[{"name": "info", **volume}])
    document["metadata"]["labels"] = {"b": "2", "a": '"1"'}
    return to_object(document, Pod)


def written(tmp_path, volume, **fields):
    pod = pod_with(volume)
    volumes = VolumeFolders(tmp_path).write(pod, pod.spec.containers[0], sources(**fields))
    return volumes, {
        str(path.relative_to(tmp_path / "u/info")): path.read_text()
        for path in (tmp_path / "u/info").rglob("*")
        if path.is_file()
    }


ITEMS = {
    "items": [
        {"path": "gpu/uuid", "resourceSliceAttributeRef": MODEL, "mode": 0o400},
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
    ]
}


@pytest.mark.parametrize(
    "volume",
    [
        pytest.param({"downwardAPI": ITEMS}, id="downward-api"),
        pytest.param({"projected": {"sources": [{"secret": {"name": "s"}}, {"downwardAPI": ITEMS}]}}, id="projected"),
    ],
)
def test_files_of_a_volume(tmp_path, volume):
    (mounted,), files = written(tmp_path, volume)
    assert files == {"gpu/uuid": "a,b", "labels": 'a="\\"1\\""\nb="2"', "name": "p"}
    assert (tmp_path / "u/info/gpu/uuid").stat().st_mode & 0o777 == 0o400
    assert (mounted.folder, mounted.mount_path, mounted.is_required) == (tmp_path / "u/info", "/info", True)


def test_the_gate_leaves_the_file_out(tmp_path):
    _, files = written(tmp_path, {"downwardAPI": ITEMS}, device_attributes_enabled=False)
    assert files.keys() == {"labels", "name"}


def test_a_missing_attribute_fails_the_container(tmp_path):
    item = {"path": "x", "resourceSliceAttributeRef": MODEL | {"attribute": "weight"}}
    with pytest.raises(ContainerError, match="gpu-0 has no attribute weight"):
        written(tmp_path, {"downwardAPI": {"items": [item]}})


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", ""])
def test_no_file_is_written_outside_its_volume(tmp_path, path):
    item = {"path": path, "fieldRef": {"fieldPath": "metadata.name"}}
    with pytest.raises(ContainerError, match="must be a relative path"):
        written(tmp_path, {"downwardAPI": {"items": [item]}})


def test_volumes_of_other_types_are_not_served(tmp_path):
    volumes, files = written(tmp_path, {"emptyDir": {}})
    assert (volumes, files) == ((), {})
