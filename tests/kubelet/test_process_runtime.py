"""Containers as real processes."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from dray.accounting import CgroupValues
from dray.api.cdi import ContainerEdits, Hook, Mount
from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.clock import RealClock
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.cgroup import CgroupTree
from dray.kubelet.runtime.interface import ContainerSpec
from dray.kubelet.runtime.process import ProcessRuntime
from dray.kubelet.streams.command_streams import CommandStreams, StreamOptions
from tests.waiting import eventually

POD = Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="pod-uid"))


@pytest.fixture
async def runtime(tmp_path):
    runtime = ProcessRuntime(tmp_path, RealClock())
    yield runtime
    await runtime.stop_pod("pod-uid")


def a_spec(tmp_path, *command, env=None, edits=ContainerEdits(), attempt=0, working_dir=""):
    return ContainerSpec(
        name="c",
        image="i",
        command=command,
        args=(),
        working_dir=working_dir,
        env=env or {},
        cdi_device_ids=(),
        edits=edits,
        log_path=tmp_path / "logs" / f"{attempt}.log",
        attempt=attempt,
    )


async def start(runtime, spec):
    sandbox = await runtime.start_pod(POD, None)
    return await runtime.start_container(POD, sandbox, spec)


async def test_output_environment_and_exit_code(runtime, tmp_path):
    spec = a_spec(tmp_path, "sh", "-c", 'echo "$GREETING"; echo oops >&2; exit 7', env={"GREETING": "hello"})
    container = await start(runtime, spec)
    ended = await container.wait()
    assert (ended.code, ended.reason) == (7, "Error")
    assert spec.log_path.read_text() == "hello\noops\n"


async def test_a_relative_directory_is_as_good(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runtime = ProcessRuntime(Path("relative"), RealClock())
    container = await start(runtime, a_spec(tmp_path, "sh", "-c", "exit 3", working_dir="/"))
    assert (await container.wait()).code == 3
    await runtime.stop_pod("pod-uid")


async def test_the_environment_is_the_containers_own(runtime, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "x")
    spec = a_spec(tmp_path, "env")
    await (await start(runtime, spec)).wait()
    assert "SECRET_OF_THE_AGENT" not in spec.log_path.read_text()


async def test_lists_of_several_devices_are_joined(runtime, tmp_path):
    edits = ContainerEdits(
        env=("DRA_LIST_VISIBLE__B=second", "DRA_LIST_VISIBLE__A=first", "DRA_LIST_NOT_A_LIST=x", "DRA_LIST_OTHER__A=1")
    )
    spec = a_spec(tmp_path, "sh", "-c", 'echo "$VISIBLE $OTHER [$NOT_A_LIST]"', edits=edits)
    await (await start(runtime, spec)).wait()
    assert spec.log_path.read_text() == "first,second 1 []\n"


async def test_a_mount_of_a_path_onto_itself_needs_no_namespace(runtime, tmp_path):
    file = tmp_path / "library"
    file.write_text("here")
    mount = Mount(host_path=str(file), container_path=str(file), options=("ro", "bind"))
    spec = a_spec(
        tmp_path, "sh", "-c", f"readlink /proc/self/ns/mnt; cat {file}", edits=ContainerEdits(mounts=(mount,))
    )
    await (await start(runtime, spec)).wait()
    assert spec.log_path.read_text() == f"{os.readlink('/proc/self/ns/mnt')}\nhere"


async def test_a_polite_process_ends_at_once_and_a_stubborn_one_after_the_grace(runtime, tmp_path):
    polite = await start(runtime, a_spec(tmp_path, "sleep", "60"))
    await polite.stop(10)
    assert (await polite.wait()).code == 128 + signal.SIGTERM
    stubborn = await start(runtime, a_spec(tmp_path, "sh", "-c", 'trap "" TERM; echo up; sleep 60', attempt=1))
    while "up" not in (tmp_path / "logs" / "1.log").read_text():
        pass
    await stubborn.stop(0.1)
    assert (await stubborn.wait()).code == 137


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def test_a_pod_that_is_stopped_leaves_no_group(tmp_path, cgroup_mount):
    tree = CgroupTree.open("ours", cgroup_mount)
    runtime = ProcessRuntime(tmp_path / "pods", RealClock(), cgroups=tree)
    await runtime.start_pod(POD, CgroupValues(1024))
    assert tree.path_of("pod-uid") == "/ours/podpod-uid"
    await runtime.stop_pod("pod-uid")
    assert tree.path_of("pod-uid") == ""
    assert not (cgroup_mount / "ours/podpod-uid").exists()


async def test_no_process_of_the_group_survives(runtime, tmp_path):
    container = await start(runtime, a_spec(tmp_path, "sh", "-c", "sleep 61 & echo $!; wait"))
    log = tmp_path / "logs" / "0.log"
    await eventually(lambda: log.read_text().strip(), "the container to print")
    child = int(log.read_text())
    await container.stop(1)
    # Killed is not gone: the machine may be busy.
    await eventually(lambda: has_ended(child), "the child to end")


async def test_a_container_without_a_command_stays_up_until_it_is_stopped(runtime, tmp_path):
    container = await start(runtime, a_spec(tmp_path))
    await container.stop(1)
    assert (await container.wait()).code == 0


@pytest.mark.parametrize(
    ("command", "working_dir", "text"),
    [(("no-such-program",), "", "executable file not found"), (("true",), "/no/such/folder", "does not exist")],
)
async def test_what_cannot_start_says_why(runtime, tmp_path, command, working_dir, text):
    with pytest.raises(ContainerError, match=text):
        await start(runtime, a_spec(tmp_path, *command, working_dir=working_dir))


async def test_a_restarted_agent_finds_its_containers_and_their_exit_codes(runtime, tmp_path):
    marker = tmp_path / "go"
    command = f'while [ ! -e "{marker}" ]; do sleep 0.05; done; exit 3'
    await start(runtime, a_spec(tmp_path, "sh", "-c", command, attempt=4))
    again = ProcessRuntime(tmp_path, RealClock())
    assert await again.known_pods() == {"pod-uid"}
    found, attempt = await again.find_container(POD, "c")
    assert attempt == 4
    marker.touch()
    assert (await found.wait()).code == 3
    ended, _ = await again.find_container(POD, "c")
    assert (await ended.wait()).code == 3
    assert await again.find_container(POD, "other") is None


async def test_hooks_run_around_the_container(runtime, tmp_path):
    def hook(name, number):
        script = f'echo {number} >> "{tmp_path}/hooks"'
        return Hook(hook_name=name, path="/bin/sh", args=("sh", "-c", script))

    edits = ContainerEdits(hooks=(hook("poststop", 3), hook("createRuntime", 1), hook("poststart", 2)))
    container = await start(runtime, a_spec(tmp_path, "true", edits=edits))
    await container.wait()
    assert (tmp_path / "hooks").read_text().split() == ["1", "2", "3"]


async def test_hooks_read_the_state_of_the_container(runtime, tmp_path):
    def hook(name):
        return Hook(hook_name=name, path="/bin/sh", args=("sh", "-c", f'cat > "{tmp_path}/{name}"'))

    edits = ContainerEdits(hooks=(hook("createRuntime"), hook("poststart"), hook("poststop")))
    container = await start(runtime, a_spec(tmp_path, "sleep", "0.2", edits=edits))
    await container.wait()
    states = [json.loads((tmp_path / each.hook_name).read_text()) for each in edits.hooks]
    assert [each["status"] for each in states] == ["creating", "running", "stopped"]
    assert {each["id"] for each in states} == {container.id}
    assert (states[0]["pid"], states[2]["pid"]) == (os.getpid(), 0), "without isolation, the agent's namespaces"


async def test_a_failing_hook_before_the_start_fails_the_container(runtime, tmp_path):
    script = "echo no such interface >&2; exit 1"
    edits = ContainerEdits(hooks=(Hook(hook_name="createRuntime", path="/bin/sh", args=("sh", "-c", script)),))
    with pytest.raises(ContainerError, match="exit code 1: no such interface"):
        await start(runtime, a_spec(tmp_path, "true", edits=edits))


async def test_cpus_of_a_claim_are_the_processs_cpus(runtime, tmp_path):
    cpu = min(os.sched_getaffinity(0))
    script = "import os, time; time.sleep(0.3); print(sorted(os.sched_getaffinity(0)))"
    edits = ContainerEdits(env=(f"DRA_CPUSET_uid={cpu}",))
    spec = a_spec(tmp_path, sys.executable, "-c", script, edits=edits)
    await (await start(runtime, spec)).wait()
    assert spec.log_path.read_text().strip() == f"[{cpu}]"


class Output(CommandStreams):
    """What a command in a container writes."""

    def __init__(self):
        super().__init__(StreamOptions(stdin=False, stdout=True, stderr=True, tty=False))
        self.written = b""

    async def run(self):
        await asyncio.Event().wait()

    async def opened(self):
        pass

    async def _send(self, channel, data):
        self.written += data

    async def finish(self, status):
        pass


async def test_another_command_in_the_container_runs_on_the_cpus_of_its_claim(runtime, tmp_path):
    cpu, output = max(os.sched_getaffinity(0)), Output()
    edits = ContainerEdits(env=(f"DRA_CPUSET_uid={cpu}",))
    container = await start(runtime, a_spec(tmp_path, "sleep", "60", edits=edits))
    script = "import os; print(sorted(os.sched_getaffinity(0)))"
    assert await container.execute([sys.executable, "-c", script], output) == 0
    assert output.written.decode().strip() == f"[{cpu}]"
    await container.stop(0)


async def test_a_pod_cannot_take_cpus_with_a_variable_of_its_own(runtime, tmp_path):
    mine = os.sched_getaffinity(0)
    script = "import os; print(sorted(os.sched_getaffinity(0)))"
    spec = a_spec(tmp_path, sys.executable, "-c", script, env={"DRA_CPUSET_uid": str(min(mine))})
    await (await start(runtime, spec)).wait()
    assert spec.log_path.read_text().strip() == str(sorted(mine))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root: run the tests as root to see this one")
async def test_files_are_mounted_where_containers_look_for_them(runtime, tmp_path):
    source = tmp_path / "metadata.json"
    source.write_text("content")
    target = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/r/x-metadata.json"
    mount = Mount(host_path=str(source), container_path=target, options=("ro", "bind"))
    spec = a_spec(tmp_path, "sh", "-c", f"cat {target}; echo x > {target}", edits=ContainerEdits(mounts=(mount,)))
    await (await start(runtime, spec)).wait()
    text = spec.log_path.read_text()
    if "unshare" in text and "ermitted" in text:
        pytest.fail(f"this machine does not allow mount namespaces: {text}")
    assert text.startswith("content")
    assert "ead-only" in text
    assert source.read_text() == "content"
    assert not Path(target).exists()
