"""Serves the output of containers and streams to them to the API server, which serves them to `kubectl logs`, `exec` and the like.

Only the API server may ask: it shows a client certificate of the cluster's CA with the name it is known by."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from dray.http.connection import HttpRequest
from dray.http.health import not_found
from dray.http.responses import TEXT, Response
from dray.http.server import HttpServer
from dray.kubelet.log_files import LogRequest, find_log, nanoseconds, read_log

if TYPE_CHECKING:
    from dray.kubelet.streams.node_streams import NodeStreams, StreamTarget

# The parts of the paths of streams: pod and container, or pod, UID and container.
STREAM_PATHS = {"exec": (4, 5), "attach": (4, 5), "portForward": (3, 4)}
API_SERVER_NAMES = frozenset({"kube-apiserver-kubelet-client"})


@dataclass(frozen=True, slots=True)
class LogSource:
    """Where log files are, and what the kubelet knows of the containers that write them."""

    root: Path
    is_cri: bool = False
    # Whether more can come into this file: following ends with the container.
    is_written: Callable[[Path], bool] = Path.exists
    # Why a container (namespace, pod, name) has not been started yet; empty if it was, or is not known.
    waits_for: Callable[[str, str, str], str] = lambda namespace, pod, container: ""
    # The pod (namespace, name) as streams need it.
    find_pod: Callable[[str, str], StreamTarget | None] = lambda namespace, pod: None
    metrics: Callable[[], str] = str


class LogServer:
    """HTTPS on the node; `port` is known once it was started."""

    def __init__(self, source: LogSource, tls: ssl.SSLContext, host: str = "127.0.0.1") -> None:
        self._source = source
        self._streams: NodeStreams | None = None
        self._host = host
        self._server = HttpServer(self._answer, tls, stop_after_s=0.5)
        self.port = 0

    async def start(self) -> None:
        _, self.port = await self._server.start(self._host, 0)

    async def stop(self) -> None:
        await self._server.stop()

    async def _answer(self, request: HttpRequest) -> Response:
        path, query = request.path_and_query()
        parts = [unquote(part) for part in path.split("/")[1:]]
        is_stream = len(parts) in STREAM_PATHS.get(parts[0], ())
        is_page = path in ("/healthz", "/metrics")
        if not is_stream and not is_page and (len(parts) != 4 or parts[0] != "containerLogs"):
            return not_found()
        if request.peer.common_name not in API_SERVER_NAMES:
            return _refusal(403, "only the API server may ask here")
        if is_stream:
            return self._node_streams().answer(request, parts)
        if is_page:
            return Response(200, self._source.metrics().encode() if path == "/metrics" else b"ok", TEXT)
        if request.method not in ("GET", "HEAD"):
            return _refusal(405, "logs can only be read")
        try:
            wanted = log_request(dict(parse_qsl(query, keep_blank_values=True)), time.time_ns())
        except ValueError as error:
            return _refusal(400, str(error))
        source, (namespace, pod, container) = self._source, parts[1:]
        log_file = find_log(source.root, namespace, pod, container, previous=wanted.previous)
        if log_file is None:
            return _refusal(404, self._why_none(namespace, pod, container, wanted))
        lines = read_log(log_file, wanted, lambda: source.is_written(log_file), is_cri=source.is_cri)
        return Response(200, content_type="text/plain", stream=lines)

    def _node_streams(self) -> NodeStreams:
        from dray.kubelet.streams.node_streams import NodeStreams

        if self._streams is None:
            self._streams = NodeStreams(self._source.find_pod)
        return self._streams

    def _why_none(self, namespace: str, pod: str, container: str, wanted: LogRequest) -> str:
        if wanted.previous:
            return f'previous terminated container "{container}" in pod "{pod}" not found'
        reason = self._source.waits_for(namespace, pod, container)
        what = f"is waiting to start: {reason}" if reason else "not found"
        return f'container "{container}" in pod "{pod}" {what}'


def _refusal(status: int, text: str) -> Response:
    return Response(status, f"{text}\n".encode(), TEXT)


def log_request(query: Mapping[str, str], now_ns: int) -> LogRequest:
    """The request that the query asks for; ValueError names a parameter that makes no sense."""
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
