"""A small API server with the habits of real ones: it is strict about what it is asked, and hard on connections.

It speaks HTTP/1.1 by hand, so that every habit can be had: answers in odd chunks, connections closed between and in the
middle of answers, flow control in plain text, lists in pages that expire, watches that end, break or forget.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATH = "/api/v1/pods"
WATCH_PARAMETERS = {"watch", "allowWatchBookmarks", "timeoutSeconds", "resourceVersion", "resourceVersionMatch"}
LIST_PARAMETERS = {"limit", "continue"}
FORBIDDEN_WATCH_LIST = (
    'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch '
    "unless the WatchList feature gate is enabled"
)
EXPIRED = "The provided continue parameter is too old to display a consistent list result."
Document = dict[str, Any]


class FakeKubernetes:
    """`habits` are taken up one by one, each by the next request or watch it fits."""

    def __init__(self, *, watch_list: bool = True, page: int = 3) -> None:
        self.watch_list = watch_list
        self.page = page
        self.revision = 100
        self.objects: dict[str, Document] = {}
        self.log: deque[tuple[int, str, Document]] = deque()
        self.oldest = 100
        self.habits: deque[str] = deque()
        self.requests: list[str] = []
        self.offences: list[str] = []
        self.times: list[float] = []
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[Any] = set()
        # Pages of one list show one moment, whatever happens between them.
        self._snapshots: list[tuple[int, list[Document]]] = []

    # --- the world

    async def put(self, name: str, **status: Any) -> None:
        known = self.objects.get(name)
        self.revision += 1
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(self.revision)}
        # Null where a list could be, and a field from the future: both are usual.
        spec = {"containers": None, "fromTheFuture": {"a": [1]}}
        document = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}
        self.objects[name] = document
        await self._tell("MODIFIED" if known else "ADDED", document)

    async def remove(self, name: str) -> None:
        document = self.objects.pop(name)
        self.revision += 1
        metadata = {**document["metadata"], "resourceVersion": str(self.revision)}
        await self._tell("DELETED", {**document, "metadata": metadata})

    async def _tell(self, kind: str, document: Document) -> None:
        self.log.append((self.revision, kind, document))
        async with self._changed:
            self._changed.notify_all()

    async def forget_history(self) -> None:
        self.log.clear()
        self.oldest = self.revision
        async with self._changed:
            self._changed.notify_all()

    # --- serving

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Every connection breaks at once, idle or not."""
        for writer in list(self._connections):
            writer.transport.abort()

    def close_idle(self) -> None:
        """As a load balancer does: the client only learns of it when it looks."""
        for writer in list(self._connections):
            writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        self._tasks.add(task := asyncio.current_task())
        try:
            while await self._answer_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._connections.discard(writer)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request, *lines = head.strip().split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        await reader.readexactly(int(headers.get("content-length", "0")))
        method, target, version = request.split(" ")
        self.requests.append(f"{method} {target}")
        self.times.append(asyncio.get_running_loop().time())
        path = urlsplit(target).path
        query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        self._judge(version, path, query, headers)
        if query.get("watch") == "true":
            return await self._watch(writer, query)
        return await self._list(writer, query)

    def _judge(self, version: str, path: str, query: dict[str, str], headers: dict[str, str]) -> None:
        """What a strict server, or a proxy before it, would not let pass."""
        watch_list = {"sendInitialEvents"} if query.get("watch") == "true" else set()
        allowed = (WATCH_PARAMETERS | watch_list) if query.get("watch") == "true" else LIST_PARAMETERS
        if version != "HTTP/1.1" or "host" not in headers:
            self.offences.append("not HTTP/1.1 with a host")
        if path != PATH:
            self.offences.append(f"path {path}")
        if unknown := query.keys() - allowed:
            self.offences.append(f"parameters {sorted(unknown)}")
        if "application/json" not in headers.get("accept", ""):
            self.offences.append(f"accept {headers.get('accept')}")
        if not headers.get("user-agent"):
            self.offences.append("no user-agent")
        if "sendInitialEvents" in query and query.get("resourceVersionMatch") != "NotOlderThan":
            self.offences.append("sendInitialEvents without resourceVersionMatch")
        if "continue" in query and "resourceVersion" in query:
            self.offences.append("continue with a resourceVersion")

    def _habit(self, *fitting: str) -> str:
        habit = next((each for each in self.habits if each in fitting), "")
        if habit:
            self.habits.remove(habit)
        return habit

    # --- lists

    async def _list(self, writer: asyncio.StreamWriter, query: dict[str, str]) -> bool:
        habit = self._habit("429", "503", "410-list", "close", "chunks", "cut")
        if habit == "cut":
            writer.transport.abort()
            return False
        if habit in ("429", "503"):
            return await self._refuse_in_plain_text(writer, int(habit))
        if habit == "410-list" and "continue" in query:
            return await self._refuse(writer, 410, "Expired", EXPIRED)
        number, start = (int(part) for part in query.get("continue", f"{len(self._snapshots)}.0").split("."))
        if "continue" not in query:
            self._snapshots.append((self.revision, [self.objects[name] for name in sorted(self.objects)]))
        revision, objects = self._snapshots[number]
        limit = min(int(query["limit"]), self.page) if "limit" in query else len(objects)
        items, rest = objects[start : start + limit] or None, objects[start + limit :]
        metadata: Document = {"resourceVersion": str(revision)}
        if rest:
            metadata |= {"continue": f"{number}.{start + limit}", "remainingItemCount": len(rest)}
        body = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}
        await self._send(writer, 200, json.dumps(body, ensure_ascii=False).encode(), in_chunks=habit == "chunks")
        return habit != "close"  # Without a word about it in the headers.

    async def _refuse(self, writer: asyncio.StreamWriter, code: int, reason: str, message: str) -> bool:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        await self._send(writer, code, json.dumps({**status, "reason": reason, "message": message}).encode())
        return True

    async def _refuse_in_plain_text(self, writer: asyncio.StreamWriter, code: int) -> bool:
        """As priority and fairness does, and load balancers do."""
        text = b"Too many requests, please try again later.\n"
        await self._send(writer, code, text, "text/plain; charset=utf-8", {"Retry-After": "1"})
        return True

    async def _send(
        self,
        writer: asyncio.StreamWriter,
        code: int,
        body: bytes,
        content_type: str = "application/json",
        more: dict[str, str] | None = None,
        *,
        in_chunks: bool = False,
    ) -> None:
        headers = {"Content-Type": content_type, "Warning": '299 - "something is deprecated"', **(more or {})}
        headers |= {"Transfer-Encoding": "chunked"} if in_chunks else {"Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {code} Whatever\r\n{head}\r\n".encode())
        for start in range(0, len(body), 7) if in_chunks else ():
            writer.write(_chunk(body[start : start + 7]))
            if start % 700 == 0:
                await writer.drain()
        writer.write(_chunk(b"") if in_chunks else body)
        await writer.drain()

    # --- watches

    async def _watch(self, writer: asyncio.StreamWriter, query: dict[str, str]) -> bool:
        initial = query.get("sendInitialEvents") == "true"
        if initial and not self.watch_list:
            return await self._refuse(writer, 422, "Invalid", FORBIDDEN_WATCH_LIST)
        habit = self._habit("429", "503", "end", "cut", "error", "bookmarks", "halves")
        if habit in ("429", "503"):
            return await self._refuse_in_plain_text(writer, int(habit))
        since = int(query.get("resourceVersion") or "0")
        if since and since < self.oldest:
            return await self._refuse(writer, 410, "Expired", f"too old resource version: {since} ({self.oldest})")
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        if initial:
            for name in sorted(self.objects):
                self._event(writer, "ADDED", self.objects[name])
            self._bookmark(writer, {"k8s.io/initial-events-end": "true"})
            since = self.revision
        await writer.drain()
        return await self._follow(writer, since or self.revision, habit)

    async def _follow(self, writer: asyncio.StreamWriter, since: int, habit: str) -> bool:
        while not writer.is_closing():
            if since < self.oldest:
                return await self._stop_watching(writer, "error")  # It can no longer be told all that happened.
            for revision, kind, document in [entry for entry in self.log if entry[0] > since]:
                since = revision
                if habit == "halves":
                    frame = _frame(kind, document)
                    writer.write(_chunk(frame[: len(frame) // 2]))
                    await writer.drain()
                    writer.write(_chunk(frame[len(frame) // 2 :]))
                else:
                    self._event(writer, kind, document)
                await writer.drain()
                if habit in ("end", "cut", "error"):
                    return await self._stop_watching(writer, habit)
            if habit == "bookmarks":
                self._bookmark(writer, {})
                await writer.drain()
                return await self._stop_watching(writer, "end")
            async with self._changed:
                if since >= self.oldest and not any(entry[0] > since for entry in self.log):
                    await self._changed.wait()
        return False

    async def _stop_watching(self, writer: asyncio.StreamWriter, habit: str) -> bool:
        if habit == "cut":
            writer.write(b'40\r\n{"type":"MODI')
            await writer.drain()
            writer.transport.abort()
            return False
        if habit == "error":
            status = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
            writer.write(_chunk(_frame("ERROR", status)))
        writer.write(_chunk(b""))
        await writer.drain()
        return True

    def _event(self, writer: asyncio.StreamWriter, kind: str, document: Document) -> None:
        writer.write(_chunk(_frame(kind, document)))

    def _bookmark(self, writer: asyncio.StreamWriter, annotations: dict[str, str]) -> None:
        metadata = {"resourceVersion": str(self.revision), "annotations": annotations, "creationTimestamp": None}
        self._event(writer, "BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata})


def _frame(kind: str, document: Document) -> bytes:
    return json.dumps({"type": kind, "object": document}, ensure_ascii=False).encode() + b"\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
