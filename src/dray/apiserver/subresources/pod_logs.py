"""`pods/log`: fetched from the agent of the pod's node, as `node_agents` says it is reached."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from dray.api.errors import ShapeError
from dray.api.scalars import SCALARS, Shaping
from dray.apiserver import errors
from dray.apiserver.errors import OptionError
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.request.request_options import Query, parse_int
from dray.apiserver.subresources.node_agents import NodeAgents, untrusted_agent
from dray.event_loop import loaded
from dray.http.responses import Response

log = logging.getLogger(__name__)

Document = dict[str, Any]
PASSED_ON = ("follow", "previous", "tailLines", "limitBytes", "sinceSeconds", "sinceTime", "timestamps")
NUMBERS = ("tailLines", "limitBytes", "sinceSeconds")
CONNECT_TIMEOUT_S = 5.0
# Of the text with which a kubelet refuses.
MAX_REFUSAL_BYTES = 4096


def container_of(pod: Document, wanted: str) -> str:
    """The container that is meant; a pod with several must be asked for one of them."""
    spec, name = pod.get("spec", {}), pod["metadata"]["name"]
    main = [each["name"] for each in spec.get("containers", ())]
    init = [each["name"] for each in spec.get("initContainers", ())]
    ephemeral = [each["name"] for each in spec.get("ephemeralContainers", ())]
    if not wanted:
        if len(main) == 1:
            return str(main[0])
        choose = f"choose one of: [{' '.join(main)}]" + (
            f" or one of the init containers: [{' '.join(init)}]" if init else ""
        )
        raise errors.bad_request(f"a container name must be specified for pod {name}, {choose}")
    if wanted not in (*main, *init, *ephemeral):
        raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted


def check_log_options(query: Query, pod_name: str) -> None:
    """Raises 400 or 422, whether or not there is such a pod."""
    numbers = {name: parse_int(query[name]) for name in NUMBERS if name in query}
    if since := query.get("sinceTime", ""):
        try:
            SCALARS["time"](since, "", None, Shaping())
        except ShapeError as error:
            raise errors.bad_request(error.message) from None
    problems = list(_problems(numbers, query))
    if problems:
        raise errors.invalid("", "PodLogOptions", pod_name, problems)


def _problems(numbers: Mapping[str, int], query: Query) -> Iterator[OptionError]:
    if (tail := numbers.get("tailLines", 0)) < 0:
        yield OptionError("Invalid", "tailLines", f"Invalid value: {tail}: must be greater than or equal to 0")
    if (limit := numbers.get("limitBytes", 1)) < 1:
        yield OptionError("Invalid", "limitBytes", f"Invalid value: {limit}: must be greater than 0")
    if "sinceSeconds" in numbers and query.get("sinceTime"):
        yield OptionError("Forbidden", "[]", "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif (since := numbers.get("sinceSeconds", 1)) < 1:
        yield OptionError("Invalid", "sinceSeconds", f"Invalid value: {since}: must be greater than 0")
    if "stream" in query:
        yield OptionError("Forbidden", "stream", "Forbidden: may not be specified")


class PodLogs:
    def __init__(self, agents: NodeAgents) -> None:
        self._agents = agents

    async def read(self, call: ApiCall, pod: Document) -> Response:
        container = container_of(pod, call.query.get("container", ""))
        node_name = pod.get("spec", {}).get("nodeName", "")
        if not node_name:
            return Response(200, b"", "text/plain")
        query = {name: call.query[name] for name in PASSED_ON if call.query.get(name)}
        host, port = self._agents.address_of(node_name)
        metadata = pod["metadata"]
        names = metadata["namespace"], metadata["name"], container
        return await self._fetch(node_name, (host, port), names, query)

    async def _fetch(
        self, node_name: str, address: tuple[str, int], names: tuple[str, ...], query: dict[str, str]
    ) -> Response:
        await loaded("aiohttp")
        import aiohttp
        from yarl import URL

        host, port = address
        path = "/containerLogs/" + "/".join(quote(name, safe="") for name in names)
        url = URL.build(scheme="https", host=host, port=port, path=path, query_string=urlencode(query), encoded=True)
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        session = aiohttp.ClientSession(timeout=timeout)
        try:
            answer = await session.get(url, ssl=self._agents.tls, server_hostname=node_name, allow_redirects=False)
        except aiohttp.ClientConnectorCertificateError as error:
            await session.close()
            raise untrusted_agent(node_name, error.certificate_error) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            await session.close()
            raise errors.unavailable(f"the node agent does not answer: {error}") from error
        if answer.status != 200:
            said = (await answer.content.read(MAX_REFUSAL_BYTES)).decode("utf-8", "replace").strip()
            await session.close()
            raise errors.bad_request(said or f"the node agent answered with status {answer.status}")
        return Response(200, content_type="text/plain", stream=_chunks(session, answer))


async def _chunks(session: Any, answer: Any) -> AsyncIterator[bytes]:
    import aiohttp

    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    except aiohttp.ClientError as error:
        log.info("a log ends early: the node agent went away: %s", error)
    finally:
        await session.close()
