"""Signs the serving certificates of node agents: CertificateSigningRequests with the signer `kubernetes.io/kubelet-serving`.

A request is approved if the node itself asks, or somebody who may approve requests of this signer; Kubernetes leaves the approval to
others. The certificate is for the node's name, so that the API server can tell one node's agent from another's. Names of other
machines are refused, and addresses of the API server or of the machine itself are left out: a node must not pass for the server.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import ipaddress
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from dray.api.safe_get import mapping, mappings, text
from dray.api.times import parse_time
from dray.apiserver.request.request_info import NODE_PREFIX, NODES_GROUP, Attributes, Authorizer, User
from dray.apiserver.security.certificates import Authority
from dray.apiserver.watch.kind_cache import StoreFollower
from dray.apiserver.watch.stored_object import document_of, resource_prefix, to_value
from dray.clock import Clock, rfc3339
from dray.store.errors import Conflict, NotFound, StoreUnavailable
from dray.store.interface import Store

log = logging.getLogger(__name__)

Document = dict[str, Any]
GROUP, PLURAL = "certificates.k8s.io", "certificatesigningrequests"
SIGNER = "kubernetes.io/kubelet-serving"
USAGES = frozenset({"digital signature", "key encipherment", "server auth"})
# Characters of base64. A request with a key and a dozen addresses has a thousand; one of half a megabyte has 60,000 addresses.
LONGEST_REQUEST = 16 * 1024
LOOK_FOR_OLD_S = 600.0
KEPT = timedelta(hours=1)


class RefusedRequest(Exception):
    """The request cannot be signed; the text is what its condition says."""


@dataclass(frozen=True, slots=True)
class ServingRequest:
    """What a node agent asks for: its node's name, the key, and the addresses at which it serves."""

    node_name: str
    public_key: Any
    addresses: tuple[str, ...]


