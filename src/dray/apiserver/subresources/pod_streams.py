"""`pods/exec`, `pods/attach` and `pods/portforward`: the client's connection is joined to one with the agent of the pod's node.

The server agrees on no protocol itself: it passes on what the client asks for and what the agent answers, then bytes. Imported when the first one comes.
"""

from __future__ import annotations

import logging
import ssl
from typing import Any
from urllib.parse import quote, urlencode

from dray.apiserver import errors
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.subresources.node_agents import NodeAgents, untrusted_agent
from dray.apiserver.subresources.pod_logs import container_of
from dray.http.responses import TEXT, Response
from dray.http.tunnel import StreamPair, Tunnel, first_of, idle_for, splice
from dray.http.upgrade_client import UpgradeAnswer, UpgradeRequest, is_asked_for, request_upgrade

log = logging.getLogger(__name__)

Document = dict[str, Any]
# The names of the options at the agent.
OPTIONS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
REQUEST_HEADERS = (
    "upgrade", "sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol", "sec-websocket-extensions", "user-agent",
)  # fmt: skip
# Each protocol in a line of its own: some agents do not split lists.
PROTOCOL_HEADER = "x-stream-protocol-version"
ANSWER_HEADERS = (
    "upgrade", "sec-websocket-accept", "sec-websocket-protocol", "sec-websocket-extensions",
    PROTOCOL_HEADER, "x-accepted-stream-protocol-versions",
)  # fmt: skip
MOST_STREAMS = 1000
# A little longer than that of agents, which say more about the reason.
IDLE_S = 4 * 3600 + 300.0


class PodStreams:
    def __init__(self, agents: NodeAgents, *, most: int = MOST_STREAMS, idle_s: float = IDLE_S) -> None:
        self._agents = agents
        self._most = most
        self._idle_s = idle_s
        self._open = 0

    async def open(self, call: ApiCall, pod: Document) -> Response:
        """The answer of the agent; with 101 the connection is the agent's from then on."""
        path = _path(call, pod)
        node_name = pod.get("spec", {}).get("nodeName", "")
        if not node_name:
            raise errors.bad_request(f"pod {call.name} does not have a host assigned")
        host, port = self._agents.address_of(node_name)
        if not is_asked_for(call.request.headers):
            raise errors.bad_request("Upgrade request required")
        if self._open >= self._most:
            raise errors.too_many_requests(
                f"{self._open} streams to pods are open, and no more are allowed; try again later", 10
            )
        asked = UpgradeRequest(
            host, port, path, _passed_on(call), call.request.method, self._agents.tls, server_name=node_name
        )
        answer = await self._ask(node_name, asked)
        if answer.connection is None:
            return _refused(answer)
        headers = tuple((name, value) for name, value in answer.headers if name in ANSWER_HEADERS)
        connection = answer.connection
        return Response(
            101, headers=(("Connection", "Upgrade"), *headers), tunnel=lambda client: self._join(client, connection)
        )

    async def _ask(self, node_name: str, asked: UpgradeRequest) -> UpgradeAnswer:
        try:
            return await request_upgrade(asked)
        except ssl.CertificateError as problem:
            raise untrusted_agent(node_name, problem) from problem
        except (OSError, TimeoutError, ValueError) as problem:
            raise errors.unavailable(
                f"the agent of node {node_name} does not answer: {problem or 'in time'}"
            ) from problem

    async def _join(self, client: Tunnel, agent: StreamPair) -> None:
        self._open += 1
        try:
            await first_of(splice(client, agent), idle_for(self._idle_s, lambda: client.active_at))
        finally:
            self._open -= 1
            agent.abort()


def _path(call: ApiCall, pod: Document) -> str:
    """Path and query of the agent's own API."""
    metadata = pod["metadata"]
    names = [metadata["namespace"], metadata["name"]]
    if call.info.subresource == "portforward":
        ports = ",".join(call.query.all("ports"))
        return _url("portForward", names, [("port", ports)] if ports else [])
    container = container_of(pod, call.query.get("container", ""))
    query = [(theirs, "1") for ours, theirs in OPTIONS.items() if call.query.flag(ours)]
    if call.info.subresource == "exec":
        query += [("command", word) for word in call.query.all("command")]
    return _url(call.info.subresource, [*names, container], query)


def _url(action: str, names: list[str], query: list[tuple[str, str]]) -> str:
    path = "/".join(["", action, *(quote(name, safe="") for name in names)])
    return f"{path}?{urlencode(query)}" if query else path


def _passed_on(call: ApiCall) -> tuple[tuple[str, str], ...]:
    """No credentials of the client: the server has asked with its own, and the client was allowed."""
    headers = call.request.headers
    passed = [(name, headers[name]) for name in REQUEST_HEADERS if name in headers]
    protocols = headers.get(PROTOCOL_HEADER, "").split(",")
    passed += [(PROTOCOL_HEADER, each.strip()) for each in protocols if each.strip()]
    return (("Connection", "Upgrade"), *passed, ("X-Forwarded-For", call.request.remote or "127.0.0.1"))


def _refused(answer: UpgradeAnswer) -> Response:
    """What the agent says, as it says it; a redirect is no answer."""
    if answer.status < 400:
        raise errors.unavailable(
            f"the node agent answered with status {answer.status} instead of changing the protocol"
        )
    headers = tuple((name, value) for name, value in answer.headers if name in ANSWER_HEADERS and name != "upgrade")
    return Response(answer.status, answer.text, TEXT, headers)
