"""`pods/log`: passed on to the node agent of the pod's node, which knows where the output is."""

from __future__ import annotations

import logging
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dray.api import scheme
from dray.apiserver import errors
from dray.apiserver.core import Core
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.security.certificates import Pair
from dray.http.responses import Response

log = logging.getLogger(__name__)

Document = dict[str, Any]
# The name node agents know the API server by.
CLIENT_NAME = "kube-apiserver-kubelet-client"
PASSED_ON = ("follow", "previous", "tailLines", "limitBytes", "sinceSeconds", "sinceTime", "timestamps")
CONNECT_TIMEOUT_S = 5.0


def container_of(pod: Document, wanted: str) -> str:
    """The container that is meant; a pod with several must be asked for one of them."""
    spec, name = pod.get("spec", {}), pod["metadata"]["name"]
    main = [each["name"] for each in spec.get("containers", ())]
    init = [each["name"] for each in spec.get("initContainers", ())]
    if not wanted:
        if len(main) == 1:
            return str(main[0])
        choose = f"choose one of: [{' '.join(main)}]" + (
            f" or one of the init containers: [{' '.join(init)}]" if init else ""
        )
        raise errors.bad_request(f"a container name must be specified for pod {name}, {choose}")
    if wanted not in (*main, *init):
        raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted


class PodLogs:
    def __init__(self, core: Core, identity: Pair) -> None:
        self._core = core
        self._tls = _client_context(identity)

    async def read(self, call: ApiCall, pod: Document) -> Response:
        container = container_of(pod, call.query.get("container", ""))
        node_name = pod.get("spec", {}).get("nodeName", "")
        if not node_name:
            return Response(200, b"", "text/plain")
        url = self._url(pod, node_name, container)
        query = {name: call.query[name] for name in PASSED_ON if call.query.get(name)}
        return await self._fetch(url, query)

    def _url(self, pod: Document, node_name: str, container: str) -> str:
        stored = self._core.cache(scheme.by_kind("Node", "")).get("", node_name)
        status = stored.document().get("status", {}) if stored is not None else {}
        port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port")
        addresses = {each["type"]: each["address"] for each in status.get("addresses", ())}
        if not port or "InternalIP" not in addresses:
            raise errors.bad_request(f"node {node_name} does not say where its agent serves logs")
        metadata = pod["metadata"]
        path = "/".join(quote(part, safe="") for part in (metadata["namespace"], metadata["name"], container))
        return f"https://{addresses['InternalIP']}:{port}/containerLogs/{path}"

    async def _fetch(self, url: str, query: dict[str, str]) -> Response:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        session = aiohttp.ClientSession(timeout=timeout)
        try:
            answer = await session.get(url, params=query, ssl=self._tls)
        except (aiohttp.ClientError, TimeoutError) as error:
            await session.close()
            raise errors.unavailable(f"the node agent does not answer: {error}") from error
        if answer.status != 200:
            text = (await answer.text()).strip()
            await session.close()
            raise errors.bad_request(text or f"the node agent answered with status {answer.status}")
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


def _client_context(identity: Pair) -> ssl.SSLContext:
    """Node agents have certificates of their own making: they prove nothing, and only we prove who we are."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(identity.key_pem + identity.certificate_pem)
        context.load_cert_chain(path)
    return context
