"""The page over HTTP: a handler that can be put on any server under `/ui`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from dray.client import Client
from dray.dashboard.access import DashboardAccess, is_on_this_machine
from dray.dashboard.device_rows import device_documents
from dray.dashboard.object_rows import why_row
from dray.dashboard.page_updates import (
    ClusterUpdates,
    SharedUpdates,
)
from dray.dashboard.pending_explanations import PodExplainer
from dray.dashboard.use_history import UseHistory
from dray.features import FeatureGates
from dray.http.connection import HttpRequest
from dray.http.responses import TEXT, Response
from dray.http.server import HttpServer, url_of

log = logging.getLogger(__name__)

PREFIX = "/ui"
HEARTBEAT_S = 15.0
SYNC_TIMEOUT_S = 20.0

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}
# Everything comes from here and nothing goes elsewhere; other pages may neither frame nor read it.
_GUARDS = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)

Headers = tuple[tuple[str, str], ...]


class PageRefused(Exception):
    """An answer that is no: status and a sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Dashboard:
    """`title` names the cluster on the page; `is_dump`: it is one moment, and nothing will change. `explain` answers why pods wait; it runs in a thread."""

    def __init__(
        self,
        client: Client,
        token: str,
        *,
        explain: PodExplainer,
        gates: FeatureGates | None = None,
        title: str = "",
        is_dump: bool = False,
        history: UseHistory | None = None,
    ) -> None:
        self._gates = gates or FeatureGates.default()
        self.token = token
        self._access = DashboardAccess(token)
        self._about = {"title": title, "isDump": is_dump}
        self._viewing = SharedUpdates(client, self._gates, explain, history or UseHistory())
        self._explainer = explain
        self._explaining = asyncio.Lock()
        self._assets = {
            each.name: each.read_bytes()
            for each in resources.files("dray.dashboard.assets").iterdir()
            if each.name.rpartition(".")[2] in _TYPES
        }
        self._queries: dict[str, Callable[[ClusterUpdates, dict[str, str]], Awaitable[bytes]]] = {
            "snapshot": self._snapshot,
            "devices": self._devices,
            "why": self._why,
            "explain": self._explain,
        }

    def keep_watching(self) -> None:
        """Records the history of the cluster also while no page is open."""
        self._viewing.keep_watching()

    async def stop(self) -> None:
        await self._viewing.stop()

    # --- from request to answer

    async def __call__(self, request: HttpRequest) -> Response:
        try:
            return await self._answer(request)
        except PageRefused as refused:
            return _response(refused.status, *self._refusal(refused, request))
        except Exception:
            log.exception("dashboard: %s", request.target.decode("ascii", "replace"))
            return _response(500, b"the dashboard failed; its log says why\n", TEXT)

    def _refusal(self, refused: PageRefused, request: HttpRequest) -> tuple[bytes, str]:
        """People get a page, programs get a line."""
        if "text/html" in request.headers.get("accept", "") and refused.status in (401, 403):
            page = self._assets["refused.html"].replace(b"{{status}}", str(refused.status).encode())
            return page.replace(b"{{text}}", str(refused).encode()), _TYPES["html"]
        return f"{refused}\n".encode(), TEXT

    async def _answer(self, request: HttpRequest) -> Response:
        if not is_on_this_machine(request.peer.remote):
            raise PageRefused(
                403, "The dashboard answers this machine only. Forward the port with ssh -L, or run dray dashboard."
            )
        if request.method not in ("GET", "HEAD"):
            raise PageRefused(405, "The dashboard is read-only.")
        encoded_path, query_string = request.path_and_query()
        query = {name: values[-1] for name, values in parse_qs(query_string).items()}
        if "token" in query and self._access.is_token(query["token"]):
            return self._sign_in(request)
        if not self._access.admits(request.headers):
            raise PageRefused(401, "Open the address that the command printed: it carries the token.")
        return await self._page(unquote(encoded_path).removeprefix(PREFIX), query)

    async def _page(self, path: str, query: dict[str, str]) -> Response:
        if path == "":
            return _response(307, b"", "text/plain", (("location", f"{PREFIX}/"),))
        if path == "/":
            about = msgspec.json.encode(self._about).replace(b"<", b"\\u003c")
            return _response(200, self._assets["index.html"].replace(b'"{{about}}"', about), _TYPES["html"])
        if path == "/api/events":
            return _response(200, b"", "text/event-stream", stream=OpenPage(self._viewing))
        if path.startswith("/api/"):
            return await self._ask(path.removeprefix("/api/"), query)
        name = path.removeprefix("/")
        if name not in self._assets:
            raise PageRefused(404, "There is no such page.")
        return _response(200, self._assets[name], _TYPES[name.rpartition(".")[2]])

    def _sign_in(self, request: HttpRequest) -> Response:
        cookie = self._access.cookie(PREFIX, is_secure=request.peer.is_secure)
        return _response(303, b"", "text/plain", (("location", f"{PREFIX}/"), ("set-cookie", cookie)))

    async def _ask(self, what: str, query: dict[str, str]) -> Response:
        answer = self._queries.get(what)
        if answer is None:
            raise PageRefused(404, "There is no such page.")
        async with self._viewing.live() as live:
            try:
                async with asyncio.timeout(SYNC_TIMEOUT_S):
                    await live.ready()
            except TimeoutError:
                raise PageRefused(503, "The cluster's objects have not arrived yet.") from None
            return _response(200, await answer(live, query), _TYPES["json"])

    # --- questions

    async def _snapshot(self, live: ClusterUpdates, query: dict[str, str]) -> bytes:
        return live.snapshot()

    async def _devices(self, live: ClusterUpdates, query: dict[str, str]) -> bytes:
        driver, _, pool = query.get("pool", "").partition("/")
        view = live.cluster.inventory.whole_pool((driver, pool))
        if view is None:
            raise PageRefused(404, f"There is no pool {driver}/{pool}.")
        return msgspec.json.encode(device_documents(view, live.cluster.taken, live.cluster.health))

    async def _why(self, live: ClusterUpdates, query: dict[str, str]) -> bytes:
        ledger = live.cluster.ledgers.nodes.get(query.get("node", ""))
        if ledger is None:
            raise PageRefused(404, f"There is no node {query.get('node', '')}.")
        rows = sorted((why_row(row) for row in ledger.why(query.get("resource", "cpu"))), key=lambda row: -row["nanos"])
        return msgspec.json.encode(rows)

    async def _explain(self, live: ClusterUpdates, query: dict[str, str]) -> bytes:
        """Works on a copy of the moment, beside the event loop: a large cluster takes a while."""
        namespace, _, name = query.get("pod", "").partition("/")
        pod = (namespace, name)
        async with self._explaining:
            answers = await asyncio.to_thread(self._explainer, live.cluster.world(), [pod], self._gates)
        if pod not in answers:
            raise PageRefused(404, f"There is no pod {namespace}/{name}.")
        return msgspec.json.encode(answers[pod].document())


