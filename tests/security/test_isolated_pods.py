"""What a tenant's pod tries on a node whose agent runs as root: the server's keys, the agent's files, other pods, root itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from dray.api.cdi import ContainerEdits, Hook, Mount
from dray.api.core import Pod
from dray.clock import RealClock
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.interface import ContainerSpec, Exit, VolumeFiles
from dray.kubelet.runtime.isolation import FIRST_UID, Isolation, available_isolation, uid_of
from dray.kubelet.runtime.process import ProcessRuntime
from tests.builders.objects import a_pod
from tests.waiting import eventually

FOUND = available_isolation()
pytestmark = pytest.mark.skipif(isinstance(FOUND, str), reason=str(FOUND))


class Node:
    """A node agent's runtime below a folder that only root may enter."""

    def __init__(self, folder: Path) -> None:
        assert isinstance(FOUND, Isolation)
        self.folder = folder
        self.runtime = ProcessRuntime(folder / "n", RealClock(), isolation=FOUND)

    async def start(  # type: ignore[no-untyped-def]
        self,
        script: str,
        pod: Pod | None = None,
        volumes: tuple[VolumeFiles, ...] = (),
        edits: ContainerEdits = ContainerEdits(),
        **env: str,
    ):
        pod = pod or a_pod("p")
        spec = ContainerSpec(
            name="c",
            image="",
            attempt=0,
            command=("/bin/sh",),
            args=("-c", script),
            env=env,
            working_dir="",
            cdi_device_ids=(),
            log_path=self.log,
            edits=edits,
            volumes=volumes,
        )
        sandbox = await self.runtime.start_pod(pod, None)
        return await self.runtime.start_container(pod, sandbox, spec)

    async def run(
        self, script: str, pod: Pod | None = None, volumes: tuple[VolumeFiles, ...] = (), **env: str
    ) -> tuple[Exit, str]:
        container = await self.start(script, pod, volumes, **env)
        async with asyncio.timeout(20):
            ended = await container.wait()
        return ended, self.log.read_text()

    @property
    def log(self) -> Path:
        return self.folder / "n" / "logs" / "c.log"


