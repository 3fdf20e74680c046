"""The API server over HTTPS on loopback, the server in a process of its own: writes, reads, watches, lists, memory, start.

The clients share the machine with the server; on two cores, one is the server's.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
import yaml
from report import Report

CLIENTS = 32
OBJECTS = 4000
WATCHERS = 1000
IDLE_WATCHES = 5000
PODS = 5000
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS_PATH = "/api/v1/namespaces/default/pods"
JSON = {"Content-Type": "application/json"}


class Server:
    """A fresh `dray apiserver`, run by `python`, which may be a longer command."""

    def __init__(
        self, directory: Path, python: Sequence[str] = (sys.executable,), environment: dict[str, str] | None = None
    ) -> None:
        self._kubeconfig = directory / "kubeconfig"
        ready = directory / "ready"
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [
                *python, "-m", "dray", "apiserver", "--listen", "127.0.0.1:0", "--data", str(directory / "data"),
                "--kubeconfig", str(self._kubeconfig), "--ready-file", str(ready),
            ],
            stdout=subprocess.DEVNULL,
            env=environment,
        )  # fmt: skip
        while not ready.exists():
            if self.process.poll() is not None:
                raise RuntimeError("the server did not start")
            time.sleep(0.005)
        self.ready_s = time.perf_counter() - started
        self.url = ready.read_text().strip()
        config = yaml.safe_load(self._kubeconfig.read_text())
        self.context = _context(config, directory)

    def memory_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


def _context(config: Any, directory: Path) -> ssl.SSLContext:
    user = config["users"][0]["user"]
    names = []
    for key in ("client-certificate-data", "client-key-data"):
        path = directory / f"{key}.pem"
        path.write_bytes(base64.b64decode(user[key]))
        names.append(str(path))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(*names)
    return context


@contextmanager
def fresh() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as directory:
        server = Server(Path(directory))
        try:
            yield server
        finally:
            server.stop()


def session(server: Server, connections: int = CLIENTS) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=server.context, limit=connections))


def a_claim(number: int) -> bytes:
    """About 2 KB."""
    requests = [
        {
            "name": f"r{at}",
            "exactly": {
                "deviceClassName": "gpu.example.com",
                "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
            },
        }
        for at in range(6)
    ]
    return json.dumps(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"c{number}", "labels": {"n": str(number)}, "annotations": {"note": "x" * 900}},
            "spec": {"devices": {"requests": requests}},
        }
    ).encode()


async def _load(server: Server, one: Any, count: int) -> tuple[float, list[float]]:
    """Requests per second of `CLIENTS` clients, and every latency."""
    latencies: list[float] = []

    async def client(first: int) -> None:
        for number in range(first, count, CLIENTS):
            started = time.perf_counter()
            await one(number)
            latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(client(first) for first in range(CLIENTS)))
    return count / (time.perf_counter() - started), sorted(latencies)


async def _reads_and_writes(server: Server, report: Report) -> None:
    bodies = [a_claim(number) for number in range(OBJECTS)]
    async with session(server) as http:

        async def create(number: int) -> None:
            async with http.post(server.url + CLAIMS, data=bodies[number], headers=JSON) as answer:
                await answer.read()
                assert answer.status == 201, await answer.text()

        async def get(number: int) -> None:
            async with http.get(f"{server.url}{CLAIMS}/c{number}") as answer:
                await answer.read()
                assert answer.status == 200

        before, cpu = server.memory_mb(), server.cpu_s()
        rate, latencies = await _load(server, create, OBJECTS)
        report.record("creates of 2 KB, 32 clients", rate, "1/s", limit=900, at_least=True)
        report.record("p99 of a create at that load", latencies[int(len(latencies) * 0.99)] * 1000, "ms", limit=80)
        report.record("server time per create", (server.cpu_s() - cpu) / OBJECTS * 1e6, "us")
        stored = sum(map(len, bodies)) / 2**20
        report.record("memory per stored object", (server.memory_mb() - before) / stored, "x JSON", limit=4)
        cpu = server.cpu_s()
        rate, _ = await _load(server, get, OBJECTS)
        report.record("gets, 32 clients", rate, "1/s", limit=1500, at_least=True)
        report.record("server time per get", (server.cpu_s() - cpu) / OBJECTS * 1e6, "us")


async def _open_watches(server: Server, http: aiohttp.ClientSession, count: int) -> list[aiohttp.ClientResponse]:
    opened: list[aiohttp.ClientResponse] = []
    for _ in range(0, count, 50):
        batch = [http.get(f"{server.url}{CLAIMS}?watch=true&resourceVersion=1000000") for _ in range(50)]
        opened += await asyncio.gather(*batch)
    return opened


async def _fan_out(server: Server, report: Report) -> None:
    async with session(server, WATCHERS + 10) as http:
        async with http.get(server.url + CLAIMS) as answer:
            revision = json.loads(await answer.read())["metadata"]["resourceVersion"]
        watches = await asyncio.gather(
            *(http.get(f"{server.url}{CLAIMS}?watch=true&resourceVersion={revision}") for _ in range(WATCHERS))
        )
        best = 1e9
        for number in range(5):
            reads = [asyncio.ensure_future(watch.content.readline()) for watch in watches]
            await asyncio.sleep(0.2)
            started = time.perf_counter()
            async with http.post(server.url + CLAIMS, data=a_claim(90_000 + number), headers=JSON) as answer:
                assert answer.status == 201
            await asyncio.gather(*reads)
            best = min(best, time.perf_counter() - started)
        report.record("one event to 1,000 watchers", best * 1000, "ms", limit=150)
        for watch in watches:
            watch.close()


async def _idle(server: Server, report: Report) -> None:
    before = server.memory_mb()
    async with session(server, 0) as http:
        watches = await _open_watches(server, http, IDLE_WATCHES)
        assert all(watch.status == 200 for watch in watches)
        await asyncio.sleep(0.5)
        report.record("5,000 idle watches", server.memory_mb() - before, "MB", limit=500)
        for watch in watches:
            watch.close()


async def _list(server: Server, report: Report) -> None:
    pod = {
        "metadata": {"labels": {"app": "bench"}, "annotations": {"note": "x" * 800}},
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    }
    async with session(server) as http:
        account = json.dumps({"metadata": {"name": "default"}}).encode()
        async with http.post(server.url + "/api/v1/namespaces/default/serviceaccounts", data=account, headers=JSON):
            pass

        async def create(number: int) -> None:
            body = json.dumps({**pod, "metadata": {**pod["metadata"], "name": f"p{number}"}}).encode()
            async with http.post(server.url + PODS_PATH, data=body, headers=JSON) as answer:
                assert answer.status == 201, await answer.text()

        await _load(server, create, PODS)
        best = 1e9
        for _ in range(5):
            started = time.perf_counter()
            async with http.get(server.url + PODS_PATH) as answer:
                found = await answer.read()
            best = min(best, time.perf_counter() - started)
        assert found.count(b'"uid"') >= PODS
        report.record("list of 5,000 pods", best * 1000, "ms", limit=1000)


def run(report: Report) -> None:
    with fresh() as server:
        report.record("server ready", server.ready_s * 1000, "ms", limit=1500)
        uvloop.run(_reads_and_writes(server, report))
        uvloop.run(_fan_out(server, report))
    with fresh() as server:
        uvloop.run(_idle(server, report))
        uvloop.run(_list(server, report))
