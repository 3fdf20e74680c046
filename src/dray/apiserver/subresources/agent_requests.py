"""Requests that the agent of a node answers: logs, commands and ports of a pod, and proxies. Their code is loaded with the first one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from dray.apiserver import errors
from dray.apiserver.core import Core
from dray.apiserver.read.get_and_list import Reader
from dray.apiserver.request.request_info import ApiCall, Attributes
from dray.apiserver.subresources.node_agents import NodeAgents
from dray.http.responses import Response

if TYPE_CHECKING:
    from dray.apiserver.subresources.pod_streams import PodStreams
    from dray.apiserver.subresources.proxies import Proxies


class AgentRequests:
    def __init__(
        self,
        core: Core,
        reader: Reader,
        agents: NodeAgents | None,
        check_create: Callable[[Attributes], Awaitable[None]],
    ) -> None:
        """`check_create` raises 403 unless the user may create what the attributes name."""
        self._core = core
        self._reader = reader
        self._connected_agents = agents
        self._check_create = check_create
        self._pod_streams: PodStreams | None = None
        self._proxies: Proxies | None = None

    def handlers(self) -> Mapping[tuple[str, str], Callable[[ApiCall], Awaitable[Response]]]:
        """By resource and subresource."""
        streams = dict.fromkeys((("pods", name) for name in ("exec", "attach", "portforward")), self._pod_stream)
        proxies = dict.fromkeys(((plural, "proxy") for plural in ("pods", "nodes", "services")), self._proxy)
        return {("pods", "log"): self._log, **streams, **proxies}

    def _agents(self) -> NodeAgents:
        if self._connected_agents is None:
            raise errors.bad_request("this server is not connected with the agents of nodes")
        return self._connected_agents

    async def _log(self, call: ApiCall) -> Response:
        from dray.apiserver.subresources.pod_logs import PodLogs, check_log_options

        check_log_options(call.query, call.name)
        pod = (await self._reader.get(call)).document()
        return await PodLogs(self._agents()).read(call, pod)

    async def _pod_stream(self, call: ApiCall) -> Response:
        """WebSockets are opened with GET; whoever may only read pods must not run commands in them."""
        from dray.apiserver.subresources.pod_streams import PodStreams

        if call.attributes.verb != "create":
            await self._check_create(call.attributes)
        pod = (await self._reader.get(call)).document()
        if self._pod_streams is None:
            self._pod_streams = PodStreams(self._agents())
        return await self._pod_streams.open(call, pod)

    async def _proxy(self, call: ApiCall) -> Response:
        from dray.apiserver.subresources.proxies import Proxies

        if self._proxies is None:
            self._proxies = Proxies(self._core, self._agents())
        return await self._proxies.answer(call)
