"""One, two and four API servers on one etcd: what they serve, what a request costs, and that their promises hold.

    python -m benchmarks.several_servers --servers 1 2 4 --seconds 10 --clients 8

Servers, etcd and clients are processes of their own, over HTTPS. More servers serve more only where there are cores for them: on a small
machine look at the processor time of a request. etcd is found in DRAY_ETCD, beside the interpreter, or in PATH.

`gets` and `lists` are as new as etcd at the moment of the request. `events` go to watchers that are spread over the servers. Under `promises`
writers on all servers compete for the same devices, the same quota and the same names.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from tests.torture.etcd_cluster import etcd_binary, free_port

from dray.client.credentials import Proof
from dray.client.https import ssl_context
from dray.client.kubeconfig import load_connection
from dray.sim.bench.load import fixed_loop_s

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MAPS = "/api/v1/namespaces/default/configmaps"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
OBJECTS = 200
CONNECTIONS = 8
WATCHERS = 50  # of each client
EVENTS = 100
DEVICES = 24
QUOTA = 30
START_S = 120.0

Document = dict[str, Any]


# --- a small client ---------------------------------------------------------------------------------------------------


class Connection:
    """One HTTPS connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, url: str, context: ssl.SSLContext) -> Connection:
        host, _, port = url.removeprefix("https://").rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host, limit=2**24))

    async def ask(
        self, method: str, path: str, body: object = None, kind: str = "application/json"
    ) -> tuple[int, bytes]:
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: server\r\nAccept: application/json\r\nUser-Agent: bench/1\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        status, headers = await self._head()
        length = int(headers.get("content-length", "0"))
        return status, await self._reader.readexactly(length)

    async def events(self, path: str) -> asyncio.StreamReader:
        """The chunks of a watch, as they are on the wire."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: server\r\nAccept: application/json\r\n\r\n".encode())
        status, _ = await self._head()
        assert status == 200, status
        return self._reader

    async def _head(self) -> tuple[int, dict[str, str]]:
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    def close(self) -> None:
        self._writer.close()


# --- the process of a client: what it does between two lines of standard input ----------------------------------------


async def _closed_loop(urls: Sequence[str], context: ssl.SSLContext, path: str, seconds: float) -> Document:
    """Requests one after the other on each connection, all servers in turn."""
    connections = [await Connection.open(urls[number % len(urls)], context) for number in range(CONNECTIONS)]
    await _started()
    ends, done = time.monotonic() + seconds, [0]

    async def use(connection: Connection, number: int) -> None:
        while time.monotonic() < ends:
            status, _ = await connection.ask("GET", path.replace("{}", str(number % OBJECTS)))
            assert status == 200, status
            done[0] += 1
            number += 7

    await asyncio.gather(*(use(connection, number) for number, connection in enumerate(connections)))
    return {"done": done[0]}


async def _watchers(urls: Sequence[str], context: ssl.SSLContext) -> Document:
    """Watches until each has seen the last event."""
    connections = [await Connection.open(urls[number % len(urls)], context) for number in range(WATCHERS)]
    streams = [await each.events(f"{MAPS}?watch=true&fieldSelector=metadata.name=watched") for each in connections]
    await _started()

    async def follow(stream: asyncio.StreamReader) -> int:
        seen = 0
        while seen < EVENTS:
            line = await stream.readuntil(b"\n")
            seen += b'"type":"MODIFIED"' in line
        return seen

    return {"done": sum(await asyncio.gather(*map(follow, streams)))}


async def _started() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def client_main(kind: str, kubeconfig: Path, urls: Sequence[str], seconds: float) -> None:
    context = ssl_context(load_connection(kubeconfig), Proof())
    paths = {"gets": f"{CLAIMS}/claim-{{}}", "lists": f"{CLAIMS}?limit={OBJECTS}"}
    work = _watchers(urls, context) if kind == "events" else _closed_loop(urls, context, paths[kind], seconds)
    print(json.dumps(uvloop.run(work)), flush=True)


# --- servers ----------------------------------------------------------------------------------------------------------


@dataclass
class Running:
    """The servers on a fresh etcd."""

    urls: list[str]
    kubeconfig: Path
    servers: list[subprocess.Popen[bytes]]
    etcd: subprocess.Popen[bytes]

    def cpu_s(self) -> tuple[float, float]:
        """Of all servers, and of etcd."""
        return sum(_cpu_s(each.pid) for each in self.servers), _cpu_s(self.etcd.pid)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(count: int) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="dray-several-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        address, etcd = _start_etcd(folder, stack)
        started = [_start_server(folder / f"server-{number}", address, stack) for number in range(count)]
        yield Running(
            [url for url, _ in started], folder / "server-0" / "kubeconfig", [each for _, each in started], etcd
        )


def _start_etcd(folder: Path, stack: contextlib.ExitStack) -> tuple[str, subprocess.Popen[bytes]]:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    log = stack.enter_context((folder / "etcd.log").open("wb"))
    process = subprocess.Popen(
        [
            *(etcd_binary(), "--data-dir", str(folder / "etcd"), "--listen-client-urls", client),
            *("--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        ],
        stdout=log,
        stderr=log,
    )
    stack.callback(_end, process)
    return client.removeprefix("http://"), process


def _start_server(folder: Path, etcd: str, stack: contextlib.ExitStack) -> tuple[str, subprocess.Popen[bytes]]:
    folder.mkdir()
    ready = folder / "ready"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "dray", "apiserver", "--listen", "127.0.0.1:0", "--data", str(folder / "data")),
            *("--store", f"etcd://{etcd}/several", "--kubeconfig", str(folder / "kubeconfig")),
            *("--ready-file", str(ready)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=stack.enter_context((folder / "log").open("wb")),
    )
    stack.callback(_end, process)
    ends = time.monotonic() + START_S
    while not ready.exists() or not ready.read_text().strip():
        if process.poll() is not None or time.monotonic() > ends:
            raise RuntimeError(f"the server did not start: {(folder / 'log').read_text()[-500:]}")
        time.sleep(0.02)
    return ready.read_text().strip(), process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# --- measuring --------------------------------------------------------------------------------------------------------


async def _fill(cluster: Running) -> None:
    context = ssl_context(load_connection(cluster.kubeconfig), Proof())
    connection = await Connection.open(cluster.urls[0], context)
    exactly = {"deviceClassName": "gpu.example.com"}
    for number in range(OBJECTS):
        claim = {
            "metadata": {"name": f"claim-{number}", "annotations": {"note": "x" * 500}},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        }
        status, answer = await connection.ask("POST", CLAIMS, claim)
        assert status == 201, answer
    status, answer = await connection.ask("POST", MAPS, {"metadata": {"name": "watched"}, "data": {"n": "0"}})
    assert status == 201, answer
    connection.close()


async def _change(cluster: Running) -> None:
    """The events for the watchers, by servers in turn."""
    context = ssl_context(load_connection(cluster.kubeconfig), Proof())
    connections = [await Connection.open(url, context) for url in cluster.urls]
    for number in range(EVENTS):
        patch = {"data": {"n": str(number + 1)}}
        status, answer = await connections[number % len(connections)].ask(
            "PATCH", f"{MAPS}/watched", patch, "application/merge-patch+json"
        )
        assert status == 200, answer


def measured(cluster: Running, kind: str, clients: int, seconds: float) -> Document:
    """Rate of all clients together, and processor time of servers and etcd for each."""
    given = [kind, str(cluster.kubeconfig), ",".join(cluster.urls), str(seconds)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.several_servers", "--client", *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(clients)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        before, started = cluster.cpu_s(), time.monotonic()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        if kind == "events":
            uvloop.run(_change(cluster))
        answers = [process.communicate()[0] for process in processes]
        took, after = time.monotonic() - started, cluster.cpu_s()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    done = sum(json.loads(answer)["done"] for answer in answers)
    servers_us, etcd_us = ((after[part] - before[part]) / done * 1e6 for part in range(2))
    return {"rate": round(done / took), "server_us": round(servers_us, 1), "etcd_us": round(etcd_us, 1)}


# --- promises ---------------------------------------------------------------------------------------------------------


async def _promises(cluster: Running) -> Document:
    context = ssl_context(load_connection(cluster.kubeconfig), Proof())
    connections = [await Connection.open(cluster.urls[n % len(cluster.urls)], context) for n in range(16)]
    started = time.monotonic()
    found = {
        **await _devices(connections),
        **await _quota(connections),
        **await _names(connections),
        "seconds": 0.0,
    }
    return {**found, "seconds": round(time.monotonic() - started, 1)}


async def _devices(connections: Sequence[Connection]) -> Document:
    """All claims try to get one of few devices, several times each."""

    async def take(connection: Connection, own: int) -> list[int]:
        answers = []
        for number in range(own, OBJECTS, len(connections)):
            result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": f"d{number % DEVICES}"}
            patch = {"status": {"allocation": {"devices": {"results": [result]}}}}
            path = f"{CLAIMS}/claim-{number}/status"
            answers.append((await connection.ask("PATCH", path, patch, "application/merge-patch+json"))[0])
        return answers

    answers = await asyncio.gather(*(take(each, number) for number, each in enumerate(connections)))
    statuses = Counter(status for part in answers for status in part)
    items = json.loads((await connections[-1].ask("GET", CLAIMS))[1])["items"]
    held = [
        result["device"] for item in items for result in (((item.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results", ())
    ]  # fmt: skip
    assert sorted(held) == sorted(f"d{n}" for n in range(DEVICES)), Counter(held).most_common(3)
    assert statuses == {200: DEVICES, 409: OBJECTS - DEVICES}, statuses
    return {"devices": DEVICES, "refused": statuses[409]}


async def _quota(connections: Sequence[Connection]) -> Document:
    """More objects than the quota allows, from all servers at once."""
    hard = {"count/secrets": str(QUOTA)}
    status, answer = await connections[0].ask("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    assert status == 201, answer
    counted = {"status": {"hard": hard, "used": {"count/secrets": "0"}}}
    status, answer = await connections[0].ask("PATCH", f"{QUOTAS}/q/status", counted, "application/merge-patch+json")
    assert status == 200, answer
    secrets = MAPS.replace("configmaps", "secrets")

    async def create(connection: Connection, own: int) -> list[int]:
        return [
            (await connection.ask("POST", secrets, {"metadata": {"name": f"s-{own}-{at}"}}))[0]
            for at in range(3 * QUOTA // len(connections) + 1)
        ]

    answers = await asyncio.gather(*(create(each, number) for number, each in enumerate(connections)))
    statuses = Counter(status for part in answers for status in part)
    assert statuses[201] == QUOTA, statuses
    assert set(statuses) <= {201, 403, 409, 429, 500}, statuses
    return {"quota": QUOTA, "beyond": statuses[403]}


async def _names(connections: Sequence[Connection]) -> Document:
    """Every connection creates the same names: each is one object with one uid."""
    count = 40

    async def create(connection: Connection) -> list[tuple[int, str]]:
        made = []
        for number in range(count):
            status, answer = await connection.ask("POST", MAPS, {"metadata": {"name": f"same-{number}"}})
            assert status in (201, 409), answer
            if status == 201:
                made.append((number, json.loads(answer)["metadata"]["uid"]))
        return made

    made = [pair for part in await asyncio.gather(*map(create, connections)) for pair in part]
    assert sorted(number for number, _ in made) == list(range(count))
    items = json.loads((await connections[0].ask("GET", MAPS))[1])["items"]
    stored = {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}
    assert {f"same-{number}": uid for number, uid in made}.items() <= stored.items()
    assert len(set(stored.values())) == len(stored)
    return {"names": count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=8, help="processes")
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        kind, kubeconfig, urls, seconds = given.client
        client_main(kind, Path(kubeconfig), urls.split(","), float(seconds))
        return
    print(f"{os.cpu_count()} cores, {given.clients} clients, fixed loop {fixed_loop_s():.2f} s", flush=True)
    for count in given.servers:
        with running(count) as cluster:
            uvloop.run(_fill(cluster))
            for kind in ("gets", "lists", "events"):
                found = measured(cluster, kind, given.clients, given.seconds)
                print(
                    f"{count} server{'s' if count > 1 else ' '} {kind:<7} {found['rate']:>8,}/s  "
                    f"servers {found['server_us']:>7.1f} us each  etcd {found['etcd_us']:>6.1f} us each",
                    flush=True,
                )
            print(
                f"{count} server{'s' if count > 1 else ' '} promises hold: {json.dumps(uvloop.run(_promises(cluster)))}",
                flush=True,
            )


if __name__ == "__main__":
    main()
