"""`dray up` as a process: what it prints and writes, how it ends, what it keeps, and what it says of itself while it starts."""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.builders.manifests import a_device, a_slice
from tests.waiting import eventually, eventually_blocking

from dray.cli.main import cli
from dray.client import NODES, PODS, SLICES, ApiError, Client, connect
from dray.sim.loops_process import processes_for

BIN = Path(sys.executable).parent
# Generous: other tests run beside these. What is waited for is over in a second or two.
DEADLINE_S = 90.0


class Up:
    """A `dray up` of its own directory."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.kubeconfig = folder / "kubeconfig"
        self.ready = folder / "ready"
        self.ready.unlink(missing_ok=True)
        self._log = folder / "log"
        command = [BIN / "dray", "up", "--kubeconfig", self.kubeconfig, "--ready-file", self.ready, *options]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)

    @property
    def printed(self) -> str:
        return self._log.read_text()

    def wait(self) -> str:
        """The URL, once it is there."""

        def is_up() -> bool:
            assert self.process.poll() is None, self.printed
            return self.ready.exists() and "Ctrl-C" in self.printed

        eventually_blocking(is_up, lambda: f"the cluster\n{self.printed}", DEADLINE_S)
        return self.ready.read_text().strip()

    def client(self) -> Client:
        return connect(str(self.kubeconfig), component="test")

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def ups():
    started: list[Up] = []
    yield started
    for each in started:
        each.process.kill()
        each.process.wait()


async def test_two_side_by_side_keep_to_themselves_and_what_they_keep(ups: list[Up], tmp_path: Path) -> None:
    kept = ["--data", str(tmp_path / "kept")]
    ups += [Up(tmp_path / "one", "--nodes", "1", "--devices", "nic", *kept), Up(tmp_path / "two", "--nodes", "0")]
    one, two = ups
    assert one.wait() != two.wait()
    assert f"its state stays in {tmp_path / 'kept'}" in one.printed
    assert "dray kubelet --node-name my-node" in two.printed
    assert (one.kubeconfig.stat().st_mode & 0o777) == 0o600
    mine, theirs = one.client(), two.client()
    (node,) = (await mine.list(NODES)).items
    assert (await theirs.list(NODES)).items == []
    await theirs.close()
    await mine.close()
    assert two.end() == 0
    assert one.end(signal.SIGINT) == 0

    again = Up(tmp_path / "again", "--nodes", "1", "--devices", "nic", *kept)
    ups.append(again)
    again.wait()
    client = again.client()
    assert [each.metadata.uid for each in (await client.list(NODES)).items] == [node.metadata.uid]
    assert len((await client.list(SLICES)).items) == 1
    await client.close()
    assert again.end() == 0


async def test_who_listens_on_every_address_is_reached_on_this_machine(ups: list[Up], tmp_path: Path) -> None:
    ups.append(Up(tmp_path, "--nodes", "0", "--listen", "0.0.0.0:0"))
    assert ups[0].wait().startswith("https://127.0.0.1:")
    client = ups[0].client()
    assert (await client.list(NODES)).items == []
    await client.close()


@pytest.mark.parametrize("pause_s", [0.0, 0.5, 1.5, 3.0])
def test_it_can_be_ended_at_any_moment(ups: list[Up], tmp_path: Path, pause_s: float) -> None:
    ups.append(Up(tmp_path, "--nodes", "300", "--devices", "gpu"))
    time.sleep(pause_s)
    assert ups[0].end() in (0, -signal.SIGTERM)
    assert "Traceback" not in ups[0].printed


def test_long_starts_show_how_far_they_are_on_a_terminal(tmp_path: Path) -> None:
    terminal, theirs = pty.openpty()
    command = [BIN / "dray", "up", "--nodes", "5000", "--devices", "gpu", "--kubeconfig", tmp_path / "kubeconfig"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, cwd=tmp_path)
    os.close(theirs)
    seen = b""
    deadline = time.monotonic() + DEADLINE_S
    while b"of 5,000 nodes" not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1.0)[0]:
            seen += os.read(terminal, 4096)
    process.terminate()
    assert process.wait(DEADLINE_S) == 0
    os.close(terminal)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--devices", "gpus"], "gpus: no such devices; known are cpu, gpu"),
        (["--listen", "nowhere"], "write HOST:PORT"),
        (["--runtime-config", "what=ever"], "what"),
        (["--feature-gates", "Nonsense=true"], "Nonsense"),
        (["--nodes", "-1"], "-1"),
        (["--node-pools", "no-such.yaml"], "no-such.yaml: No such file or directory"),
        (["--node-pools", "pools.yaml", "--nodes", "3"], "--nodes and --devices say the same as --node-pools"),
    ],
)
def test_wrong_usage_is_said(options: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["up", *options])
    assert result.exit_code == 2
    assert said in result.output


async def test_nodes_of_several_kinds_come_from_a_file(ups: list[Up], tmp_path: Path) -> None:
    """The file is the one that the page about tests shows."""
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    pools = page.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "pools.yaml").write_text(pools.replace("count: 50", "count: 5"))
    up = Up(tmp_path, "--node-pools", "pools.yaml")
    ups.append(up)
    up.wait()
    assert "8 nodes with devices of gpu, nic, fpga.example.com" in up.printed
    client = up.client()
    nodes = {each.metadata.name: each for each in (await client.list(NODES)).items}
    assert sorted(nodes) == ["cpu-1", "cpu-2", "cpu-3", "cpu-4", "cpu-5", "fpga-1", "gpu-1", "gpu-2"]
    assert nodes["gpu-2"].metadata.labels["zone"] == "a"
    assert str(nodes["gpu-2"].status.allocatable["memory"]) == "64Gi"
    assert "fpga" in [each.key for each in nodes["fpga-1"].spec.taints]
    drivers = {(each.spec.driver, each.spec.node_name) for each in (await client.list(SLICES)).items}
    assert {("fpga.example.com", "fpga-1"), ("gpu.example.com", "gpu-1"), ("nic.example.com", "gpu-2")} <= drivers
    await client.close()
    assert up.end() == 0


def test_an_address_that_cannot_be_had_is_a_broken_world(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["up", "--listen", "192.0.2.1:0", "--data", str(tmp_path)])
    assert result.exit_code == 3
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["up", "apiserver"])
def test_an_address_in_use_is_named(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(cli, [command, "--listen", listen, "--data", str(tmp_path)])
    assert result.exit_code == 3
    assert f"--listen {listen}: " in result.output
    assert "ddress already in use" in result.output


def test_a_file_that_is_no_kubeconfig_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("- milk")
    result = CliRunner().invoke(cli, ["up", "--nodes", "0", "--kubeconfig", str(file)])
    assert result.exit_code == 3
    assert f"--kubeconfig {file}: not a kubeconfig" in result.output
    assert file.read_text() == "- milk"


def _children(up: Up, command: bytes) -> list[int]:
    children = Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children").read_text().split()
    return [int(number) for number in children if command in Path(f"/proc/{number}/cmdline").read_bytes()]


def _loops_of(up: Up) -> list[int]:
    """The process with controllers and scheduler; the other children are containers."""
    return _children(up, b"loops_main")


def _sockets_of(process: int) -> list[str]:
    files = [os.readlink(each) for each in Path(f"/proc/{process}/fd").iterdir()]
    return [each for each in files if each.startswith("socket:")]


async def _bound(client: Client, name: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "none.example.com/none:1", "command": ["sleep", "60"]}]},
    }
    await client.create(PODS, pod)

    async def is_bound() -> bool:
        return bool((await client.get(PODS, name, "default")).spec.node_name)

    await eventually(is_bound, f"{name} to be bound", DEADLINE_S)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc, which this system has not")
async def test_controllers_and_scheduler_apart_are_replaced_when_they_die_and_end_with_the_server(
    ups: list[Up], tmp_path: Path
) -> None:
    ups.append(Up(tmp_path / "apart", "--nodes", "1", "--devices", "none", "--processes", "2"))
    (up,) = ups
    up.wait()
    (first,) = _loops_of(up)
    client = up.client()
    await _bound(client, "before")
    os.kill(first, signal.SIGKILL)
    await _bound(client, "after")
    (second,) = _loops_of(up)
    assert second != first
    assert "ended with code -9; starting another" in up.printed
    containers = await eventually(lambda: _children(up, b"sleep"), "the containers", DEADLINE_S)
    # Who holds the other end of the pipe may do everything: no container does.
    assert [_sockets_of(container) for container in containers] == [[] for _ in containers]
    await client.close()
    assert up.end() == 0
    assert not Path(f"/proc/{second}").exists()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc, which this system has not")
async def test_controllers_and_scheduler_do_not_outlive_a_killed_server(ups: list[Up], tmp_path: Path) -> None:
    ups.append(Up(tmp_path / "killed", "--nodes", "0", "--processes", "2"))
    (up,) = ups
    up.wait()
    (loops,) = _loops_of(up)
    up.end(signal.SIGKILL)
    await eventually(lambda: not Path(f"/proc/{loops}").exists(), "the second process to end", DEADLINE_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["terminated", "interrupted"])
async def test_two_processes_end_without_a_word(ups: list[Up], tmp_path: Path, number: int) -> None:
    """The loops end before the server goes away; otherwise each of them would say that it lost the connection."""
    ups.append(Up(tmp_path, "--nodes", "0", "--processes", "2"))
    ups[0].wait()
    before = ups[0].printed
    ups[0].end(number)
    assert ups[0].printed == before


async def test_a_gate_is_off_for_all_parts(ups: list[Up], tmp_path: Path) -> None:
    ups.append(Up(tmp_path, "--nodes", "0", "--feature-gates", "DRAConsumableCapacity=false"))
    ups[0].wait()
    client = ups[0].client()
    await client.create(SLICES, a_slice("s", a_device("d", allowMultipleAllocations=True)))
    (device,) = (await client.get(SLICES, "s")).spec.devices
    assert device.allow_multiple_allocations is None
    await client.close()


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_metrics_of_all_parts_are_served(ups: list[Up], tmp_path: Path, processes: str) -> None:
    ups.append(Up(tmp_path, "--nodes", "1", "--devices", "none", "--processes", processes))
    ups[0].wait()
    client = ups[0].client()
    for path, name in (
        ("", "apiserver_request_total"),
        ("/scheduler", "scheduler_pending_pods"),
        ("/controller-manager", "resourceclaim_controller_resource_claims"),
        ("/kubelet/node-1", "dra_resource_claims_in_use"),
    ):
        assert name in (await client.raw("GET", f"/metrics{path}")).body.decode()
    with pytest.raises(ApiError):
        await client.raw("GET", "/metrics/kubelet/node-2")
    await client.close()


@pytest.mark.parametrize(
    ("cores", "nodes", "processes"),
    [
        pytest.param(1, 500, 1, id="one-core"),
        pytest.param(2, 3, 1, id="few-real-nodes"),
        pytest.param(2, 10, 1, id="most-real-nodes"),
        pytest.param(2, 11, 2, id="simulated-nodes"),
        pytest.param(2, 0, 2, id="nodes-of-others"),
    ],
)
def test_a_second_process_is_started_where_it_pays(
    cores: int, nodes: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    assert processes_for(nodes) == processes
