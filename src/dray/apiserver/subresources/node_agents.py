"""Where the agents of nodes (kubelets) answer, and how the server connects to them.

The address comes from the node's own status, so a node chooses it. Therefore only an IP address is accepted, requests are built from their parts, redirects
are not followed, the server shows a certificate whose user may do nothing else, and the agent has to show one of the cluster's authority for its node's name.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from pathlib import Path
from typing import Any

from dray.api import scheme
from dray.api.safe_get import mapping, mappings, part, text
from dray.apiserver import errors
from dray.apiserver.core import Core
from dray.apiserver.security.certificates import Authority, Pair

Document = dict[str, Any]
# The name node agents know the API server by.
CLIENT_NAME = "kube-apiserver-kubelet-client"


class NodeAgents:
    """`tls` is the client's side of connections to them: `kubelet_context`."""

    def __init__(self, core: Core, tls: ssl.SSLContext) -> None:
        self._core = core
        self.tls = tls

    def address_of(self, node_name: str) -> tuple[str, int]:
        """IP address and port from the node's status; raises 404 without such a node, 400 where it names no usable ones."""
        row = scheme.by_kind("Node", "")
        stored = self._core.cache(row).get("", node_name)
        if stored is None:
            raise errors.not_found(row, node_name)
        status = mapping(stored.document(), "status")
        port = part(status, "daemonEndpoints", "kubeletEndpoint", "Port")
        addresses = {text(each, "type"): text(each, "address") for each in mappings(status, "addresses")}
        host = addresses.get("InternalIP", "")
        if not port or not host:
            raise errors.bad_request(
                f"node {node_name} does not say where its agent answers; a simulated node has none, and runs no containers"
            )
        if not is_ip_literal(host) or not isinstance(port, int) or not 0 < port < 65536:
            raise errors.bad_request(f"node {node_name} does not name an IP address and a port where its agent answers")
        return host, port


def is_ip_literal(host: str) -> bool:
    """Whether this is an IPv4 or IPv6 address and nothing more: no name, port, path, user or zone."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def untrusted_agent(node_name: str, problem: object) -> errors.ApiError:
    return errors.unavailable(
        f"the agent of node {node_name} has no certificate of the cluster's authority for this name: {problem}"
    )


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
