"""Output of containers, served to the API server, which serves it to `kubectl logs`.

Only the API server may ask: it shows a client certificate of the cluster's CA with the name it is known by.
"""

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from dray.kubelet.log_files import LogRequest, find_log, nanoseconds, read_log

API_SERVER_NAMES = frozenset({"kube-apiserver-kubelet-client"})


@dataclass(frozen=True, slots=True)
class LogSource:
    """Where the output is, and what is known of the containers that write it."""

    root: Path
    is_cri: bool = False
    # Whether more can come into this file: following ends with the container.
    is_written: Callable[[Path], bool] = Path.exists
    # Why a container (namespace, pod, name) has not been started yet; empty if it was, or is not known.
    waits_for: Callable[[str, str, str], str] = lambda namespace, pod, container: ""


class LogServer:
    """HTTPS on the node; `port` is known once it was started."""

    def __init__(self, source: LogSource, tls: ssl.SSLContext, host: str = "127.0.0.1") -> None:
        self._source = source
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
            wanted = log_request(request.query, time.time_ns())
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        source, parts = self._source, request.match_info
        namespace, pod, container = parts["namespace"], parts["pod"], parts["container"]
        path = find_log(source.root, namespace, pod, container, previous=wanted.previous)
        if path is None:
            return web.Response(status=404, text=f"{self._why_none(namespace, pod, container, wanted)}\n")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for chunk in read_log(path, wanted, lambda: source.is_written(path), is_cri=source.is_cri):
            await response.write(chunk)
        return response

    def _why_none(self, namespace: str, pod: str, container: str, wanted: LogRequest) -> str:
        if wanted.previous:
            return f'previous terminated container "{container}" in pod "{pod}" not found'
        reason = self._source.waits_for(namespace, pod, container)
        what = f"is waiting to start: {reason}" if reason else "not found"
        return f'container "{container}" in pod "{pod}" {what}'


def _caller(request: web.Request) -> str:
    """The common name of the client certificate, which TLS has verified."""
    certificate = request.transport.get_extra_info("peercert") if request.transport else None
    for pairs in (certificate or {}).get("subject", ()):
        for key, value in pairs:
            if key == "commonName":
                return str(value)
    return ""


def log_request(query: Mapping[str, str], now_ns: int) -> LogRequest:
    """ValueError names what makes no sense."""
    since_ns = None
    if "sinceSeconds" in query:
        since_ns = now_ns - _number(query, "sinceSeconds", 1) * 10**9
    elif "sinceTime" in query:
        since_ns = nanoseconds(query["sinceTime"])
    return LogRequest(
        tail_lines=_number(query, "tailLines", 0) if "tailLines" in query else None,
        limit_bytes=_number(query, "limitBytes", 1) if "limitBytes" in query else None,
        follow=query.get("follow") == "true",
        previous=query.get("previous") == "true",
        timestamps=query.get("timestamps") == "true",
        since_ns=since_ns,
    )


def _number(query: Mapping[str, str], name: str, least: int) -> int:
    try:
        number = int(query[name])
    except ValueError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name}: Invalid value: {query[name]!r}: must be a whole number, at least {least}")
    return number
