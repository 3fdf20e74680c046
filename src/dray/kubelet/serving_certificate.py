"""The certificate with which a node agent serves logs: self-signed at first, then one of the cluster's authority.

The agent asks the API server for it (a CertificateSigningRequest for `kubernetes.io/kubelet-serving`), keeps the key to itself, and asks again
before the certificate ends. Where nobody signs, it stays with its own; an API server that checks certificates refuses that one.
"""

from __future__ import annotations

import base64
import ipaddress
import logging
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dray.client import ApiError, Client, ServerUnreachable
from dray.http.server import server_tls

log = logging.getLogger(__name__)

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kubelet-serving"
LIFETIME = timedelta(days=365)
# Looks for the answer become rarer; after the last one the agent asks anew.
LOOKS_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 300)
ASK_AGAIN_S = 3600.0
SERVER_IS_AWAY_S = 5.0
# The longest text that a certificate can have as its common name.
MAX_COMMON_NAME = 64


@dataclass(frozen=True, slots=True)
class CertificateSubject:
    """The node and the address that a certificate is for."""

    node_name: str
    address: str

    @property
    def subject(self) -> x509.Name:
        return x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
                x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{self.node_name}"[:MAX_COMMON_NAME]),
            ]
        )

    @property
    def names(self) -> x509.SubjectAlternativeName:
        own = x509.IPAddress(ipaddress.ip_address(self.address))
        return x509.SubjectAlternativeName([x509.DNSName(self.node_name), own])


class ServingCertificate:
    """`tls` is the server's side; a new certificate counts for the next connection. Clients must show one of the cluster's CA."""

    def __init__(self, client: Client, serving: CertificateSubject, cluster_ca: bytes) -> None:
        self._client = client
        self._clock = client.clock
        self._serving = serving
        self.tls = server_tls()
        self.tls.verify_mode = ssl.CERT_REQUIRED
        self.tls.load_verify_locations(cadata=cluster_ca.decode())
        key = ec.generate_private_key(ec.SECP256R1())
        _load(self.tls, key, self_signed(key, serving, self._clock.now()))

    async def run(self) -> None:
        """Asks for a certificate and for the next one, until cancelled."""
        while True:
            wait_s = ASK_AGAIN_S
            try:
                ends = await self._renew(LOOKS_S)
                if ends is not None:
                    wait_s = (ends - self._clock.now()).total_seconds() * 0.8
            except ServerUnreachable:
                wait_s = SERVER_IS_AWAY_S
            except (ApiError, ValueError) as problem:
                log.warning("node %s has no serving certificate of the cluster: %s", self._serving.node_name, problem)
            await self._clock.sleep(wait_s)

    async def _renew(self, looks_s: Sequence[float]) -> datetime | None:
        """When the new certificate ends; None if nobody has signed it."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = await self._ask(key)
        for look_s in looks_s:
            await self._clock.sleep(look_s)
            answer = await self._client.raw("GET", f"{REQUESTS}/{name}")
            status = msgspec.json.decode(answer.body, type=_Answer).status
            refused = [each for each in status.conditions if each.type in ("Denied", "Failed")]
            if refused:
                raise ValueError(f"request {name}: {refused[0].type}: {refused[0].message}")
            if status.certificate:
                certificate = base64.b64decode(status.certificate)
                _load(self.tls, key, certificate)
                return x509.load_pem_x509_certificate(certificate).not_valid_after_utc
        log.warning("node %s: nobody has signed certificate request %s", self._serving.node_name, name)
        return None

    async def _ask(self, key: ec.EllipticCurvePrivateKey) -> str:
        builder = x509.CertificateSigningRequestBuilder().subject_name(self._serving.subject)
        request = builder.add_extension(self._serving.names, critical=False).sign(key, hashes.SHA256())
        pem = request.public_bytes(serialization.Encoding.PEM)
        body = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "csr-"},
            "spec": {
                "request": base64.b64encode(pem).decode(),
                "signerName": SIGNER,
                "usages": ["digital signature", "server auth"],
            },
        }
        answer = await self._client.raw("POST", REQUESTS, body=msgspec.json.encode(body))
        return msgspec.json.decode(answer.body, type=_Answer).metadata.name


class _Metadata(msgspec.Struct):
    name: str = ""


class _Condition(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    certificate: str = ""
    conditions: list[_Condition] = []


class _Answer(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


def self_signed(key: ec.EllipticCurvePrivateKey, serving: CertificateSubject, now: datetime) -> bytes:
    certificate = (
        x509.CertificateBuilder()
        .subject_name(serving.subject)
        .issuer_name(serving.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
        .add_extension(serving.names, critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def _load(context: ssl.SSLContext, key: ec.EllipticCurvePrivateKey, certificate_pem: bytes) -> None:
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(key_pem + certificate_pem)
        context.load_cert_chain(path)
