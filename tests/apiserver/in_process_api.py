"""Requests to a server in the test's own process, without a socket."""

from __future__ import annotations

import json

from dray.apiserver.assembly import RunningServer
from dray.apiserver.request.request_info import LOOPBACK, Request


class InProcessApi:
    def __init__(self, running: RunningServer) -> None:
        self.running = running

    async def ask(self, method: str, path: str, query: str = "", body: object = None, **headers: str) -> bytes:
        given = {"accept": "application/json", "content-type": "application/json", **headers}
        data = json.dumps(body).encode() if body else b""
        answer = await self.running.server.handle(Request(method, path, query, given, data, LOOPBACK))
        assert answer.status < 300, answer.body
        assert isinstance(answer.body, bytes)
        return answer.body