def serving_request(spec: Document) -> ServingRequest:
    """Raises RefusedRequest unless it is what Kubernetes calls a kubelet serving request, for one node only."""
    if len(text(spec, "request")) > LONGEST_REQUEST:
        raise RefusedRequest(f"the request is longer than {LONGEST_REQUEST} characters")
    try:
        request = x509.load_pem_x509_csr(base64.b64decode(text(spec, "request"), validate=True))
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        signed = request.is_signature_valid
    except (ValueError, TypeError, binascii.Error, x509.ExtensionNotFound, InvalidSignature, UnsupportedAlgorithm):
        raise RefusedRequest("the request must be a PKCS#10 request in PEM with subject alternative names") from None
    organizations = [str(each.value) for each in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    common = [str(each.value) for each in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if not signed:
        raise RefusedRequest("the request is not signed with its own key")
    if organizations != [NODES_GROUP] or len(common) != 1 or not common[0].startswith(NODE_PREFIX):
        raise RefusedRequest(f"the subject must be the organization {NODES_GROUP} and the name of a node")
    usages = set(spec.get("usages") or ())
    if "server auth" not in usages or not usages <= USAGES:
        raise RefusedRequest(f"usages must be server auth and some of {', '.join(sorted(USAGES))}")
    node_name = common[0].removeprefix(NODE_PREFIX)
    others = [each for each in names if not isinstance(each, x509.DNSName | x509.IPAddress)]
    if others or any(name != node_name for name in names.get_values_for_type(x509.DNSName)):
        raise RefusedRequest(f"names other than {node_name} are not certified")
    return ServingRequest(node_name, request.public_key(), tuple(map(str, names.get_values_for_type(x509.IPAddress))))


class KubeletServingSigner:
    """`own_hosts` are the names and addresses of the API server, which no other certificate may have."""

    def __init__(
        self, store: Store, authorizer: Authorizer, authority: Authority, clock: Clock, own_hosts: Iterable[str]
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._authority = authority
        self._clock = clock
        self._own_hosts = frozenset(own_hosts)
        self._unsigned: asyncio.Queue[str] = asyncio.Queue()
        self._keys: set[str] = set()

    def follow(self, follower: StoreFollower) -> None:
        follower.subscribe_index((resource_prefix(GROUP, PLURAL),), self._apply)

    def _apply(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._keys.discard(key)
            return
        self._keys.add(key)
        self._unsigned.put_nowait(key)

    async def run(self) -> None:
        """Until cancelled. One request after the other: a signature takes less than a millisecond."""
        looked_for_old = self._clock.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_FOR_OLD_S):
                    await self._handle_next(await self._unsigned.get())
            if self._clock.monotonic() - looked_for_old >= LOOK_FOR_OLD_S:
                looked_for_old = self._clock.monotonic()
                await self._remove_old()

    async def _handle_next(self, key: str) -> None:
        try:
            await self._handle(key)
        except (Conflict, NotFound):
            return  # it changed meanwhile, and its event comes
        except StoreUnavailable as problem:
            log.warning("certificate request %s has to wait: %s", key, problem)
            await self._clock.sleep(1.0)
            self._unsigned.put_nowait(key)
        except Exception:
            # One odd request must not keep all nodes from their certificates.
            log.exception("certificate request %s", key)

    async def _handle(self, key: str) -> None:
        entry = await self._store.get(key)
        if entry is None:
            return
        document = document_of(entry)
        spec, status = mapping(document, "spec"), mapping(document, "status")
        types = {text(each, "type") for each in mappings(status, "conditions")}
        if text(spec, "signerName") != SIGNER or status.get("certificate") or types & {"Denied", "Failed"}:
            return
        if "Approved" not in types and not await self._may_be_approved(spec):
            return
        changes = self._answer(spec, approved="Approved" in types)
        conditions = [*mappings(status, "conditions"), *changes.pop("conditions", [])]
        made = {**document, "status": {**status, **changes, "conditions": conditions}}
        await self._store.update(key, to_value(made), entry.revision)

    async def _may_be_approved(self, spec: Document) -> bool:
        """Whether the user who asked is the node, or may approve requests of this signer."""
        extra = {name: tuple(values) for name, values in mapping(spec, "extra").items()}
        groups = tuple(map(str, spec.get("groups") or ()))
        user = User(text(spec, "username"), groups, text(spec, "uid"), extra)
        try:
            if user.node_name and user.node_name == serving_request(spec).node_name:
                return True
        except RefusedRequest:
            return False
        wanted = Attributes(user, "approve", GROUP, "*", "signers", name=SIGNER)
        return (await self._authorizer.authorize(wanted)).allowed

    def _answer(self, spec: Document, *, approved: bool) -> Document:
        """What is added to the status: the approval and the certificate, or why there is none."""
        try:
            wanted = serving_request(spec)
        except RefusedRequest as problem:
            return {"conditions": [self._condition("Failed", "SignerValidationFailure", str(problem))]}
        hosts = (wanted.node_name, *(each for each in wanted.addresses if self._is_address_of_a_node(each)))
        certificate = self._authority.certify_server(
            f"{NODE_PREFIX}{wanted.node_name}", (NODES_GROUP,), hosts, wanted.public_key, self._clock.now()
        )
        approval = self._condition("Approved", "AutoApproved", "the node asks for its own serving certificate")
        return {
            "certificate": base64.b64encode(certificate).decode(),
            "conditions": [] if approved else [approval],
        }

    def _is_address_of_a_node(self, host: str) -> bool:
        address = ipaddress.ip_address(host)
        address = getattr(address, "ipv4_mapped", None) or address
        return not (address.is_loopback or address.is_unspecified or {host, str(address)} & set(self._own_hosts))

    def _condition(self, kind: str, reason: str, message: str) -> Document:
        now = rfc3339(self._clock.now())
        times = {"lastUpdateTime": now, "lastTransitionTime": now}
        return {"type": kind, "status": "True", "reason": reason, "message": message, **times}

    async def _remove_old(self) -> None:
        """Requests that were answered an hour ago have served."""
        for key in tuple(self._keys):
            entry = await self._store.get(key)
            if entry is None:
                continue
            document = document_of(entry)
            created = parse_time(text(mapping(document, "metadata"), "creationTimestamp"))
            if mapping(document, "status").get("certificate") and self._clock.now() - created > KEPT:
                try:
                    await self._store.delete(key, entry.revision)
                except (Conflict, NotFound):
                    continue
