"""Client credentials: none, a token, a token file, a password, a certificate, or an exec plugin."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from dray.client.errors import CredentialsError, KubeconfigError

TOKEN_FILE_LIFETIME_S = 60.0
CERTIFICATE_FILE_LIFETIME_S = 300.0
EXEC_TIMEOUT_S = 60.0
PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"
CLUSTER_FIELDS = (
    *("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data"),
    *("proxy-url", "disable-compression"),
)
# A credential that expires this soon is fetched again, so that no request carries an expired one.
EXPIRY_MARGIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Proof:
    """The credentials of one request: an Authorization header, a client certificate, or neither."""

    authorization: str = ""
    client_certificate: bytes | None = None
    client_key: bytes | None = None


class ClientCredentials(Protocol):
    async def proof(self) -> Proof: ...

    def refused(self) -> bool:
        """Called after a 401: drops cached credentials. Returns True if another try may succeed."""
        ...


class NoCredentials:
    async def proof(self) -> Proof:
        return Proof()

    def refused(self) -> bool:
        return False


class StaticToken:
    def __init__(self, token: str) -> None:
        self._proof = Proof(f"Bearer {token}")

    async def proof(self) -> Proof:
        return self._proof

    def refused(self) -> bool:
        return False


class BasicAuth:
    def __init__(self, username: str, password: str) -> None:
        self._proof = Proof("Basic " + base64.b64encode(f"{username}:{password}".encode()).decode())

    async def proof(self) -> Proof:
        return self._proof

    def refused(self) -> bool:
        return False


class TokenFile:
    """A token file that another program renews, as the kubelet does for pods."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._proof: Proof | None = None
        self._read_at = 0.0

    async def proof(self) -> Proof:
        now = time.monotonic()
        if self._proof is None or now - self._read_at > TOKEN_FILE_LIFETIME_S:
            try:
                self._proof = Proof(f"Bearer {self._path.read_text().strip()}")
            except OSError as error:
                raise CredentialsError(f"token file: {error}") from None
            self._read_at = now
        return self._proof

    def refused(self) -> bool:
        had_one, self._proof = self._proof is not None, None
        return had_one


class CertificateFiles:
    """A client certificate whose files another program renews, together with the user's other credentials.

    They are read again every few minutes, when the server refuses them, and when the certificate ends.
    """

    def __init__(self, certificate: Path, key: Path, others: ClientCredentials) -> None:
        self._certificate, self._key = certificate, key
        self._others = others
        self._pair: tuple[bytes, bytes] | None = None
        self._read_at = 0.0
        self._expires_at = float("inf")

    async def proof(self) -> Proof:
        certificate, key = self._read()
        inner = await self._others.proof()
        return inner if inner.client_certificate else Proof(inner.authorization, certificate, key)

    def refused(self) -> bool:
        had_one, self._pair = self._pair is not None, None
        return self._others.refused() or had_one

    def _read(self) -> tuple[bytes, bytes]:
        now = time.monotonic()
        is_due = now - self._read_at > CERTIFICATE_FILE_LIFETIME_S or time.time() > self._expires_at - EXPIRY_MARGIN_S
        if self._pair is not None and not is_due:
            return self._pair
        try:
            pair = self._certificate.read_bytes(), self._key.read_bytes()
        except OSError as error:
            raise CredentialsError(f"client certificate: {error}") from None
        expires_at = _end_of_pair(*pair)
        if expires_at is None:
            # Somebody is replacing the files, one after the other: both are there at the next look.
            if self._pair is None:
                raise CredentialsError(f"client certificate: {self._key} is not the key of {self._certificate}")
            return self._pair
        self._pair, self._read_at, self._expires_at = pair, now, expires_at
        return pair


def _end_of_pair(certificate: bytes, key: bytes) -> float | None:
    """When a certificate ends, None if the key belongs to another one. TLS complains later about bytes that are neither."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        found = x509.load_pem_x509_certificate(certificate)
        is_pair = load_pem_private_key(key, None).public_key() == found.public_key()
    except (ValueError, TypeError):
        return float("inf")
    return found.not_valid_after_utc.timestamp() if is_pair else None


@dataclass(slots=True)
class ExecPlugin:
    """A program that prints an ExecCredential (client.authentication.k8s.io/v1 or v1beta1)."""

    command: str
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"
    cluster: Mapping[str, Any] | None = None
    install_hint: str = ""
    _proof: Proof | None = None
    _expires_at: float = float("inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], cluster: Mapping[str, Any]) -> ExecPlugin:
        if not config.get("command"):
            raise KubeconfigError("kubeconfig: exec: command is missing")
        if config.get("interactiveMode") == "Always":
            raise KubeconfigError(f"kubeconfig: exec: {config['command']} wants to ask a person, and there is nobody")
        environment = {str(pair["name"]): str(pair["value"]) for pair in config.get("env") or ()}
        return cls(
            command=str(config["command"]),
            args=tuple(str(argument) for argument in config.get("args") or ()),
            environment=environment,
            api_version=str(config.get("apiVersion") or "client.authentication.k8s.io/v1"),
            cluster=_told_to_plugins(cluster) if config.get("provideClusterInfo") else None,
            install_hint=str(config.get("installHint") or ""),
        )

    async def proof(self) -> Proof:
        async with self._lock:
            if self._proof is None or time.time() > self._expires_at - EXPIRY_MARGIN_S:
                self._remember(await self._run())
            assert self._proof is not None
            return self._proof

    def refused(self) -> bool:
        had_one, self._proof = self._proof is not None, None
        return had_one

    async def _run(self) -> bytes:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        question = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {**os.environ, **self.environment, "KUBERNETES_EXEC_INFO": json.dumps(question)}
        try:
            process = await asyncio.create_subprocess_exec(
                self.command,
                *self.args,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise CredentialsError(f"exec plugin {self.command}: {error}. {self.install_hint}".rstrip(". ")) from None
        try:
            async with asyncio.timeout(EXEC_TIMEOUT_S):
                output, complaint = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise CredentialsError(f"exec plugin {self.command}: no answer in {EXEC_TIMEOUT_S:.0f} s") from None
        if process.returncode:
            text = complaint.decode(errors="replace").strip()[-500:]
            raise CredentialsError(f"exec plugin {self.command}: exit code {process.returncode}: {text}")
        return output

    def _remember(self, output: bytes) -> None:
        try:
            status = json.loads(output)["status"]
            token = status.get("token", "")
            certificate = status.get("clientCertificateData", "")
            key = status.get("clientKeyData", "")
            expiry = status.get("expirationTimestamp")
            self._expires_at = _timestamp(expiry) if expiry else float("inf")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CredentialsError(f"exec plugin {self.command}: not an ExecCredential: {error!r}") from None
        if not token and not (certificate and key):
            raise CredentialsError(f"exec plugin {self.command}: neither a token nor a certificate with its key")
        self._proof = Proof(
            f"Bearer {token}" if token else "",
            certificate.encode() if certificate and key else None,
            key.encode() if certificate and key else None,
        )


def _told_to_plugins(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster as an ExecCredential carries it: certificates as data, and the plugin's own settings as `config`."""
    told = {field: cluster[field] for field in CLUSTER_FIELDS if field in cluster}
    path = cluster.get("certificate-authority")
    if path and "certificate-authority-data" not in told:
        try:
            told["certificate-authority-data"] = base64.b64encode(Path(path).read_bytes()).decode()
        except OSError as error:
            raise KubeconfigError(f"kubeconfig: certificate-authority: {error}") from None
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == PLUGIN_EXTENSION:
            told["config"] = extension.get("extension")
    return told


def _timestamp(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC).timestamp()
