"""Machine instructions of the API server for one request, in this checkout and in others.

    python benchmarks/server_instructions.py [CHECKOUT ...] [--only get create list event]

The server runs under `valgrind --tool=cachegrind`, which counts the instructions of the whole process: Python, JSON, SQLite and TLS. One run makes
few requests and another one more of one sort; the difference is what they cost. Unlike a time it depends little on what else the machine
does. The start of the server takes half a minute that way. Each checkout needs its `.venv`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import uvloop
from bench_apiserver import CLAIMS, JSON, Server, a_claim, session

STORED = 300
WATCHERS = 100
STOP_S = 300.0


@dataclass(frozen=True, slots=True)
class Requests:
    """How many of each sort one run makes, after `STORED` creates. An event is a create that `watchers` hear of."""

    get: int = 20
    create: int = 10
    list: int = 2
    event: int = 5
    watchers: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """Two runs, and by what their difference is divided."""

    few: Requests
    many: Requests
    count: int


FEW = Requests()
WATCHED = Requests(watchers=WATCHERS)
QUESTIONS = {
    "get": Question(FEW, replace(FEW, get=FEW.get + 1000), 1000),
    "create": Question(FEW, replace(FEW, create=FEW.create + 200), 200),
    "list": Question(FEW, replace(FEW, list=FEW.list + 20), 20),
    # For each watcher. Both runs create as many objects, so that their difference is the delivery alone.
    "event": Question(
        replace(WATCHED, create=WATCHED.create + 40), replace(WATCHED, event=WATCHED.event + 40), 40 * WATCHERS
    ),
}


class Load:
    """Makes the requests, one at a time."""

    def __init__(self, server: Server, http: aiohttp.ClientSession) -> None:
        self._url, self._http = server.url + CLAIMS, http
        self._created = 0

    async def make(self, requests: Requests) -> None:
        for _ in range(STORED):
            await self._create()
        for number in range(requests.get):
            await self._get(f"/c{number % STORED}")
        for _ in range(requests.list):
            await self._get(f"?limit={STORED}")
        for _ in range(requests.create):
            await self._create()
        if requests.watchers:
            await self._events(requests.event, requests.watchers)

    async def _create(self) -> None:
        async with self._http.post(self._url, data=a_claim(self._created), headers=JSON) as answer:
            assert answer.status == 201, await answer.text()
            await answer.read()
        self._created += 1

    async def _get(self, rest: str) -> bytes:
        async with self._http.get(self._url + rest) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.read()

    async def _events(self, events: int, watchers: int) -> None:
        revision = json.loads(await self._get("?limit=1"))["metadata"]["resourceVersion"]
        opened = [await self._http.get(f"{self._url}?watch=true&resourceVersion={revision}") for _ in range(watchers)]
        for _ in range(events):
            reads = asyncio.gather(*(watch.content.readline() for watch in opened))
            await self._create()
            assert all(line.startswith(b'{"type":"ADDED"') for line in await reads)
        for watch in opened:
            watch.close()


async def _load(server: Server, requests: Requests) -> None:
    async with session(server, WATCHERS + 10) as http:
        await Load(server, http).make(requests)


def environment_of(cache: Path) -> dict[str, str]:
    """Modules are compiled into `cache`; sets have the same order in every run."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(cache), "PYTHONHASHSEED": "0"}


def compile_modules(checkout: Path, environment: dict[str, str]) -> None:
    """Makes all sorts of requests, so that no counted run compiles a module."""
    with tempfile.TemporaryDirectory(prefix="dray-instructions-") as directory:
        server = Server(Path(directory), [str(checkout / ".venv/bin/python")], environment)
        try:
            uvloop.run(_load(server, WATCHED))
        finally:
            server.stop()


def executed(checkout: Path, requests: Requests, environment: dict[str, str]) -> int:
    """Instructions of a server of `checkout` from its start to its end."""
    with tempfile.TemporaryDirectory(prefix="dray-instructions-") as directory:
        counts = Path(directory) / "counts"
        valgrind = ["valgrind", "-q", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={counts}"]
        server = Server(Path(directory), [*valgrind, str(checkout / ".venv/bin/python")], environment)
        try:
            uvloop.run(_load(server, requests))
        finally:
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(STOP_S)
        summary = [line for line in counts.read_text().splitlines() if line.startswith("summary:")]
        return int(summary[0].split()[1])


def measured(checkout: Path, question: Question, known: dict[Requests, int], environment: dict[str, str]) -> float:
    for requests in (question.few, question.many):
        if requests not in known:
            known[requests] = executed(checkout, requests, environment)
    return (known[question.many] - known[question.few]) / question.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, help="other checkouts, each with its .venv")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    args = parser.parse_args()
    checkouts = [*(path.resolve() for path in args.checkouts), Path(__file__).parent.parent.resolve()]
    known: dict[Path, dict[Requests, int]] = {checkout: {} for checkout in checkouts}
    with tempfile.TemporaryDirectory(prefix="dray-compiled-") as cache:
        environment = environment_of(Path(cache))
        for checkout in checkouts:
            compile_modules(checkout, environment)
        for name in args.only:
            numbers = [measured(checkout, QUESTIONS[name], known[checkout], environment) for checkout in checkouts]
            columns = [f"{number:>12,.0f}" for number in numbers]
            print(f"{name:<8}", *columns, f"{numbers[-1] / numbers[0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
