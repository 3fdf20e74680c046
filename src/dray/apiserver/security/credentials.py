"""Keys and certificates of a server: made on first start, shared by all servers on one store, copied to the data directory.

The store decides: whoever writes the authority first wins, and everyone else takes that one. So two servers on one etcd
accept each other's certificates and tokens. The copies in `pki/` are for people and for clients on the same machine.

With a folder for keys they live there and nowhere else: not in the store, and of private keys only those of this server in `pki/`. Servers on one
store need the same folder.
"""

import base64
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from dray.apiserver.request.authentication.json_web_token import SigningKey
from dray.apiserver.request.request_info import MASTERS
from dray.apiserver.security.certificates import (
    Authority,
    Pair,
)
from dray.apiserver.watch.stored_object import SERVER
from dray.atomic_files import private_folder, write_atomically, write_private
from dray.clock import Clock
from dray.http.server import server_tls
from dray.store.encryption import PREFIX as ENCRYPTED
from dray.store.errors import AlreadyExists
from dray.store.interface import Store

ADMIN_USER = "kubernetes-admin"
SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "::1",
)
RENEW_BEFORE = timedelta(days=30)
LOOK_AT_CERTIFICATE_EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Credentials:
    authority: Authority
    server: Pair
    admin: Pair
    token_key: SigningKey
    directory: Path

    def client_pair(self, user: str, groups: Iterable[str] = ()) -> Pair:
        """A client certificate for a part of the cluster, such as `system:kube-scheduler` or a node."""
        return self.authority.issue_client(user, tuple(groups))

    def admin_kubeconfig(self, url: str) -> str:
        return kubeconfig_text(url, self.authority.certificate_pem, ADMIN_USER, pair=self.admin)

    def server_context(self) -> ssl.SSLContext:
        """TLS for the listening socket: a client certificate is optional, and must be issued by our authority."""
        context = server_tls()
        context.load_cert_chain(self.directory / "apiserver.crt", self.directory / "apiserver.key")
        context.load_verify_locations(cadata=self.authority.certificate_pem.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context

    async def keep_serving_certificate(self, context: ssl.SSLContext, clock: Clock) -> None:
        """Replaces the server's certificate before it ends, while the server runs; the next connection gets the new one."""
        hosts = _hosts_of(x509.load_pem_x509_certificate(self.server.certificate_pem))
        while True:
            await clock.sleep(LOOK_AT_CERTIFICATE_EVERY_S)
            if _kept_or(self.directory, "apiserver", self.authority, clock.now(), hosts) is None:
                pair = self.authority.issue_server("kube-apiserver", hosts, clock.now())
                _write_pair(self.directory, "apiserver", pair)
                context.load_cert_chain(self.directory / "apiserver.crt", self.directory / "apiserver.key")


async def load_credentials(
    store: Store, data: Path, hosts: Iterable[str], now: datetime, keys: Path | None = None
) -> Credentials:
    """The certificates and keys of a server, created or read from the store, or from the folder `keys`."""
    directory = data / "pki"
    private_folder(directory)
    if keys is None:
        authority = await _shared_authority(store, now)
        token_key = SigningKey.load(await _shared(store, "token-key", lambda: SigningKey.create().pem()))
    else:
        authority, token_key = await _kept_outside(store, keys, now)
    names = [*SERVER_NAMES, *(host for host in hosts if host not in ("", "0.0.0.0", "::"))]
    server = _kept_or(directory, "apiserver", authority, now, names) or authority.issue_server(
        "kube-apiserver", names, now
    )
    admin = _kept_or(directory, "admin", authority, now, ()) or authority.issue_client(ADMIN_USER, (MASTERS,), now)
    write_atomically(directory / "ca.crt", authority.certificate_pem)
    if keys is None:
        write_private(directory / "ca.key", authority.key_pem)
        write_private(directory / "sa.key", token_key.pem())
    _write_pair(directory, "apiserver", server)
    _write_pair(directory, "admin", admin)
    return Credentials(authority, server, admin, token_key, directory)


async def _kept_outside(store: Store, keys: Path, now: datetime) -> tuple[Authority, SigningKey]:
    """The keys of the folder, made there if it has none.

    A store that has keys of its own is refused: certificates and tokens of these would be worth nothing, and they would still lie there.
    """
    if await store.get(_stored_at("authority")) is not None:
        raise ValueError(
            f"--keys {keys}: the store holds the keys of this cluster already; start with an empty store, "
            "or without --keys"
        )
    private_folder(keys)
    ca, ca_key, token = keys / "ca.crt", keys / "ca.key", keys / "sa.key"
    if not any(file.exists() for file in (ca, ca_key, token)):
        made = Authority.create(now=now)
        write_private(ca_key, made.key_pem)
        write_private(token, SigningKey.create().pem())
        write_atomically(ca, made.certificate_pem)
    return Authority(ca.read_bytes(), ca_key.read_bytes()), SigningKey.load(token.read_bytes())


def _stored_at(name: str) -> str:
    return f"{SERVER}credentials/{name}"


async def _shared_authority(store: Store, now: datetime) -> Authority:
    """Key and certificate are stored as one value, so that no server takes the key of one authority and the certificate of another."""

    def make() -> bytes:
        authority = Authority.create(now=now)
        return authority.key_pem + authority.certificate_pem

    both = await _shared(store, "authority", make)
    cut = both.index(b"-----BEGIN CERTIFICATE-----")
    return Authority(certificate_pem=both[cut:], key_pem=both[:cut])


async def _shared(store: Store, name: str, make: Callable[[], bytes]) -> bytes:
    key = _stored_at(name)
    found = await store.get(key)
    if found is None:
        made = make()
        try:
            await store.create(key, made)
            return made
        except AlreadyExists:
            found = await store.get(key)
    if found is None:
        raise RuntimeError(f"{key} vanished while it was read")
    if found.value.startswith(ENCRYPTED):
        raise ValueError("the store is encrypted: give the server its --encryption-provider-config")
    return found.value


def local_authority(data: Path, keys: Path | None = None) -> Authority:
    """The authority of a server that keeps its data, or its keys, here; raises OSError if there is none."""
    directory = keys or data / "pki"
    return Authority((directory / "ca.crt").read_bytes(), (directory / "ca.key").read_bytes())


def _kept_or(directory: Path, name: str, authority: Authority, now: datetime, hosts: Iterable[str]) -> Pair | None:
    """The pair of an earlier start, if this authority issued it for these hosts, it is valid and it does not expire soon."""
    try:
        pair = Pair((directory / f"{name}.crt").read_bytes(), (directory / f"{name}.key").read_bytes())
        certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate_pem))
        is_pair = load_pem_private_key(pair.key_pem, None).public_key() == certificate.public_key()
    except Exception:
        return None  # missing, unreadable, or of another authority: a new one is issued
    if not is_pair:
        return None  # The server died after it had replaced one of the two.
    if certificate.not_valid_after_utc - now < RENEW_BEFORE or now < certificate.not_valid_before_utc:
        return None  # The second happens to a server that was started while its clock was ahead.
    return pair if set(hosts) <= _hosts_of(certificate) else None


def _write_pair(directory: Path, name: str, pair: Pair) -> None:
    write_atomically(directory / f"{name}.crt", pair.certificate_pem)
    write_private(directory / f"{name}.key", pair.key_pem)


def _hosts_of(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def kubeconfig_text(url: str, authority_pem: bytes, user: str, *, pair: Pair | None = None, token: str = "") -> str:
    """One cluster, one user (by certificate or token), one context named after both."""
    identity: dict[str, str] = {}
    if pair:
        identity["client-certificate-data"] = _base64(pair.certificate_pem)
        identity["client-key-data"] = _base64(pair.key_pem)
    if token:
        identity["token"] = token
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "dray", "cluster": {"server": url, "certificate-authority-data": _base64(authority_pem)}}
        ],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": f"{user}@dray", "context": {"cluster": "dray", "user": user}}],
        "current-context": f"{user}@dray",
    }
    return yaml.safe_dump(config, sort_keys=False)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
