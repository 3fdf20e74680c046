"""`--store` URLs: `sqlite:///path/to/file`, or `etcd://[user:password@]HOST:PORT[,HOST:PORT...][/prefix][?options]`.

Options of etcd: `ca`, `cert`, `key` are PEM files; any of them, or the scheme `etcds`, turns TLS on. A password is better
kept out of process lists: `password-file` names a file that holds it.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from dray.clock import Clock
from dray.store.errors import StoreError
from dray.store.interface import Store
from dray.store.sqlite import SqliteStore

DEFAULT_PREFIX = "/dray"
_FILE_OPTIONS = {"ca", "cert", "key", "password-file"}


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Endpoints and credentials of an etcd; certificates are file contents, not paths."""

    endpoints: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    tls: bool = False
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    user: str = ""
    password: str = ""
    # As it was given; its files may be renewed.
    url: str = ""

    @staticmethod
    def parse(url: str) -> "StoreAddress":
        parts = urlsplit(url)
        if parts.scheme not in ("etcd", "etcds"):
            raise StoreError(f"{url}: not an etcd URL")
        credentials, _, hosts = parts.netloc.rpartition("@")
        endpoints = tuple(host for host in hosts.split(",") if host)
        if not endpoints or not all(_is_endpoint(each) for each in endpoints):
            raise StoreError(f"{url}: give HOST:PORT, several separated by commas")
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if unknown := options.keys() - _FILE_OPTIONS:
            raise StoreError(f"{url}: unknown option {', '.join(sorted(unknown))}")
        files = {name: _read(path) for name, path in options.items()}
        _check_tls(options)
        user, _, password = credentials.partition(":")
        if "password-file" in files:
            password = files["password-file"].decode().strip()
        return StoreAddress(
            endpoints=endpoints,
            prefix=parts.path.rstrip("/") or DEFAULT_PREFIX,
            tls=parts.scheme == "etcds" or bool(files.keys() & {"ca", "cert", "key"}),
            ca=files.get("ca"),
            certificate=files.get("cert"),
            key=files.get("key"),
            user=unquote(user),
            password=unquote(password),
            url=url,
        )

    def with_files_of_now(self) -> "StoreAddress":
        """The same address with certificates that may have been renewed; itself while they cannot be read."""
        try:
            return StoreAddress.parse(self.url) if self.url else self
        except StoreError:
            return self


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _is_endpoint(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65536


def _check_tls(paths: dict[str, str]) -> None:
    """Checks the PEM files now: gRPC would fail at every attempt to connect and would not name the file."""
    if ("cert" in paths) != ("key" in paths):
        raise StoreError("cert and key of the store's URL belong together: give both or none")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca := paths.get("ca"):
        try:
            context.load_verify_locations(cafile=ca)
        except ssl.SSLError as error:
            raise StoreError(f"{ca} holds no certificate that can be read: {_reason(error)}") from error
    if "cert" in paths:
        try:
            context.load_cert_chain(paths["cert"], paths["key"], password="")
        except ssl.SSLError as error:
            text = f"{paths['cert']} and {paths['key']} are no certificate and its key: {_reason(error)}"
            raise StoreError(text) from error


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "not PEM").lower().replace("_", " ")


def is_etcd(url: str) -> bool:
    return url.startswith("etcd")


def store_file(url: str, data: Path) -> Path:
    """The SQLite file that `--store` names; an empty URL means the one in the data directory."""
    if not url:
        return data / "dray.db"
    path = urlsplit(url).path
    if not url.startswith("sqlite:") or not path:
        raise StoreError(f"{url}: give a file, as in sqlite:///var/lib/dray/dray.db")
    return Path(unquote(path))


async def open_store(url: str, data: Path, clock: Clock | None = None) -> Store:
    """Opens the store that `--store` names; an empty URL means the SQLite file in the data directory."""
    if not url or url.startswith("sqlite:"):
        return SqliteStore(store_file(url, data), clock)
    from dray.store.etcd import EtcdStore  # loads gRPC only where etcd is used

    return await EtcdStore.open(StoreAddress.parse(url))
