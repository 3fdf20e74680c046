"""An API storm: pods created and deleted at a steady rate through HTTPS while many watchers look on.

    python -m benchmarks.storm --seconds 600 --rate 2000 --watchers 50 --output storm.json

API server, controllers and scheduler are processes of their own; nodes are simulated in this one. Every five seconds the
latency of writes, the lag of watchers, the number of pods that are there and the memory of each process are noted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import ssl
import tempfile
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
import yaml
from tests.e2e.processes import Process
from tests.torture.etcd_cluster import free_port

from dray.client import DEVICE_CLASSES, PODS, TEMPLATES, ApiError, Client, ServerUnreachable, connect
from dray.client.https import ssl_context
from dray.client.kubeconfig import load_connection
from dray.features import FeatureGates
from dray.sim.node_pools import NodePool
from dray.sim.nodes import NodesOptions, SimulatedNodes

WINDOW_S = 5.0
PODS_PATH = "/api/v1/namespaces/default/pods"


@dataclass
class Window:
    """Five seconds of the storm."""

    at_s: float
    created: int = 0
    deleted: int = 0
    refused: int = 0
    create_p50_ms: float = 0.0
    create_p99_ms: float = 0.0
    delete_p99_ms: float = 0.0
    watch_lag_p99_ms: float = 0.0
    events: int = 0
    living: int = 0
    memory_mb: dict[str, float] = field(default_factory=dict)


@dataclass
class Samples:
    creates: list[float] = field(default_factory=list)
    deletes: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    refused: int = 0
    events: int = 0


class Storm:
    def __init__(self, folder: Path, rate_per_minute: float, watchers: int, claims: float, living: int) -> None:
        self._folder = folder
        self._interval_s = 60.0 / rate_per_minute
        self._watchers = watchers
        self._claims = claims
        self._most = living
        self._names: deque[str] = deque()
        self._sent_at: dict[str, float] = {}
        self._samples = Samples()
        self.windows: list[Window] = []
        self.breaks = 0
        self._kubeconfig = folder / "kubeconfig"
        self._parts: dict[str, Process] = {}

    async def run(self, seconds: float) -> None:
        await self._start()
        client = connect(self._kubeconfig, component="storm")
        nodes = SimulatedNodes(
            client, NodesOptions(NodePool(count=20, devices=("gpu",)), self._folder / "n", FeatureGates.default())
        )
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._prepare(client, nodes)
            tasks = [asyncio.create_task(self._watch(number)) for number in range(self._watchers)]
            await asyncio.gather(self._blow(client, seconds), self._note(seconds))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await nodes.stop()
            await client.close()
            for part in reversed(self._parts.values()):
                part.stop()

    async def _start(self) -> None:
        ready = self._folder / "ready"
        config = ("--kubeconfig", str(self._kubeconfig))
        listen = (
            "--listen",
            f"127.0.0.1:{free_port()}",
            "--data",
            str(self._folder / "data"),
            "--ready-file",
            str(ready),
        )
        others = ("--secure-port", "0", "--no-leader-elect")
        self._parts["apiserver"] = Process(self._folder, "apiserver", "apiserver", *listen, *config)
        self._parts["controllers"] = Process(self._folder, "controllers", "controller-manager", *config, *others)
        self._parts["scheduler"] = Process(self._folder, "scheduler", "scheduler", *config, *others)
        self._parts["apiserver"].start()
        while not ready.exists():  # noqa: ASYNC110 - a file of another process has no event
            await asyncio.sleep(0.05)
        self._parts["controllers"].start()
        self._parts["scheduler"].start()

    async def _prepare(self, client: Client, nodes: SimulatedNodes) -> None:
        await nodes.start()
        selector = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
        await client.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        await client.create(TEMPLATES, {"metadata": {"name": "gpu"}, "spec": spec}, "default")
        while not await self._may_create(client):  # noqa: ASYNC110 - asking is the only way to know
            await asyncio.sleep(0.1)

    async def _may_create(self, client: Client) -> bool:
        """Pods need the namespace's service account, which a controller makes."""
        try:
            await client.create(PODS, self._pod("first"), "default")
        except ApiError:
            return False
        self._names.append("first")
        return True

    def _pod(self, name: str, *, with_claim: bool = False) -> dict[str, object]:
        container: dict[str, object] = {
            "name": "main",
            "image": "example.com/x",
            "resources": {"requests": {"cpu": "10m"}},
        }
        spec: dict[str, object] = {"containers": [container], "terminationGracePeriodSeconds": 0}
        if with_claim:
            container["resources"] = {"requests": {"cpu": "10m"}, "claims": [{"name": "gpu"}]}
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        return {"metadata": {"name": name}, "spec": spec}

    # --- the storm

    async def _blow(self, client: Client, seconds: float) -> None:
        started = time.monotonic()
        chance = random.Random(1)
        running: set[asyncio.Task[None]] = set()
        number = 0
        while (now := time.monotonic()) < started + seconds:
            due = started + number * self._interval_s
            if now < due:
                await asyncio.sleep(due - now)
            number += 1
            task = asyncio.create_task(self._one(client, f"p{number}", chance.random() < self._claims))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)

    async def _one(self, client: Client, name: str, with_claim: bool) -> None:
        """Create one pod, and delete the oldest once there are enough."""
        try:
            begun = self._sent_at[name] = time.monotonic()
            await client.create(PODS, self._pod(name, with_claim=with_claim), "default")
            self._samples.creates.append(time.monotonic() - begun)
            self._names.append(name)
            if len(self._names) > self._most:
                oldest = self._names.popleft()
                begun = time.monotonic()
                await client.delete(PODS, oldest, "default")
                self._samples.deletes.append(time.monotonic() - begun)
        except (ApiError, ServerUnreachable):
            self._samples.refused += 1

    async def _watch(self, number: int) -> None:
        """One watcher on a connection of its own; the first also notes how late events are."""
        context, server, revision = self._tls(), self._server(), ""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            while True:
                query = "?watch=true&allowWatchBookmarks=true" + (f"&resourceVersion={revision}" if revision else "")
                try:
                    async with session.get(
                        server + PODS_PATH + query, timeout=aiohttp.ClientTimeout(total=None)
                    ) as answer:
                        async for line in answer.content:
                            self._samples.events += 1
                            if number == 0 and line.startswith(b'{"type":"ADDED"'):
                                self._note_lag(line)
                except aiohttp.ClientError:
                    pass
                self.breaks += 1
                await asyncio.sleep(0.2)

    def _note_lag(self, line: bytes) -> None:
        sent_at = self._sent_at.pop(json.loads(line)["object"]["metadata"]["name"], None)
        if sent_at is not None:
            self._samples.lags.append(time.monotonic() - sent_at)

    def _tls(self) -> ssl.SSLContext:
        from dray.client.credentials import Proof

        return ssl_context(load_connection(self._kubeconfig), Proof())

    def _server(self) -> str:
        server: str = yaml.safe_load(self._kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        return server

    # --- notes

    async def _note(self, seconds: float) -> None:
        started = time.monotonic()
        while time.monotonic() < started + seconds:
            await asyncio.sleep(WINDOW_S)
            samples, self._samples = self._samples, Samples()
            self.windows.append(
                Window(
                    at_s=round(time.monotonic() - started, 1),
                    created=len(samples.creates),
                    deleted=len(samples.deletes),
                    refused=samples.refused,
                    create_p50_ms=percentile(samples.creates, 50),
                    create_p99_ms=percentile(samples.creates, 99),
                    delete_p99_ms=percentile(samples.deletes, 99),
                    watch_lag_p99_ms=percentile(samples.lags, 99),
                    events=samples.events,
                    living=len(self._names),
                    memory_mb={name: memory_mb(part) for name, part in self._parts.items()},
                )
            )


def percentile(values: list[float], percent: int) -> float:
    """In milliseconds; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000, 2)


def memory_mb(part: Process) -> float:
    process = part._process
    if process is None:
        return 0.0
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def run_storm(
    seconds: float, rate: float = 2000, watchers: int = 50, claims: float = 0.1, living: int = 200
) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="dray-st", ignore_cleanup_errors=True) as folder:
        storm = Storm(Path(folder), rate, watchers, claims, living)
        asyncio.run(storm.run(seconds))
    windows = [asdict(window) for window in storm.windows]
    return {"rate_per_minute": rate, "watchers": watchers, "claims": claims, "breaks": storm.breaks, "windows": windows}


def growth(result: dict[str, object], value: str, part: str = "") -> float:
    """The median of the last third of the storm over that of the second third: 1.0 is no growth."""
    windows = result["windows"]
    assert isinstance(windows, list)
    numbers = [float(each[value][part] if part else each[value]) for each in windows]
    third = max(1, len(numbers) // 3)
    middle, last = sorted(numbers[third : 2 * third]), sorted(numbers[-third:])
    return last[len(last) // 2] / (middle[len(middle) // 2] or 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--claims", type=float, default=0.1)
    parser.add_argument("--output", type=Path, default=None)
    options = parser.parse_args()
    result = run_storm(options.seconds, options.rate, options.watchers, options.claims)
    text = json.dumps(result, indent=1)
    if options.output is not None:
        options.output.write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
