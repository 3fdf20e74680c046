"""Two servers to test against: one in this process (`server`), one on a socket (`live`)."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.builders.manifests import a_claim, a_request
from tests.waiting import eventually_blocking

from dray.apiserver.assembly import RunningServer, ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request, User
from dray.http.responses import Response
from dray.store.sqlite import SqliteStore

Document = dict[str, Any]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    stream: Any = None


class Client:
    """Calls a server in this process and reads its answers."""

    def __init__(self, running: RunningServer, store: SqliteStore) -> None:
        self.running = running
        self.core = running.server.core
        self.store = store

    async def send(
        self, method: str, path: str, body: Any = None, *, user: User | None = LOOPBACK, **headers: str
    ) -> Answer:
        path, _, query = path.partition("?")
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"user-agent": "test/1.0", "content-type": "application/json", **names}
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        response = await self.running.server.handle(Request(method, path, query, sent, data, user=user))
        return read(response)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.send("GET", path, **headers)

    async def post(self, path: str, body: Any, **headers: str) -> Answer:
        return await self.send("POST", path, body, **headers)

    async def patch(self, path: str, body: Any, kind: str = "merge", **headers: str) -> Answer:
        media_type = f"application/{kind}-patch+json" if kind != "apply" else "application/apply-patch+yaml"
        return await self.send("PATCH", path, body, content_type=media_type, **headers)

    async def watch(self, path: str) -> Events:
        answer = await self.send("GET", path)
        assert answer.status == 200, answer.body
        return Events(answer.stream)


class Events:
    """The events of a watch, one by one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._pending: list[Document] = []

    async def next(self, timeout_s: float = 5.0) -> Document | None:
        """The next event; None when the watch is over."""
        if not self._pending:
            try:
                chunk = await asyncio.wait_for(self._stream.__anext__(), timeout_s)
            except StopAsyncIteration:
                return None
            self._pending = [json.loads(line) for line in chunk.splitlines()]
        return self._pending.pop(0)

    async def take(self, count: int) -> list[tuple[str, str]]:
        found = []
        for _ in range(count):
            event = await self.next()
            assert event is not None
            found.append((event["type"], event["object"]["metadata"].get("name", "")))
        return found

    async def close(self) -> None:
        await self._stream.aclose()


def read(response: Response) -> Answer:
    body: Any = response.body
    if response.stream is None and response.content_type.startswith("application/json"):
        body = json.loads(response.body) if response.body else None
    headers = {name.lower(): value for name, value in response.headers}
    headers["content-type"] = response.content_type
    return Answer(response.status, body, headers, response.warnings, response.stream)


def gold_claim(name: str = "c", **metadata: Any) -> Document:
    return a_claim(name, a_request(device_class="gold"), namespace="", **metadata)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Client]:
    store = SqliteStore(tmp_path / "store.db")
    running = await start_server(store, ServerOptions(tmp_path, runtime_config="api/all=true"))
    yield Client(running, store)
    await running.stop()
    await store.close()


@dataclass(frozen=True)
class Live:
    """A server process."""

    url: str
    kubeconfig: Path
    process: subprocess.Popen[bytes]
    directory: Path


def start_live(directory: Path, *options: str, most_files: int = 0) -> Live:
    ready, kubeconfig = directory / "ready", directory / "kubeconfig"
    ready.unlink(missing_ok=True)
    process = subprocess.Popen(
        [
            sys.executable, "-m", "dray", "apiserver", "--listen", "127.0.0.1:0", "--data", str(directory / "data"),
            "--kubeconfig", str(kubeconfig), "--ready-file", str(ready), *options,
        ],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))) if most_files else None,
    )  # fmt: skip

    def is_ready() -> bool:
        assert process.poll() is None, "the server ended before it was ready"
        return ready.exists() and bool(ready.read_text())

    eventually_blocking(is_ready, "the server to be ready")
    return Live(ready.read_text().strip(), kubeconfig, process, directory)


def stop_live(live: Live) -> int:
    live.process.send_signal(signal.SIGTERM)
    return live.process.wait(15)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    started = start_live(tmp_path_factory.mktemp("live"), "--runtime-config", "api/all=true")
    yield started
    stop_live(started)
