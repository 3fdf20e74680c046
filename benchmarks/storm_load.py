"""What blows in a storm, each in a process of its own: pods that come and go, watchers, and nodes with heartbeats.

    python -m benchmarks.storm_load pods  --kubeconfig K --output F --seconds 60 --rate 2000 --claims 0.1 --living 200
    python -m benchmarks.storm_load watch --kubeconfig K --output F --watchers 50
    python -m benchmarks.storm_load beat  --kubeconfig K --output F --seconds 60 --nodes 5000

Each writes F.ready when it has begun and F, one JSON object, at its end. Times are seconds of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import time
from collections import Counter, deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from dray.client import Answer, Call, ServerUnreachable
from dray.client.credentials import Proof
from dray.client.https import HttpsTransport, ssl_context
from dray.client.kubeconfig import load_connection
from dray.client.transport import Transport

PODS_PATH = "/api/v1/namespaces/default/pods"
NODES_PATH = "/api/v1/nodes"
LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
# A request that takes longer has got no answer: Kubernetes' clients wait as long for a create.
PATIENCE_S = 30.0
SENT_AT = "storm.example.com/sent-at"
# As kubelets do it.
RENEWED_EVERY_S = 10.0
STATUS_EVERY_S = 300.0
AT_ONCE = 16

encode = msgspec.json.encode


class Answers:
    """What was answered: latencies of what was done, and how the rest ended."""

    def __init__(self) -> None:
        self.latencies: dict[str, list[tuple[float, float]]] = {}
        self.refused: Counter[str] = Counter()
        self.refused_without_retry_after = 0
        self.without_answer = 0
        self.unexpected: Counter[str] = Counter()

    async def ask(self, transport: Transport, what: str, call: Call, expected: tuple[int, ...]) -> Answer | None:
        """The answer if it is an expected one."""
        began = time.monotonic()
        try:
            answer = await transport.request(call)
        except ServerUnreachable:
            self.without_answer += 1
            return None
        now = time.monotonic()
        if answer.status in expected:
            self.latencies.setdefault(what, []).append((now, now - began))
            return answer
        if answer.status == 429:
            self.refused[what] += 1
            self.refused_without_retry_after += "retry-after" not in answer.headers
        else:
            self.unexpected[f"{what}: {answer.status} {answer.body[:200].decode(errors='replace')}"] += 1
        return None

    def document(self) -> dict[str, Any]:
        return {
            "latencies": self.latencies,
            "refused": self.refused,
            "refused_without_retry_after": self.refused_without_retry_after,
            "without_answer": self.without_answer,
            "unexpected": self.unexpected,
        }


def pod(name: str, *, with_claim: bool = False) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "example.com/x", "resources": {"requests": {"cpu": "10m"}}}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if with_claim:
        container["resources"]["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return {"metadata": {"name": name, "annotations": {SENT_AT: str(time.monotonic())}}, "spec": spec}


class Pods:
    """Creates pods at a steady rate, whatever the server answers, and deletes the oldest once there are enough."""

    def __init__(self, transport: Transport, prefix: str, claims: float, living: int) -> None:
        self._transport = transport
        self._prefix = prefix
        self._claims = claims
        self._most = living
        self._names: deque[str] = deque()
        self._chance = random.Random(1)
        self.answers = Answers()
        self.sent = 0

    async def blow(self, seconds: float, rate_per_minute: float) -> None:
        started, running = time.monotonic(), set[asyncio.Task[None]]()
        while (now := time.monotonic()) < started + seconds:
            due = started + self.sent * 60.0 / rate_per_minute
            if now < due:
                await asyncio.sleep(due - now)
            self.sent += 1
            task = asyncio.create_task(self._one(f"{self._prefix}{self.sent}"))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)

    async def _one(self, name: str) -> None:
        body = encode(pod(name, with_claim=self._chance.random() < self._claims))
        create = Call("POST", PODS_PATH, body=body, timeout_s=PATIENCE_S)
        if await self.answers.ask(self._transport, "create", create, (201,)) is None:
            return
        self._names.append(name)
        if len(self._names) > self._most:
            oldest = self._names.popleft()
            delete = Call("DELETE", f"{PODS_PATH}/{oldest}", timeout_s=PATIENCE_S)
            if await self.answers.ask(self._transport, "delete", delete, (200, 202, 404)) is None:
                self._names.append(oldest)

    def document(self) -> dict[str, Any]:
        return {"sent": self.sent, "living": len(self._names), **self.answers.document()}


class Watchers:
    """Each on a connection of its own; the first also notes how late events are."""

    def __init__(self, kubeconfig: Path, count: int) -> None:
        self._kubeconfig = kubeconfig
        self.added = [0] * count
        self.events = 0
        self.breaks = 0
        self.all_watch = asyncio.Event()
        self._watching: set[int] = set()
        self.lags: list[tuple[float, float]] = []

    async def watch(self) -> None:
        await asyncio.gather(*(self._watch(number) for number in range(len(self.added))))

    async def _watch(self, number: int) -> None:
        context = ssl_context(load_connection(self._kubeconfig), Proof())
        server = yaml.safe_load(self._kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        url = f"{server}{PODS_PATH}?watch=true&allowWatchBookmarks=true"
        forever = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(url, timeout=forever) as answer:
                        self._began(number)
                        rest = b""
                        async for chunk in answer.content.iter_any():
                            lines, _, rest = (rest + chunk).rpartition(b"\n")
                            self._take(number, lines)
                self.breaks += 1
                await asyncio.sleep(0.2)

    def _began(self, number: int) -> None:
        self._watching.add(number)
        if len(self._watching) == len(self.added):
            self.all_watch.set()

    def _take(self, number: int, lines: bytes) -> None:
        """Whole lines, the last one without its end."""
        if not lines:
            return
        self.events += lines.count(b"\n") + 1
        added = lines.count(b'{"type":"ADDED"')
        self.added[number] += added
        if number == 0 and added:
            now = time.monotonic()
            for piece in lines.split(f'"{SENT_AT}":"'.encode())[1:]:
                sent_at = float(piece.partition(b'"')[0])
                self.lags.append((now, now - sent_at))

    def document(self) -> dict[str, Any]:
        return {"added": self.added, "events": self.events, "breaks": self.breaks, "lags": self.lags}


class Heartbeats:
    """Nodes that renew their leases and their status as kubelets do, over a few connections."""

    def __init__(self, transport: Transport, first: int, count: int) -> None:
        self._transport = transport
        self._names = [f"beat-{number}" for number in range(first, first + count)]
        self._leases: dict[str, dict[str, Any]] = {}
        self._renewed_at: dict[str, float] = {}
        self.longest_gap_s = 0.0
        self.answers = Answers()

    async def register(self) -> None:
        names = iter(self._names)
        await asyncio.gather(*(self._register_some(names) for _ in range(AT_ONCE)))
        assert len(self._leases) == len(self._names), self.answers.document()

    async def _register_some(self, names: Any) -> None:
        for name in names:
            spec = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": node_status()}
            await self._patiently("register", Call("POST", NODES_PATH, body=encode(spec)))
            lease = {"metadata": {"name": name}, "spec": lease_spec(name)}
            made = await self._patiently("register", Call("POST", LEASES_PATH, body=encode(lease)))
            self._leases[name] = msgspec.json.decode(made.body)
            self._renewed_at[name] = time.monotonic()

    async def _patiently(self, what: str, call: Call) -> Answer:
        while True:
            answer = await self.answers.ask(self._transport, what, call, (201,))
            if answer is not None:
                return answer
            await asyncio.sleep(0.5)

    async def beat(self, seconds: float) -> None:
        self.answers = Answers()
        until = time.monotonic() + seconds
        await asyncio.gather(*(self._beat(name, until) for name in self._names))

    async def _beat(self, name: str, until: float) -> None:
        chance = random.Random(name)
        due = time.monotonic() + chance.uniform(0.0, RENEWED_EVERY_S)
        status_due = time.monotonic() + chance.uniform(0.0, STATUS_EVERY_S)
        while due < until:
            await asyncio.sleep(due - time.monotonic())
            await self._renew(name)
            if time.monotonic() >= status_due:
                status_due += STATUS_EVERY_S
                await self._report(name)
            due = max(due + RENEWED_EVERY_S, time.monotonic())
        self._note_gap(name)

    async def _renew(self, name: str) -> None:
        lease = self._leases[name]
        lease["spec"] = lease_spec(name)
        call = Call("PUT", f"{LEASES_PATH}/{name}", body=encode(lease), timeout_s=PATIENCE_S)
        answer = await self.answers.ask(self._transport, "renew", call, (200,))
        if answer is not None:
            self._note_gap(name)
            self._leases[name] = msgspec.json.decode(answer.body)
            self._renewed_at[name] = time.monotonic()

    def _note_gap(self, name: str) -> None:
        self.longest_gap_s = max(self.longest_gap_s, time.monotonic() - self._renewed_at[name])

    async def _report(self, name: str) -> None:
        body = encode({"status": {"conditions": node_status()["conditions"]}})
        kind = "application/strategic-merge-patch+json"
        call = Call("PATCH", f"{NODES_PATH}/{name}/status", body=body, content_type=kind, timeout_s=PATIENCE_S)
        await self.answers.ask(self._transport, "report", call, (200,))

    def document(self) -> dict[str, Any]:
        return {"nodes": len(self._names), "longest_gap_s": self.longest_gap_s, **self.answers.document()}


def lease_spec(name: str) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}


def node_status() -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
    room = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    return {"capacity": room, "allocatable": room, "conditions": [ready]}


# --- the processes


async def run_pods(options: argparse.Namespace) -> dict[str, Any]:
    transport = HttpsTransport(load_connection(options.kubeconfig))
    pods = Pods(transport, options.prefix, options.claims, options.living)
    ready(options)
    await pods.blow(options.seconds, options.rate)
    await transport.close()
    return pods.document()


async def run_watchers(options: argparse.Namespace) -> dict[str, Any]:
    """Until somebody says stop."""
    watchers, stop = Watchers(options.kubeconfig, options.watchers), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    watching = asyncio.create_task(watchers.watch())
    await watchers.all_watch.wait()
    ready(options)
    await stop.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return watchers.document()


async def run_heartbeats(options: argparse.Namespace) -> dict[str, Any]:
    transport = HttpsTransport(load_connection(options.kubeconfig))
    heartbeats = Heartbeats(transport, options.first, options.nodes)
    await heartbeats.register()
    ready(options)
    await heartbeats.beat(options.seconds)
    await transport.close()
    return heartbeats.document()


def ready(options: argparse.Namespace) -> None:
    options.output.with_suffix(".ready").touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pods", "watch", "beat"])
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=2000.0, help="pods per minute")
    parser.add_argument("--prefix", default="p")
    parser.add_argument("--claims", type=float, default=0.1)
    parser.add_argument("--living", type=int, default=200)
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=100)
    options = parser.parse_args()
    work = {"pods": run_pods, "watch": run_watchers, "beat": run_heartbeats}[options.what]
    document = asyncio.run(work(options))
    options.output.write_text(json.dumps(document))


if __name__ == "__main__":
    main()
