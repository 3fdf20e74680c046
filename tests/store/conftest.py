"""Every store test runs against a SQLite file, against one whose values are encrypted, and against a real etcd."""

import itertools
import json
import socket
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.torture.etcd_cluster import etcd_binary, free_port
from tests.waiting import eventually_blocking

from dray.store.encryption import AesGcm, EncryptedStore
from dray.store.etcd import EtcdStore
from dray.store.interface import Store
from dray.store.sqlite import SqliteStore
from dray.store.store_url import StoreAddress

# Opens the same store again, as another process (etcd) or the next process (SQLite) would.
Opener = Callable[[], Awaitable[Store]]

_prefixes = itertools.count()


def start_etcd(data: Path, port: int, *flags: str, scheme: str = "http") -> subprocess.Popen[bytes]:
    url = f"{scheme}://127.0.0.1:{port}"
    peer = f"http://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            etcd_binary(),
            *("--data-dir", str(data), "--listen-client-urls", url, "--advertise-client-urls", url),
            *(
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
                "--initial-cluster",
                f"default={peer}",
            ),
            *("--log-level", "error", *flags),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def answers() -> bool:
        assert process.poll() is None, "etcd did not start"
        return _listens(port) and (scheme == "https" or _is_healthy(url))

    eventually_blocking(answers, "etcd to answer", within_s=60)
    return process


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_healthy(url: str) -> bool:
    """It listens some time before it serves."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(json.load(answer)["health"] == "true")
    except (OSError, ValueError):
        return False


@pytest.fixture(scope="session")
def etcd_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    # Nobody kills this one: only then may it acknowledge writes that are still in its memory.
    process = start_etcd(tmp_path_factory.mktemp("etcd") / "data", port, "--unsafe-no-fsync")
    yield f"127.0.0.1:{port}"
    process.kill()
    process.wait()


@dataclass
class Etcd:
    """An etcd process that a test may stop, kill and start again."""

    data: Path
    flags: tuple[str, ...] = ()
    scheme: str = "http"
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = start_etcd(self.data, self.port, *self.flags, scheme=self.scheme)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def control(self, *arguments: str) -> str:
        url = f"{self.scheme}://{self.address}"
        command = [str(Path(etcd_binary()).with_name("etcdctl")), "--endpoints", url, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def until_healthy(self, *credentials: str) -> None:
        """It listens some time before it can be written to."""

        def is_healthy() -> bool:
            try:
                self.control("endpoint", "health", *credentials)
            except subprocess.CalledProcessError:
                return False
            return True

        eventually_blocking(is_healthy, "etcd to be healthy", within_s=60)

    def answers(self) -> bool:
        return _listens(int(self.address.rpartition(":")[2]))


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[Etcd]:
    etcd = Etcd(tmp_path / "etcd")
    yield etcd
    etcd.kill()


@pytest.fixture(params=["sqlite", "encrypted", "etcd"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def open_store(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Opener]:
    opened: list[Store] = []

    async def open_sqlite() -> Store:
        store: Store = SqliteStore(tmp_path / "dray.db")
        if kind == "encrypted":
            store = EncryptedStore(store, {"/": [AesGcm("one", b"s" * 32)]})
        opened.append(store)
        return store

    async def open_etcd() -> Store:
        address = StoreAddress.parse(f"etcd://{request.getfixturevalue('etcd_address')}/test-{prefix}")
        store: Store = await EtcdStore.open(address)
        opened.append(store)
        return store

    prefix = next(_prefixes)
    yield open_etcd if kind == "etcd" else open_sqlite
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Opener) -> Store:
    return await open_store()
