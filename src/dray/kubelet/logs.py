"""Output of containers, served to the API server, which serves it to `kubectl logs`.

Only the API server may ask: it shows a client certificate of the cluster's CA with the name it is known by.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from glob import escape
from io import SEEK_END, BufferedReader
from pathlib import Path

from aiohttp import web

API_SERVER_NAMES = frozenset({"kube-apiserver-kubelet-client"})
FOLLOW_EVERY_S = 0.2
CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class LogRequest:
    """What `kubectl logs` can ask for."""

    tail_lines: int | None = None
    limit_bytes: int | None = None
    follow: bool = False
    previous: bool = False


def find_log(root: Path, namespace: str, pod: str, container: str, *, previous: bool) -> Path | None:
    """The newest attempt's file, or the one before it. Names are checked: no path leaves `root`."""
    if any("/" in part or part in ("", ".", "..") for part in (namespace, pod, container)):
        return None
    folders = sorted(root.glob(f"{escape(namespace)}_{escape(pod)}_*"), key=lambda each: each.stat().st_mtime)
    if not folders:
        return None
    files = sorted((folders[-1] / container).glob("[0-9]*.log"), key=lambda each: int(each.stem))
    wanted = -2 if previous else -1
    return files[wanted] if len(files) >= -wanted else None


def _always() -> bool:
    return True


async def read_log(path: Path, request: LogRequest, is_written: Callable[[], bool] = _always) -> AsyncIterator[bytes]:
    """The asked-for part of a file, then what is added to it while it is followed and its container runs."""
    with path.open("rb") as file:
        if request.tail_lines is not None:
            _seek_to_last_lines(file, request.tail_lines)
        left = request.limit_bytes
        is_last = not request.follow
        while left is None or left > 0:
            chunk = file.read(CHUNK if left is None else min(CHUNK, left))
            if chunk:
                left = None if left is None else left - len(chunk)
                yield chunk
            elif is_last:
                return
            elif is_written():
                await asyncio.sleep(FOLLOW_EVERY_S)
            else:
                # What was written just before the end is still to be read.
                is_last = True


def _seek_to_last_lines(file: BufferedReader, count: int) -> None:
    """Read backwards in blocks until `count` line ends lie behind; a line end that closes the file does not count."""
    end = file.seek(0, SEEK_END)
    if count <= 0:
        return
    position, wanted = end, count
    while position > 0:
        step = min(CHUNK, position)
        position -= step
        file.seek(position)
        block = file.read(step)
        if position + step == end and block.endswith(b"\n"):
            wanted += 1
        lines = block.count(b"\n")
        if lines >= wanted:
            for _ in range(lines - wanted + 1):
                found = block.find(b"\n")
                position, block = position + found + 1, block[found + 1 :]
            file.seek(position)
            return
        wanted -= lines
    file.seek(0)


class LogServer:
    """HTTPS on the node; `port` is known once it was started."""

    def __init__(
        self, root: Path, tls: ssl.SSLContext, host: str = "127.0.0.1", runs: Callable[[Path], bool] = Path.exists
    ) -> None:
        self._root = root
        # Whether more can come into this file: following ends with the container.
        self._runs = runs
        self._tls = tls
        self._host = host
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, 0, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if _caller(request) not in API_SERVER_NAMES:
            return web.Response(status=403, text="only the API server may read logs here\n")
        try:
            wanted = _log_request(request)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        parts = request.match_info
        path = find_log(self._root, parts["namespace"], parts["pod"], parts["container"], previous=wanted.previous)
        if path is None:
            what = "previous terminated container" if wanted.previous else "container"
            return web.Response(status=404, text=f'{what} "{parts["container"]}" in pod "{parts["pod"]}" not found\n')
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for chunk in read_log(path, wanted, lambda: self._runs(path)):
            await response.write(chunk)
        return response


def _caller(request: web.Request) -> str:
    """The common name of the client certificate, which TLS has verified."""
    certificate = request.transport.get_extra_info("peercert") if request.transport else None
    for pairs in (certificate or {}).get("subject", ()):
        for key, value in pairs:
            if key == "commonName":
                return str(value)
    return ""


def _log_request(request: web.Request) -> LogRequest:
    query = request.query
    return LogRequest(
        tail_lines=int(query["tailLines"]) if "tailLines" in query else None,
        limit_bytes=int(query["limitBytes"]) if "limitBytes" in query else None,
        follow=query.get("follow") == "true",
        previous=query.get("previous") == "true",
    )
