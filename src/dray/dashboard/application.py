"""The page over HTTP, as an ASGI application that can be put on any server under `/ui`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

import msgspec

from dray.client import Client
from dray.dashboard.access import Access, is_on_this_machine
from dray.dashboard.devices import device_documents
from dray.dashboard.live import Live, Viewing
from dray.dashboard.rows import why_row
from dray.features import FeatureGates
from dray.sim.explaining import Circumstances, PodNotFound, explain_pod

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
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Refused(Exception):
    """An answer that is no: status and a sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Dashboard:
    """`title` names the cluster on the page."""

    def __init__(self, client: Client, token: str, *, gates: FeatureGates | None = None, title: str = "") -> None:
        self._gates = gates or FeatureGates.default()
        self._access = Access(token)
        self._title = title
        self._viewing = Viewing(client, self._gates)
        self._explaining = asyncio.Lock()
        self._assets = {
            each.name: each.read_bytes()
            for each in resources.files("dray.dashboard.assets").iterdir()
            if each.name.rpartition(".")[2] in _TYPES
        }
        self._queries: dict[str, Callable[[Live, dict[str, str]], Awaitable[bytes]]] = {
            "snapshot": self._snapshot,
            "devices": self._devices,
            "why": self._why,
            "explain": self._explain,
        }

    async def stop(self) -> None:
        await self._viewing.stop()

    # --- from request to answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await self._answer(scope, receive, send)
        except Refused as refused:
            await _send(send, refused.status, *self._refusal(refused, scope))
        except Exception:
            log.exception("dashboard: %s", scope["path"])
            await _send(send, 500, b"the dashboard failed; its log says why\n", "text/plain; charset=utf-8")

    def _refusal(self, refused: Refused, scope: Scope) -> tuple[bytes, str]:
        """People get a page, programs get a line."""
        if b"text/html" in dict(scope["headers"]).get(b"accept", b"") and refused.status in (401, 403):
            page = self._assets["refused.html"].replace(b"{{status}}", str(refused.status).encode())
            return page.replace(b"{{text}}", str(refused).encode()), _TYPES["html"]
        return f"{refused}\n".encode(), "text/plain; charset=utf-8"

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client is not None and not is_on_this_machine(client[0]):
            raise Refused(
                403, "The dashboard answers this machine only. Forward the port with ssh -L, or run dray dashboard."
            )
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(405, "The dashboard is read-only.")
        query = _query(scope)
        path = scope["path"].removeprefix(PREFIX)
        if "token" in query and self._access.is_token(query["token"]):
            await self._sign_in(scope, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._access.admits(headers):
            raise Refused(401, "Open the address that the command printed: it carries the token.")
        if path == "":
            await _send(send, 307, b"", "text/plain", ((b"location", f"{PREFIX}/".encode()),))
        elif path == "/":
            title = msgspec.json.encode(self._title).replace(b"<", b"\\u003c")
            await _send(send, 200, self._assets["index.html"].replace(b'"{{title}}"', title), _TYPES["html"])
        elif path == "/api/events":
            await self._stream(receive, send)
        elif path.startswith("/api/"):
            await self._ask(path.removeprefix("/api/"), query, send)
        elif (name := path.removeprefix("/")) in self._assets:
            await _send(send, 200, self._assets[name], _TYPES[name.rpartition(".")[2]])
        else:
            raise Refused(404, "There is no such page.")

    async def _sign_in(self, scope: Scope, send: Send) -> None:
        cookie = self._access.cookie(PREFIX, is_secure=scope.get("scheme") == "https")
        headers = ((b"location", f"{PREFIX}/".encode()), (b"set-cookie", cookie.encode()))
        await _send(send, 303, b"", "text/plain", headers)

    async def _ask(self, what: str, query: dict[str, str], send: Send) -> None:
        answer = self._queries.get(what)
        if answer is None:
            raise Refused(404, "There is no such page.")
        async with self._viewing.live() as live:
            try:
                async with asyncio.timeout(SYNC_TIMEOUT_S):
                    await live.ready()
            except TimeoutError:
                raise Refused(503, "The cluster's objects have not arrived yet.") from None
            await _send(send, 200, await answer(live, query), _TYPES["json"])

    # --- live

    async def _stream(self, receive: Receive, send: Send) -> None:
        async with self._viewing.live() as live, contextlib.aclosing(live.follow()) as messages:  # type: ignore[type-var]
            await send({"type": "http.response.start", "status": 200, "headers": _head("text/event-stream")})
            gone: asyncio.Future[Any] = asyncio.ensure_future(_disconnected(receive))
            following: asyncio.Future[Any] | None = None
            try:
                while True:
                    following = following or asyncio.ensure_future(anext(messages))
                    done, _ = await asyncio.wait(
                        {following, gone}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED
                    )
                    if gone in done:
                        return
                    chunk = b": still here\n\n"
                    if following in done:
                        chunk, following = following.result(), None
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except StopAsyncIteration:
                await send({"type": "http.response.body", "body": b""})
            finally:
                for task in (gone, following):
                    if task is not None and not task.done():
                        task.cancel()
                        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                            await task

    # --- questions

    async def _snapshot(self, live: Live, query: dict[str, str]) -> bytes:
        return live.snapshot()

    async def _devices(self, live: Live, query: dict[str, str]) -> bytes:
        driver, _, pool = query.get("pool", "").partition("/")
        view = live.cluster.inventory.whole_pool((driver, pool))
        if view is None:
            raise Refused(404, f"There is no pool {driver}/{pool}.")
        return msgspec.json.encode(device_documents(view, live.cluster.taken, live.cluster.health))

    async def _why(self, live: Live, query: dict[str, str]) -> bytes:
        ledger = live.cluster.ledgers.nodes.get(query.get("node", ""))
        if ledger is None:
            raise Refused(404, f"There is no node {query.get('node', '')}.")
        rows = sorted((why_row(row) for row in ledger.why(query.get("resource", "cpu"))), key=lambda row: -row["nanos"])
        return msgspec.json.encode(rows)

    async def _explain(self, live: Live, query: dict[str, str]) -> bytes:
        """Works on a copy of the moment, beside the event loop: a large cluster takes a while."""
        namespace, _, name = query.get("pod", "").partition("/")
        async with self._explaining:
            world = live.cluster.world()
            around = Circumstances(gates=self._gates, is_live=True)
            try:
                verdict = await asyncio.to_thread(explain_pod, world, namespace, name, around)
            except PodNotFound as problem:
                raise Refused(404, str(problem)) from None
        return msgspec.json.encode(verdict.document())


def _query(scope: Scope) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(scope["query_string"].decode("ascii", "replace")).items()}


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _head(content_type: str) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", content_type.encode()), *_GUARDS]


async def _send(
    send: Send, status: int, body: bytes, content_type: str, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    head = [*_head(content_type), *headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