def command_lines() -> Iterator[bytes]:
    """Of every process of the machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "pki").mkdir(mode=0o700)
    (tmp_path / "pki" / "ca.key").write_text("PRIVATE KEY")
    (tmp_path / "pki" / "ca.key").chmod(0o600)
    return Node(tmp_path)


async def test_a_pod_cannot_read_the_keys_of_the_server(node: Node) -> None:
    key = node.folder / "pki" / "ca.key"
    ended, output = await node.run(f"cat {key}; cat /etc/shadow; echo done")
    assert ended.code == 0
    assert "PRIVATE KEY" not in output
    assert "root:" not in output
    assert output.count("Permission denied") == 2
    assert "done" in output


async def test_a_device_that_the_pod_cannot_open(node: Node) -> None:
    """A library that finds its daemon closed may go on without it, and with it without the limits of a share."""
    closed, open_to_all = node.folder / "pki", Path("/usr")
    for path in (closed, closed / "ca.key", node.folder / "missing"):
        mount = Mount(host_path=str(path), container_path=str(path), options=("rw", "bind"))
        with pytest.raises(
            ContainerError, match=f"a device needs {path}, which a pod with a user of its own cannot open"
        ):
            await node.start("echo ran", edits=ContainerEdits(mounts=(mount,)))
    mount = Mount(host_path=str(open_to_all), container_path=str(open_to_all), options=("ro", "bind"))
    container = await node.start("echo ran", edits=ContainerEdits(mounts=(mount,)))
    assert (await container.wait()).code == 0


async def test_a_pod_is_root_only_in_a_namespace_of_its_own(node: Node) -> None:
    pod = a_pod("p")
    ended, output = await node.run("id -u; cat /proc/self/uid_map; grep NoNewPrivs /proc/self/status", pod)
    assert ended.code == 0
    user, mapped, privileges = output.splitlines()
    assert mapped.split() == [user, str(uid_of(pod.metadata.uid)), "1"] == ["0", mapped.split()[1], "1"]
    assert privileges.split() == ["NoNewPrivs:", "1"]
    assert uid_of(pod.metadata.uid) >= FIRST_UID
    assert uid_of("a") != uid_of("b")


async def test_a_pod_sees_only_its_own_processes(node: Node) -> None:
    _, output = await node.run(f"ls /proc | grep -c '^[0-9]'; kill -0 {os.getpid()} && echo reached; cat /proc/1/comm")
    count, *rest = output.splitlines()
    assert int(count) < 10
    assert "reached" not in rest
    assert rest[-1] == "sh"


async def test_a_pod_has_no_network_unless_it_asks_for_the_hosts(node: Node) -> None:
    names = "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '"
    _, output = await node.run(names)
    assert output.split() == ["lo"]
    pod = a_pod("q")
    node.log.unlink()
    _, output = await node.run(names, replace(pod, spec=replace(pod.spec, host_network=True)))
    assert output.split() == [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]


async def test_variables_of_a_pod_do_not_reach_programs_of_root(node: Node, tmp_path: Path) -> None:
    """LD_PRELOAD and PATH would run code of the pod as root, if they counted before the start is over."""
    trap = tmp_path / "trap"
    trap.mkdir()
    witness = tmp_path / "ran-as-root"
    for name in ("unshare", "mount", "sh", "python"):
        (trap / name).write_text(f"#!/bin/sh\n: > {witness}\nexit 1\n")
        (trap / name).chmod(0o755)
    path = f"{trap}:/usr/bin:/bin"
    ended, output = await node.run(
        "echo $GREETING $PYTHONSTARTUP", PATH=path, GREETING="hello", PYTHONSTARTUP="x", LD_AUDIT="/nowhere.so"
    )
    assert ended.code == 0
    assert "hello x" in output
    assert not witness.exists()


async def test_the_values_of_variables_are_not_in_the_list_of_processes(node: Node) -> None:
    container = await node.start("echo up; sleep 30", PASSWORD="hunter2")
    await eventually(lambda: "up" in node.log.read_text(), "the container to start")
    assert not any(b"hunter2" in line for line in command_lines())
    await container.stop(5)


async def test_signals_and_exit_codes_come_through(node: Node) -> None:
    ended, _ = await node.run("exit 7")
    assert ended.code == 7
    node.log.unlink()
    container = await node.start("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.1; done")
    await eventually(lambda: "up" in node.log.read_text(), "the container to start")
    await container.stop(10)
    assert (await container.wait()).code == 3
    assert "bye" in node.log.read_text()


GLIBCS_SIGNALS = 1 << 31 | 1 << 32


async def test_a_command_ignores_no_signal(node: Node) -> None:
    """As in any other container: a program whose reader has gone ends, and says nothing about it."""
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        _, output = await node.run("grep SigIgn /proc/self/status; yes | head -1")
    finally:
        signal.signal(signal.SIGQUIT, before)
    name, ignored, said = output.split()
    # glibc keeps two signals to itself, which no program of Python can change.
    assert (name, int(ignored, 16) & ~GLIBCS_SIGNALS, said) == ("SigIgn:", 0, "y")


async def test_a_pod_that_is_stopped_at_once_ends_at_once(node: Node) -> None:
    container = await node.start("sleep 60")
    began = time.monotonic()
    await container.stop(30)
    assert time.monotonic() - began < 15
    assert (await container.wait()).code == 128 + signal.SIGTERM


async def test_nothing_of_a_pod_survives_its_end(node: Node) -> None:
    """A process that left the group dies with the first process of the namespace."""
    ended, _ = await node.run("setsid sleep 4242 & sleep 0.2; exit 0")
    assert ended.code == 0
    await eventually(lambda: not any(b"sleep\x004242" in line for line in command_lines()), "the process to end")


async def test_a_working_directory_that_the_pod_may_not_enter(node: Node) -> None:
    pod = a_pod("p")
    container = await node.runtime.start_container(
        pod,
        await node.runtime.start_pod(pod, None),
        ContainerSpec(
            name="c",
            image="",
            attempt=0,
            command=("/bin/cat",),
            args=("ca.key",),
            env={},
            working_dir=str(node.folder / "pki"),
            cdi_device_ids=(),
            log_path=node.log,
            edits=ContainerEdits(),
        ),
    )
    assert (await container.wait()).code == 126
    assert "PRIVATE KEY" not in node.log.read_text()


async def test_volumes_of_a_pod_do_not_change_programs_of_root(node: Node, tmp_path: Path) -> None:
    """The pod chooses what a volume contains and where it is mounted: over the folders in which root finds its programs, too."""
    volume, witness = tmp_path / "volume", tmp_path / "ran-as-root"
    volume.mkdir(mode=0o755)
    for name in ("mount", "unshare", "python3", "sh", "ld.so.preload"):
        (volume / name).write_text(f"#!/bin/sh\n: > {witness}\nexit 1\n")
        (volume / name).chmod(0o755)
    (tmp_path / "witness").mkdir()
    mounts = tuple(VolumeFiles(volume, place, True) for place in ("/usr/local/sbin", "/usr/local/bin", "/etc"))
    ended, output = await node.run("ls /usr/local/sbin; : > /usr/local/sbin/new", volumes=mounts)
    assert not witness.exists()
    assert "python3" in output
    assert "Read-only file system" in output
    assert ended.code != 0


async def test_a_volume_below_our_own_folder_is_mounted_there(node: Node, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o755)
    (volume / "greeting").write_text("hello")
    mounts = (VolumeFiles(volume, "/var/run/kubernetes.io/some/where", True),)
    ended, output = await node.run("cat /var/run/kubernetes.io/some/where/greeting", volumes=mounts)
    assert (ended.code, output) == (0, "hello")
    assert not Path("/var/run/kubernetes.io/some").exists()


async def test_a_mount_path_does_not_climb_out(node: Node, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o755)
    climbing = f"/var/run/kubernetes.io/../../..{tmp_path}/made-by-root"
    ended, _ = await node.run("true", volumes=(VolumeFiles(volume, climbing, False),))
    assert ended.code == 0
    assert not (tmp_path / "made-by-root").exists()


async def test_a_hook_reaches_the_namespaces_before_the_command_runs(node: Node) -> None:
    """A hook gets the number of a process in the container's namespaces, and the command begins after it."""
    script = """pid=$(sed -n 's/.*"pid": \\([0-9]*\\).*/\\1/p'); nsenter --target "$pid" --net ip link add dray-h type veth"""
    hook = Hook(
        hook_name="createRuntime", path="/bin/sh", args=("sh", "-c", script), env=(f"PATH={os.environ['PATH']}",)
    )
    container = await node.start("cut -d: -f1 /proc/net/dev", edits=ContainerEdits(hooks=(hook,)))
    await container.wait()
    assert "dray-h" in node.log.read_text().split()


async def test_nothing_is_left_of_a_container_whose_hook_fails(node: Node, tmp_path: Path) -> None:
    script = f"""sed -n 's/.*"pid": \\([0-9]*\\).*/\\1/p' > {tmp_path}/pid; exit 1"""
    hook = Hook(hook_name="createRuntime", path="/bin/sh", args=("sh", "-c", script))
    with pytest.raises(ContainerError, match="exit code 1"):
        await node.start("echo began; sleep 1000", edits=ContainerEdits(hooks=(hook,)))
    waiting = int((tmp_path / "pid").read_text())
    await eventually(lambda: not Path(f"/proc/{waiting}").exists())
    assert "began" not in node.log.read_text()
