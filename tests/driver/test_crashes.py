"""Drivers that are killed between two writes, lose their sockets, or are updated while claims are prepared."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import grpc
import pytest
from tests.driver.driver_rig import DRIVER, DriverRig, RecordingDriver, allocated_claim
from tests.waiting import eventually

from dray.client import CLAIMS, NAMESPACES, NODES, SLICES, Client
from dray.driver import ClaimReference, DriverPaths, RunningDriver
from dray.driver import running_driver as running_room
from dray.driver.claim_files import CdiFiles, Checkpoint, DeviceMetadata
from dray.driver.prepare import ClaimPreparer
from dray.proto import dra_v1_pb2, dra_v1_pb2_grpc, pluginregistration_pb2, pluginregistration_pb2_grpc


@pytest.fixture
async def rig(tmp_path):
    """Not started: each test begins the first life itself."""
    rig = DriverRig(tmp_path)
    yield rig
    await rig.server.stop()


class Killed(BaseException):
    """What no driver code catches."""


def a_life(rig):
    """What a driver does behind its sockets; gRPC would not survive the death of its servant."""
    data = rig.root / "plugins" / DRIVER
    metadata = DeviceMetadata(DRIVER, data, rig.cdi_dir, lambda device: {})
    return ClaimPreparer(
        rig.driver, rig.fetch, Checkpoint(data / "prepared.json"), CdiFiles(rig.cdi_dir, DRIVER), metadata
    )


def reference_of(claim):
    return ClaimReference(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)


async def killed_in(rig, monkeypatch, owner, method, call):
    """The driver dies in `owner.method` while it is called; then the next life starts from what is on disk."""

    def die(*arguments):
        raise Killed

    monkeypatch.setattr(owner, method, die)
    with pytest.raises(Killed):
        await call
    monkeypatch.undo()
    await rig.start()


async def test_killed_after_the_cdi_file_and_before_the_checkpoint(rig, monkeypatch):
    claim = rig.has(allocated_claim("c"))
    await killed_in(rig, monkeypatch, Checkpoint, "put", a_life(rig).prepare([reference_of(claim)]))
    assert list(rig.cdi_dir.glob("*.json")), "the file is there"
    other = rig.has(allocated_claim("other"))
    assert (await rig.prepare(other)).claims["uid-other"].error == "", "nobody holds the device"
    assert (await rig.unprepare(other)).claims["uid-other"].error == ""
    answer = (await rig.prepare(claim)).claims["uid-c"]
    assert (answer.error, len(answer.devices)) == ("", 1)
    await rig.unprepare(claim)
    assert list(rig.cdi_dir.iterdir()) == []


async def test_killed_while_giving_back_after_the_cdi_file_and_before_the_checkpoint(rig, monkeypatch):
    claim = rig.has(allocated_claim("c"))
    life = a_life(rig)
    await life.prepare([reference_of(claim)])
    await killed_in(rig, monkeypatch, Checkpoint, "remove", life.unprepare([reference_of(claim)]))
    assert not list(rig.cdi_dir.glob(f"{DRIVER}-*.json"))
    other = rig.has(allocated_claim("other"))
    assert "already prepared for claim ns/c" in (await rig.prepare(other)).claims["uid-other"].error
    answer = (await rig.prepare(claim)).claims["uid-c"]
    assert answer.error == "", "asked again, it is whole again"
    assert list(rig.cdi_dir.glob(f"{DRIVER}-*.json"))
    assert (await rig.unprepare(claim)).claims["uid-c"].error == ""
    assert (await rig.prepare(other)).claims["uid-other"].error == ""


async def test_killed_before_the_cdi_file_nothing_is_held(rig, monkeypatch):
    claim = rig.has(allocated_claim("c"))
    await killed_in(rig, monkeypatch, CdiFiles, "write", a_life(rig).prepare([reference_of(claim)]))
    other = rig.has(allocated_claim("other"))
    assert (await rig.prepare(other)).claims["uid-other"].error == ""


# --- sockets


async def a_running_driver(plane, tmp_path):
    running = RunningDriver(
        RecordingDriver(), plane.client("driver"), "n1", DriverPaths(tmp_path / "k", tmp_path / "cdi")
    )
    await running.start()
    return running


@pytest.mark.parametrize("socket", [f"plugins/{DRIVER}/dra.sock", f"plugins_registry/{DRIVER}-reg.sock"])
async def test_a_driver_whose_socket_was_removed_cannot_go_on(plane, tmp_path, monkeypatch, socket):
    monkeypatch.setattr(running_room, "LOOK_AT_SOCKETS_EVERY_S", 0.02)
    running = await a_running_driver(plane, tmp_path)
    looks = Mock(wraps=running.server.lost_sockets)
    monkeypatch.setattr(running.server, "lost_sockets", looks)
    broken = asyncio.create_task(running.broken())
    await eventually(lambda: looks.call_count >= 3, "the driver to look at its sockets")
    assert not broken.done()
    (tmp_path / "k" / socket).unlink()
    assert str(tmp_path / "k" / socket) in await asyncio.wait_for(broken, 20)
    await running.stop()


async def test_a_driver_that_was_replaced_leaves_the_sockets_of_the_other(plane, tmp_path, monkeypatch):
    """Started twice without instance names: the second takes over, and the first must not take it away again."""
    monkeypatch.setattr(running_room, "LOOK_AT_SOCKETS_EVERY_S", 0.02)
    first = await a_running_driver(plane, tmp_path)
    second = await a_running_driver(plane, tmp_path)
    assert "another driver listens there" in await asyncio.wait_for(first.broken(), 20)
    await first.stop()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/k/plugins_registry/{DRIVER}-reg.sock") as channel:
        stub = pluginregistration_pb2_grpc.RegistrationStub(channel)
        assert (await stub.GetInfo(pluginregistration_pb2.InfoRequest(), timeout=20)).name == DRIVER
    await second.stop()
    assert [path for path in (tmp_path / "k").rglob("*") if path.is_socket()] == []


async def test_a_driver_whose_publisher_ended_cannot_go_on(plane, tmp_path, monkeypatch):
    monkeypatch.setattr(running_room, "LOOK_AT_SOCKETS_EVERY_S", 0.02)
    running = await a_running_driver(plane, tmp_path)
    running.publisher._task.cancel()
    assert "publishing ResourceSlices ended" in await asyncio.wait_for(running.broken(), 20)
    await running.stop()
    assert [path for path in (tmp_path / "k").rglob("*") if path.is_socket()] == []


# --- processes

FAN = Path(__file__).parent.parent.parent / "examples/driver/fan_driver.py"


class Processes:
    """fan_driver.py as an administrator runs it, any number of times."""

    def __init__(self, plane, tmp_path):
        self.root = tmp_path / "k"
        self.kubeconfig = tmp_path / "kubeconfig"
        self._plane = plane
        self._folder = tmp_path
        self._started = []

    async def open(self):
        await self._plane.listen()
        self.kubeconfig.write_text(self._plane.kubeconfig())
        (self.root / "plugins_registry").mkdir(parents=True)

    def start(self, instance=""):
        command = [sys.executable, str(FAN), "--node-name", "n1", "--kubeconfig", str(self.kubeconfig)]
        command += ["--kubelet-root", str(self.root), "--cdi-dir", str(self._folder / "cdi"), "--instance", instance]
        log = (self._folder / f"fan{len(self._started)}.log").open("wb")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        self._started.append(process)
        return process

    def close(self):
        for process in self._started:
            process.kill()
            process.wait()

    def service(self, instance):
        return self.root / "plugins/fan.example.com" / (f"dra-{instance}.sock" if instance else "dra.sock")

    def output(self):
        return "\n".join(path.read_text() for path in self._folder.glob("fan*.log"))

    async def until(self, holds, what):
        await eventually(holds, lambda: f"{what}\n{self.output()}", within_s=60)

    async def call(self, instance, method, *claims):
        messages = [dra_v1_pb2.Claim(namespace="ns", name=each.metadata.name, uid=each.metadata.uid) for each in claims]
        request = getattr(dra_v1_pb2, f"{method}Request")(claims=messages)
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.insecure_channel(f"unix:{self.service(instance)}", options=options) as channel:
            return (await getattr(dra_v1_pb2_grpc.DRAPluginStub(channel), method)(request, timeout=60)).claims


@pytest.fixture
async def processes(plane, tmp_path):
    processes = Processes(plane, tmp_path)
    await processes.open()
    yield processes
    processes.close()


async def allocated_claims(plane, count):
    """Claims as a scheduler leaves them, one fan each."""

    client: Client = plane.client("test")
    await client.create(NAMESPACES, {"metadata": {"name": "ns"}})
    found = []
    for number in range(count):
        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "fan"}}]}}
        made = await client.create(CLAIMS, {"metadata": {"name": f"c{number}"}, "spec": spec}, "ns")
        device = {"request": "r", "driver": "fan.example.com", "pool": "n1", "device": f"fan-{number}"}
        status = {"allocation": {"devices": {"results": [device]}}}
        found.append(await client.patch(CLAIMS, made.metadata.name, {"status": status}, "ns", subresource="status"))
    return found


async def test_an_update_with_two_processes_side_by_side(plane, processes, tmp_path):
    claims = await allocated_claims(plane, 4)
    old = processes.start("old")
    await processes.until(processes.service("old").exists, "the old instance")
    first = await processes.call("old", "NodePrepareResources", claims[0])
    new = processes.start("new")
    registration = processes.root / "plugins_registry" / "fan.example.com-new-reg.sock"
    await processes.until(registration.exists, "the new instance")
    assert sorted(path.name for path in (processes.root / "plugins_registry").glob("[!.]*")) == [
        "fan.example.com-new-reg.sock",
        "fan.example.com-old-reg.sock",
    ]
    again = await processes.call("new", "NodePrepareResources", claims[0])
    assert again == first, "the new one answers from what the old one wrote down"
    answers = await asyncio.gather(
        *(processes.call(("old", "new")[n % 2], "NodePrepareResources", each) for n, each in enumerate(claims))
    )
    assert [answer[claim.metadata.uid].error for answer, claim in zip(answers, claims, strict=True)] == [""] * 4
    old.send_signal(signal.SIGTERM)
    await processes.until(lambda: old.poll() is not None, "the old instance to end")
    assert old.returncode == 0
    assert not processes.service("old").exists()
    assert [path.name for path in (processes.root / "plugins_registry").iterdir()] == ["fan.example.com-new-reg.sock"]
    given_back = await processes.call("new", "NodeUnprepareResources", *claims)
    assert [given_back[each.metadata.uid].error for each in claims] == [""] * 4
    assert list((tmp_path / "cdi").iterdir()) == []
    new.send_signal(signal.SIGTERM)
    await processes.until(lambda: new.poll() is not None, "the new instance to end")
    assert [path for path in processes.root.rglob("*") if path.is_socket()] == []
    prepared = json.loads((processes.root / "plugins/fan.example.com/prepared.json").read_text())
    assert prepared["claims"] == {}


async def test_a_process_that_lost_its_socket_ends_and_says_why(plane, processes):
    process = processes.start()
    await processes.until(processes.service("").exists, "the driver")
    client = plane.client("test")

    async def is_published():
        return (await client.list(SLICES)).items

    await eventually(is_published, "slices", within_s=60)
    processes.service("").unlink()
    await processes.until(lambda: process.poll() is not None, "the process to end")
    assert process.returncode != 0
    assert "was removed, or another driver listens there now" in processes.output()


async def test_a_process_that_waits_for_its_node_ends_when_told_to(plane, processes):
    await plane.client("test").delete(NODES, "n1")
    process = processes.start()
    await processes.until(lambda: "waits for node n1" in processes.output(), "the driver to wait")
    os.kill(process.pid, signal.SIGTERM)
    await processes.until(lambda: process.poll() is not None, "the process to end")
    assert process.returncode == 0
