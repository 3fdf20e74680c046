"""Files that others write: kubeconfigs, CDI files, checkpoints, dumps, recorded histories."""

# ruff: noqa: PT017 - an answer and a refusal are both fine here

import os
import tempfile
from pathlib import Path

import click
import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dray.cli.cluster_source import read_dump
from dray.client.credentials import Proof
from dray.client.errors import CredentialsError, KubeconfigError
from dray.client.https import ssl_context
from dray.client.kubeconfig import load_connection
from dray.driver.claim_files import Checkpoint
from dray.kubelet.checkpoint import CheckpointCorrupt, CheckpointFile
from dray.kubelet.claims import PreparedClaim
from dray.kubelet.container_specs import CdiDirectories
from dray.kubelet.errors import ContainerError
from dray.proof import History
from dray.validation import ValidationContext
from tests.fuzz.mutations import ANY_BYTES, almost, almost_text

EXAMPLES = int(os.environ.get("DRAY_FUZZ_EXAMPLES", "60"))
fuzzed = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
    "clusters": [
        {
            "name": "k",
            "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": "QQ==", "proxy-url": ""},
        }
    ],
    "users": [
        {
            "name": "u",
            "user": {
                "client-certificate-data": "QQ==",
                "client-key-data": "QQ==",
                "token": "t",
                "tokenFile": "x",
                "username": "a",
                "password": "b",
                "exec": {
                    "command": "x",
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "args": ["a"],
                    "env": [{"name": "A", "value": "B"}],
                },
            },
        }
    ],
}
CDI = {
    "cdiVersion": "0.6.0",
    "kind": "example.com/gpu",
    "devices": [
        {
            "name": "g0",
            "containerEdits": {
                "env": ["A=B"],
                "deviceNodes": [
                    {
                        "path": "/dev/null",
                        "hostPath": "/dev/null",
                        "type": "c",
                        "major": 1,
                        "minor": 3,
                        "permissions": "rw",
                    }
                ],
                "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
                "hooks": [{"hookName": "prestart", "path": "/bin/true", "args": ["x"], "env": ["A=B"], "timeout": 1}],
            },
        }
    ],
    "containerEdits": {"env": ["C=D"]},
}
CLAIM_NOTE = {
    "DriverState": {
        "gpu.example.com": {
            "Devices": [{"PoolName": "p", "DeviceName": "d", "RequestNames": ["r"], "CDIDeviceIDs": ["a/b=c"]}]
        }
    },
    "ClaimUID": "u",
    "ClaimName": "c",
    "Namespace": "n",
    "PodUIDs": {"p": {}},
}
PREPARED = {
    "claims": {
        "uid": {
            "namespace": "n",
            "name": "c",
            "devices": [{"requests": ["r"], "pool": "p", "device": "d", "cdi_device_ids": ["a/b=c"]}],
        }
    }
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": "1"}}}], "resourceClaims": [{"name": "c"}]},
}
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "d.example.com",
        "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d", "attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}],
    },
}


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory(prefix="dray-z") as name:
        yield Path(name)


@fuzzed
@given(content=almost_text(KUBECONFIG) | ANY_BYTES)
def test_kubeconfigs(folder, content):
    path = folder / "kubeconfig"
    path.write_bytes(content)
    try:
        ssl_context(load_connection(path), Proof())
    except (KubeconfigError, CredentialsError) as error:
        assert str(error)


LONE_SURROGATE = b'{"kind":"","devices":"\\ud80000cdu","":{"":[""]}}'


@fuzzed
@example(content=LONE_SURROGATE, suffix=".yaml")
@given(
    content=almost_text(CDI) | almost_text(CDI, as_json=True) | ANY_BYTES, suffix=st.sampled_from([".json", ".yaml"])
)
def test_cdi_files(folder, content, suffix):
    """A broken file is left out; what others say stays usable."""
    cdi = folder / "cdi"
    cdi.mkdir(exist_ok=True)
    good = cdi / "good.json"
    good.write_bytes(msgspec.json.encode(CDI | {"kind": "example.com/good"}))
    broken = cdi / f"fuzzed{suffix}"
    broken.write_bytes(content)
    try:
        directories = CdiDirectories([cdi])
        assert directories.edits_for(["example.com/good=g0"]).env
        try:
            directories.edits_for(["example.com/gpu=g0"])
        except ContainerError as error:
            assert str(error)
    finally:
        broken.unlink()


@fuzzed
@given(note=almost(CLAIM_NOTE), right_sum=st.booleans(), raw=st.none() | ANY_BYTES)
def test_checkpoints_of_the_node_agent(folder, note, right_sum, raw):
    import json
    import zlib

    root = folder / "agent"
    root.mkdir(exist_ok=True)
    try:
        data = json.dumps({"kind": "DRACheckpoint", "ClaimInfoStateList": [note]})
        envelope = json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode()) if right_sum else 1}).encode()
    except (ValueError, UnicodeEncodeError):
        return
    file = CheckpointFile(root)
    file.path.write_bytes(raw if raw is not None else envelope)
    try:
        states = file.read()
    except CheckpointCorrupt as error:
        assert str(file.path) in str(error)
        return
    assert all(isinstance(each, PreparedClaim) for each in states)
    file.write(states)
    assert file.read() == states


@fuzzed
@given(content=almost_text(PREPARED, as_json=True) | ANY_BYTES)
def test_checkpoints_of_drivers(folder, content):
    path = folder / "prepared.json"
    path.write_bytes(content)
    checkpoint = Checkpoint(path)
    for uid, claim in checkpoint.claims().items():
        assert isinstance(uid, str)
        assert claim.devices is not None
    checkpoint.remove("uid")


@fuzzed
@given(
    parts=st.lists(almost_text(POD) | almost_text(SLICE) | ANY_BYTES, min_size=1, max_size=3), keep_going=st.booleans()
)
def test_dumps(folder, parts, keep_going):
    path = folder / "dump.yaml"
    path.write_bytes(b"\n---\n".join(parts))
    try:
        dump = read_dump([str(path)], check=ValidationContext(), keep_going=keep_going)
        assert len(dump) <= 3 * 3
    except click.ClickException as error:
        assert error.message
        assert not keep_going


@fuzzed
@given(content=ANY_BYTES)
def test_histories(folder, content):
    path = folder / "history"
    path.write_bytes(content)
    try:
        assert len(History.load(path)) >= 0
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        assert str(error)
