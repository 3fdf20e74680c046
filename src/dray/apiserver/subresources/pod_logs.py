"""`pods/log`: fetched from the kubelet of the pod's node.

The address comes from the node's own status, so a node chooses it. Therefore only an IP address is accepted, the URL is built from its parts, redirects
are not followed, the server shows a certificate whose user may do nothing else, and the agent has to show one of the cluster's authority for its node's name.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from dray.api import scheme
from dray.api.safe_get import mapping, mappings, part, text
from dray.apiserver import errors
from dray.apiserver.core import Core
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.security.certificates import Authority, Pair
from dray.http.responses import Response

log = logging.getLogger(__name__)

Document = dict[str, Any]
# The name node agents know the API server by.
CLIENT_NAME = "kube-apiserver-kubelet-client"
PASSED_ON = ("follow", "previous", "tailLines", "limitBytes", "sinceSeconds", "sinceTime", "timestamps")
CONNECT_TIMEOUT_S = 5.0
# Of the text with which a kubelet refuses.
MAX_REFUSAL_BYTES = 4096


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
    """`tls` is the client's side of connections to node agents: `kubelet_context`."""

    def __init__(self, core: Core, tls: ssl.SSLContext) -> None:
        self._core = core
        self._tls = tls

    async def read(self, call: ApiCall, pod: Document) -> Response:
        container = container_of(pod, call.query.get("container", ""))
        node_name = pod.get("spec", {}).get("nodeName", "")
        if not node_name:
            return Response(200, b"", "text/plain")
        query = {name: call.query[name] for name in PASSED_ON if call.query.get(name)}
        host, port = self._kubelet_address(node_name)
        metadata = pod["metadata"]
        names = metadata["namespace"], metadata["name"], container
        return await self._fetch(node_name, (host, port), names, query)

    def _kubelet_address(self, node_name: str) -> tuple[str, int]:
        """IP address and port from the node's status; raises 400 where it names no usable ones."""
        stored = self._core.cache(scheme.by_kind("Node", "")).get("", node_name)
        status = mapping(stored.document(), "status") if stored is not None else {}
        port = part(status, "daemonEndpoints", "kubeletEndpoint", "Port")
        addresses = {text(each, "type"): text(each, "address") for each in mappings(status, "addresses")}
        host = addresses.get("InternalIP", "")
        if not port or not host:
            raise errors.bad_request(f"node {node_name} does not say where its agent serves logs")
        if not is_ip_literal(host) or not isinstance(port, int) or not 0 < port < 65536:
            raise errors.bad_request(
                f"node {node_name} does not name an IP address and a port where its agent serves logs"
            )
        return host, port

    async def _fetch(
        self, node_name: str, address: tuple[str, int], names: tuple[str, ...], query: dict[str, str]
    ) -> Response:
        import aiohttp
        from yarl import URL

        host, port = address
        path = "/containerLogs/" + "/".join(quote(name, safe="") for name in names)
        url = URL.build(scheme="https", host=host, port=port, path=path, query_string=urlencode(query), encoded=True)
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        session = aiohttp.ClientSession(timeout=timeout)
        try:
            answer = await session.get(url, ssl=self._tls, server_hostname=node_name, allow_redirects=False)
        except aiohttp.ClientConnectorCertificateError as error:
            await session.close()
            raise errors.unavailable(
                f"the agent of node {node_name} has no certificate of the cluster's authority for this name: "
                f"{error.certificate_error}"
            ) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            await session.close()
            raise errors.unavailable(f"the node agent does not answer: {error}") from error
        if answer.status != 200:
            said = (await answer.content.read(MAX_REFUSAL_BYTES)).decode("utf-8", "replace").strip()
            await session.close()
            raise errors.bad_request(said or f"the node agent answered with status {answer.status}")
        return Response(200, content_type="text/plain", stream=_chunks(session, answer))


def is_ip_literal(host: str) -> bool:
    """Whether this is an IPv4 or IPv6 address and nothing more: no name, port, path, user or zone."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


async def _chunks(session: Any, answer: Any) -> AsyncIterator[bytes]:
    import aiohttp

    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    except aiohttp.ClientError as error:
        log.info("a log ends early: the node agent went away: %s", error)
    finally:
        await session.close()


def kubelet_context(identity: Pair, authority: Authority | None) -> ssl.SSLContext:
    """The client's side of connections to node agents, whose certificates are checked against the authority, if there is one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=authority.certificate_pem.decode())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(identity.key_pem + identity.certificate_pem)
        context.load_cert_chain(path)
    return context
