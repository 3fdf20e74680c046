"""An API storm: pods created and deleted at a steady rate through HTTPS while many watchers look on and many nodes report.

    python -m benchmarks.storm --seconds 600 --rate 4000 --limits steady --output storm.json
    python -m benchmarks.storm --seconds 600 --nodes 5000 --limits steady
    python -m benchmarks.storm --seconds 120 --rate 20000 --living 2000 --nodes 1000 --limits overload

API server, controllers, scheduler, the load (`storm_load.py`), the watchers and the heartbeats are processes of their own; twenty nodes that
run pods are simulated in this one. Everybody but them has an identity of its own, so that priority levels count. Every five seconds the latency of
writes, the lag of watchers, the number of pods that are there and the memory of each process are noted. With `--limits` the exit code says whether
the storm was weathered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.storm_load import encode, pod
from tests.e2e.processes import Process
from tests.torture.etcd_cluster import free_port

from dray.apiserver.security.credentials import kubeconfig_text, local_authority
from dray.atomic_files import write_private
from dray.client import DEVICE_CLASSES, PODS, TEMPLATES, ApiError, Client, connect
from dray.features import FeatureGates
from dray.sim.node_pools import NodePool
from dray.sim.nodes import NodesOptions, SimulatedNodes

ROLE_BINDINGS_PATH = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
WINDOW_S = 5.0
# Of one process of the load: a Python process that does little more than to wait for answers.
MOST_PODS_PER_MINUTE = 6000
MOST_WATCHERS = 25
MOST_NODES = 1250
SETTLE_S = 10.0
# A node counts as gone when its lease is older.
NODE_GRACE_S = 40.0
# The levels of node agents, of the scheduler and of elections.
FIRST_LEVELS = ("node-high", "workload-high", "leader-election", "system")


Times = list[tuple[float, float]]


@dataclass
class Window:
    """Five seconds of the storm."""

    at_s: float
    created: int = 0
    deleted: int = 0
    create_p50_ms: float = 0.0
    create_p99_ms: float = 0.0
    delete_p99_ms: float = 0.0
    renew_p99_ms: float = 0.0
    watch_lag_p99_ms: float = 0.0
    living: int = 0
    bound: int = 0
    memory_mb: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StormOptions:
    seconds: float
    rate: float = 2000
    watchers: int = 50
    # The share of pods that have one.
    claims: float = 0.1
    living: int = 200
    # That send heartbeats, beside the twenty that run pods.
    nodes: int = 0
    # Of the API server; 0 for its own default.
    seats: int = 0


class LoadProcess:
    """One `storm_load` process and what it says at its end."""

    def __init__(self, folder: Path, name: str, what: str, kubeconfig: Path, *arguments: str) -> None:
        self._output = folder / f"{name}.json"
        self._log = folder / f"{name}.log"
        self._command = [
            *(sys.executable, "-m", "benchmarks.storm_load", what),
            *("--kubeconfig", str(kubeconfig), "--output", str(self._output), *arguments),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        with self._log.open("wb") as log:
            self._process = await asyncio.to_thread(subprocess.Popen, self._command, stdout=log, stderr=log)
        while not self._output.with_suffix(".ready").exists():
            assert self._process.poll() is None, self._log.read_text()
            await asyncio.sleep(0.05)

    async def result(self, timeout_s: float) -> dict[str, Any]:
        assert self._process is not None
        await asyncio.to_thread(self._process.wait, timeout_s)
        assert self._process.returncode == 0, self._log.read_text()
        found: dict[str, Any] = json.loads(self._output.read_text())
        return found

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


class Storm:
    def __init__(self, folder: Path, options: StormOptions) -> None:
        self._folder = folder
        self._options = options
        self._kubeconfig = folder / "kubeconfig"
        self._parts: dict[str, Process] = {}
        self._pods: list[LoadProcess] = []
        self._watchers: list[LoadProcess] = []
        self._heartbeats: list[LoadProcess] = []
        self.windows: list[Window] = []
        self.loads: dict[str, list[dict[str, Any]]] = {}
        self.rejected: dict[str, float] = {}

    async def run(self) -> None:
        try:
            await self._start_server()
            client = connect(self._kubeconfig, component="storm")
            pool = NodePool(count=20, devices=("gpu",))
            nodes = SimulatedNodes(client, NodesOptions(pool, self._folder / "n", FeatureGates.default()))
            try:
                await self._prepare(client, nodes)
                await self._blow(client)
            finally:
                await nodes.stop()
                await client.close()
        finally:
            for load in (*self._pods, *self._watchers, *self._heartbeats):
                load.stop()
            for part in reversed(self._parts.values()):
                part.stop()

    # --- before

    async def _start_server(self) -> None:
        ready, seats = self._folder / "ready", self._options.seats
        where = ("--listen", f"127.0.0.1:{free_port()}", "--data", str(self._folder / "data"))
        files = ("--kubeconfig", str(self._kubeconfig), "--ready-file", str(ready))
        few = ("--max-requests-inflight", str(seats)) if seats else ()
        self._parts["apiserver"] = Process(self._folder, "apiserver", "apiserver", *where, *files, *few)
        self._parts["apiserver"].start()
        while not ready.exists():  # noqa: ASYNC110 - a file of another process has no event
            await asyncio.sleep(0.05)

    async def _prepare(self, client: Client, nodes: SimulatedNodes) -> None:
        for user in ("storm", "heartbeats"):
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
            binding = {"metadata": {"name": user}, "roleRef": role, "subjects": [subject]}
            await client.raw("POST", ROLE_BINDINGS_PATH, body=encode(binding))
        config = ("--secure-port", "0", "--no-leader-elect", "--kubeconfig")
        controllers, scheduler = (
            self._identity("system:kube-controller-manager"),
            self._identity("system:kube-scheduler"),
        )
        self._parts["controllers"] = Process(
            self._folder, "controllers", "controller-manager", *config, str(controllers)
        )
        self._parts["scheduler"] = Process(self._folder, "scheduler", "scheduler", *config, str(scheduler))
        self._parts["controllers"].start()
        self._parts["scheduler"].start()
        await nodes.start()
        selector = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
        await client.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        await client.create(TEMPLATES, {"metadata": {"name": "gpu"}, "spec": spec}, "default")
        while not await self._may_create(client):  # noqa: ASYNC110 - asking is the only way to know
            await asyncio.sleep(0.1)

    def _identity(self, user: str, *groups: str) -> Path:
        """The kubeconfig of a user with a certificate."""
        path = self._folder / f"{user.rpartition(':')[2]}.kubeconfig"
        authority = local_authority(self._folder / "data")
        pair = authority.issue_client(user, groups)
        server = (self._folder / "ready").read_text().strip()
        write_private(path, kubeconfig_text(server, authority.certificate_pem, user, pair=pair).encode())
        return path

    async def _may_create(self, client: Client) -> bool:
        """Pods need the namespace's service account, which a controller makes."""
        try:
            await client.create(PODS, pod("first"), "default")
        except ApiError:
            return False
        return True

    # --- the storm

    async def _blow(self, client: Client) -> None:
        self._make_loads()
        await asyncio.gather(*(load.start() for load in (*self._watchers, *self._heartbeats)))
        await asyncio.gather(*(load.start() for load in self._pods))
        await self._note(client)
        # A request may take its time to the end; then the last events reach the watchers.
        patience_s = self._options.seconds + 120
        self.loads["pods"] = [await load.result(patience_s) for load in self._pods]
        self.loads["heartbeats"] = [await load.result(patience_s) for load in self._heartbeats]
        await asyncio.sleep(min(SETTLE_S, self._options.seconds / 3))
        for load in self._watchers:
            load.stop()
        self.loads["watchers"] = [await load.result(60) for load in self._watchers]
        self.rejected = rejected_by_level((await client.raw("GET", "/metrics")).body.decode())

    def _make_loads(self) -> None:
        options = self._options
        storm, seconds = self._identity("storm"), ("--seconds", str(options.seconds))
        processes = -(-int(options.rate) // MOST_PODS_PER_MINUTE)
        for number in range(processes):
            share = ("--rate", str(options.rate / processes), "--living", str(options.living // processes))
            more = (*seconds, *share, "--claims", str(options.claims), "--prefix", f"p{number}-")
            self._pods.append(LoadProcess(self._folder, f"pods-{number}", "pods", storm, *more))
        for number, (_, count) in enumerate(pieces(options.watchers, MOST_WATCHERS)):
            more = ("--watchers", str(count))
            self._watchers.append(LoadProcess(self._folder, f"watch-{number}", "watch", storm, *more))
        beats = self._identity("heartbeats", "system:nodes")
        for number, (first, count) in enumerate(pieces(options.nodes, MOST_NODES)):
            more = (*seconds, "--first", str(first), "--nodes", str(count))
            self._heartbeats.append(LoadProcess(self._folder, f"beat-{number}", "beat", beats, *more))

    async def _note(self, client: Client) -> None:
        started = time.monotonic()
        while time.monotonic() < started + self._options.seconds:
            await asyncio.sleep(WINDOW_S)
            pods = (await client.list(PODS)).items
            memory = {name: memory_mb(part) for name, part in self._parts.items()}
            bound = sum(bool(each.spec.node_name) for each in pods)
            self.windows.append(Window(time.monotonic(), living=len(pods), bound=bound, memory_mb=memory))

    # --- after

    def result(self) -> dict[str, Any]:
        pods, watchers, beats = (self.loads[name] for name in ("pods", "watchers", "heartbeats"))
        creates = latencies(pods, "create")
        self._fill_windows(creates, latencies(pods, "delete"), latencies(beats, "renew"))
        added = [count for each in watchers for count in each["added"]]
        return {
            **asdict(self._options),
            "rate_per_minute": self._options.rate,
            "sent": sum(each["sent"] for each in pods),
            "created": len(creates),
            "deleted": len(latencies(pods, "delete")),
            "create_p50_ms": percentile((each for _, each in creates), 50),
            "create_p99_ms": percentile((each for _, each in creates), 99),
            "refused": {"pods": refused(pods), "heartbeats": refused(beats)},
            "refused_without_retry_after": sum(each["refused_without_retry_after"] for each in (*pods, *beats)),
            "without_answer": sum(each["without_answer"] for each in (*pods, *beats)),
            "unexpected": [text for each in (*pods, *beats) for text in each["unexpected"]],
            "breaks": sum(each["breaks"] for each in watchers),
            "events": sum(each["events"] for each in watchers),
            # Pods that a watcher has not seen: `first` is there before any of them.
            "missed": max((len(creates) + 1 - each for each in added), default=0),
            "renewed": len(latencies(beats, "renew")),
            "renew_p99_ms": percentile((each for _, each in latencies(beats, "renew")), 99),
            "longest_gap_s": max((each["longest_gap_s"] for each in beats), default=0.0),
            "rejected_by_level": self.rejected,
            "windows": [asdict(window) for window in self.windows],
        }

    def _fill_windows(self, creates: Times, deletes: Times, renews: Times) -> None:
        lags = sorted((at, each) for load in self.loads["watchers"] for at, each in load["lags"])
        started = min((at for at, _ in creates), default=0.0)
        after = 0.0
        for window in self.windows:
            until = window.at_s
            created, deleted, renewed, late = (between(each, after, until) for each in (creates, deletes, renews, lags))
            window.created, window.deleted = len(created), len(deleted)
            window.create_p50_ms, window.create_p99_ms = percentile(created, 50), percentile(created, 99)
            window.delete_p99_ms, window.renew_p99_ms = percentile(deleted, 99), percentile(renewed, 99)
            window.watch_lag_p99_ms = percentile(late, 99)
            window.at_s, after = round(until - started, 1), until


def latencies(loads: list[dict[str, Any]], what: str) -> Times:
    return sorted((at, each) for load in loads for at, each in load["latencies"].get(what, ()))


def refused(loads: list[dict[str, Any]]) -> int:
    return sum(count for load in loads for count in load["refused"].values())


def between(times: Times, after: float, until: float) -> list[float]:
    return [each for at, each in times if after < at <= until]


def pieces(count: int, most: int) -> list[tuple[int, int]]:
    """The first and the number of each piece."""
    return [(first, min(most, count - first)) for first in range(0, count, most)]


def percentile(values: Iterable[float], percent: int) -> float:
    """In milliseconds; 0 of nothing."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000, 2) if ordered else 0.0


def rejected_by_level(metrics: str) -> dict[str, float]:
    """How many requests of each priority level got 429."""
    found: dict[str, float] = {}
    for labels, value in re.findall(r"^apiserver_flowcontrol_rejected_requests_total\{(.*?)\} (\S+)$", metrics, re.M):
        level = re.search(r'priority_level="(.*?)"', labels)
        assert level is not None, labels
        found[level[1]] = found.get(level[1], 0.0) + float(value)
    return found


def memory_mb(part: Process) -> float:
    process = part._process
    if process is None:
        return 0.0
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def run_storm(options: StormOptions) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dray-st", ignore_cleanup_errors=True) as folder:
        storm = Storm(Path(folder), options)
        asyncio.run(storm.run())
        return storm.result()


# --- limits


def growth(result: dict[str, Any], value: str, part: str = "") -> float:
    """The median of the last quarter of the storm over that of the one before, so of its second half: 1.0 is no growth."""
    numbers = [float(each[value][part] if part else each[value]) for each in result["windows"]]
    quarter = max(1, len(numbers) // 4)
    before, last = sorted(numbers[-2 * quarter : -quarter] or numbers[:1]), sorted(numbers[-quarter:])
    return last[len(last) // 2] / (before[len(before) // 2] or 1.0)


def broken_promises(result: dict[str, Any]) -> list[str]:
    """What must hold however hard it blows, with or without refusals."""
    problems = [f"unexpected answer: {text}" for text in result["unexpected"]]
    if result["without_answer"]:
        problems.append(f"{result['without_answer']} requests got no answer")
    if result["refused_without_retry_after"]:
        problems.append(f"{result['refused_without_retry_after']} requests were refused without Retry-After")
    if result["breaks"] or result["missed"] > 0:
        problems.append(f"{result['breaks']} watches broke, {result['missed']} pods were not seen by a watcher")
    if result["longest_gap_s"] > NODE_GRACE_S:
        problems.append(f"a node could not renew its lease for {result['longest_gap_s']:.0f} s")
    for level in FIRST_LEVELS:
        if result["rejected_by_level"].get(level):
            problems.append(f"{result['rejected_by_level'][level]:g} requests of level {level} were refused")
    if not any(each["bound"] for each in result["windows"][len(result["windows"]) // 2 :]):
        problems.append("no pod was bound in the second half")
    return problems


def beyond_steady(result: dict[str, Any], memory: float = 1.1, create_p99_ms: float = 50.0) -> list[str]:
    """What must hold besides while the server can follow."""
    problems = broken_promises(result)
    if any(result["refused"].values()):
        problems.append(f"requests were refused: {result['refused']}")
    if result["created"] < 0.95 * result["sent"]:
        problems.append(f"only {result['created']} of {result['sent']} pods were created")
    if result["create_p99_ms"] > create_p99_ms:
        problems.append(f"p99 of a create: {result['create_p99_ms']} ms, limit {create_p99_ms:g} ms")
    for part in result["windows"][0]["memory_mb"]:
        if (found := growth(result, "memory_mb", part)) > memory:
            problems.append(f"{part}: memory grew {found:.2f} times in the second half, limit {memory:g}")
    return problems


def beyond_overload(result: dict[str, Any], renew_p99_ms: float = 1000.0) -> list[str]:
    """What must hold besides when it cannot follow: heartbeats go first."""
    problems = broken_promises(result)
    if result["renew_p99_ms"] > renew_p99_ms:
        problems.append(f"p99 of a heartbeat: {result['renew_p99_ms']} ms, limit {renew_p99_ms:g} ms")
    return problems


def summary(result: dict[str, Any]) -> str:
    shown = {name: value for name, value in result.items() if name != "windows"}
    windows = result["windows"]
    for part in windows[0]["memory_mb"]:
        series = [each["memory_mb"][part] for each in windows]
        shown[f"{part} memory"] = f"{series[0]} MB, {series[len(series) // 2]} at half time, {series[-1]} at the end"
    return "\n".join(f"{name}: {value}" for name, value in shown.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=2000.0, help="pods per minute")
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--claims", type=float, default=0.1)
    parser.add_argument("--living", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=0, help="that send heartbeats")
    parser.add_argument("--seats", type=int, default=0, help="--max-requests-inflight of the API server")
    parser.add_argument("--limits", choices=["steady", "overload"], default=None)
    parser.add_argument("--output", type=Path, default=None)
    given = vars(parser.parse_args())
    limits, output = given.pop("limits"), given.pop("output")
    result = run_storm(StormOptions(**given))
    if output is not None:
        output.write_text(json.dumps(result, indent=1) + "\n")
    print(summary(result))
    checks = {"steady": beyond_steady, "overload": beyond_overload}
    problems = checks[limits](result) if limits else []
    for problem in problems:
        print(f"BEYOND THE LIMIT: {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
