"""`--store` URLs: `sqlite:///path/to/file`, or `etcd://[user:password@]HOST:PORT[,HOST:PORT...][/prefix][?options]`.

Options of etcd: `ca`, `cert`, `key` are PEM files; any of them, or the scheme `etcds`, turns TLS on. A password is better
kept out of process lists: `password-file` names a file that holds it.
"""

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
    """Where an etcd is and how to get in; texts are file contents, not paths."""

    endpoints: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    tls: bool = False
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    user: str = ""
    password: str = ""

    @staticmethod
    def parse(url: str) -> "StoreAddress":
        parts = urlsplit(url)
        if parts.scheme not in ("etcd", "etcds"):
            raise StoreError(f"{url}: not an etcd URL")
        credentials, _, hosts = parts.netloc.rpartition("@")
        endpoints = tuple(host for host in hosts.split(",") if host)
        if not endpoints or any(":" not in host for host in endpoints):
            raise StoreError(f"{url}: give HOST:PORT, several separated by commas")
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if unknown := options.keys() - _FILE_OPTIONS:
            raise StoreError(f"{url}: unknown option {', '.join(sorted(unknown))}")
        files = {name: _read(path) for name, path in options.items()}
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
        )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


async def open_store(url: str, data: Path, clock: Clock | None = None) -> Store:
    """The store a server was told to use; an empty URL means the SQLite file in its data directory."""
    if not url:
        return SqliteStore(data / "dray.db", clock)
    if url.startswith("sqlite:"):
        path = urlsplit(url).path
        if not path:
            raise StoreError(f"{url}: give a file, as in sqlite:///var/lib/dray/dray.db")
        return SqliteStore(Path(unquote(path)), clock)
    from dray.store.etcd import EtcdStore  # gRPC is only loaded for who uses it

    return await EtcdStore.open(StoreAddress.parse(url))