class OpenPage:
    """The messages for one open page, as a stream that ends as soon as the page is closed."""

    def __init__(self, viewing: SharedUpdates) -> None:
        self._closed = asyncio.Event()
        self._messages = self._follow(viewing)

    def __aiter__(self) -> OpenPage:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._messages)

    async def aclose(self) -> None:
        self._closed.set()
        await self._messages.aclose()

    async def _follow(self, viewing: SharedUpdates) -> AsyncGenerator[bytes]:
        closed: asyncio.Future[Any] = asyncio.ensure_future(self._closed.wait())
        async with viewing.live() as live, contextlib.aclosing(live.follow()) as messages:
            coming: asyncio.Future[Any] | None = None
            try:
                while True:
                    coming = coming or asyncio.ensure_future(anext(messages))
                    done, _ = await asyncio.wait(
                        {coming, closed}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED
                    )
                    if closed in done:
                        return
                    if coming in done:
                        message, coming = coming.result(), None
                        yield message
                    else:
                        yield b": still here\n\n"
            except StopAsyncIteration:
                return
            finally:
                for task in (closed, coming):
                    if task is not None and not task.done():
                        task.cancel()
                        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                            await task


class DashboardServer:
    """The page on a socket of its own, for a cluster that is elsewhere. Plain HTTP: it never leaves this machine."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._server = HttpServer(dashboard, stop_after_s=2.0)

    async def start(self, host: str, port: int) -> str:
        """Returns the URL."""
        return url_of("http", *await self._server.start(host, port))

    async def stop(self) -> None:
        await self._dashboard.stop()
        await self._server.stop()


def _response(
    status: int, body: bytes, content_type: str, headers: Headers = (), stream: AsyncIterator[bytes] | None = None
) -> Response:
    return Response(status, body, content_type, (*_GUARDS, *headers), stream, cache_control="no-store")
