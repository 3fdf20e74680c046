"""One client that opens more and more: it is told to stop, nobody else notices, and what it closes can be opened again."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator

import pytest
from tests.apiserver.conftest import Live, start_live, stop_live
from tests.apiserver.exchanges import Server
from tests.apiserver.test_attacks import connect, send
from tests.waiting import eventually_blocking

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

# So few that all of them can be used up in a test.
FILES = 320
WATCHES = FILES - 256
NAMESPACES = "/api/v1/namespaces"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    started = start_live(tmp_path_factory.mktemp("small"), most_files=FILES)
    yield started
    stop_live(started)


@pytest.fixture(scope="module")
def server(small: Live) -> Server:
    return Server(small.kubeconfig)


def a_watch(live: Live, server: Server) -> tuple[ssl.SSLSocket, bytes]:
    """A connection that asked for a watch, and the status it got."""
    client = connect(live, server)
    client.settimeout(20)
    client.sendall(b"GET /api/v1/namespaces?watch=true HTTP/1.1\r\nHost: x\r\n\r\n")
    return client, client.recv(4096).split(b" ")[1]


def is_healthy(server: Server) -> bool:
    return server.pool.request("GET", server.url + "/readyz", timeout=20).data == b"ok"


def test_watches_without_end(small: Live, server: Server) -> None:
    clients, statuses = [], []
    for _ in range(WATCHES + 10):
        client, status = a_watch(small, server)
        clients.append(client)
        statuses.append(status)
    assert statuses == [b"200"] * WATCHES + [b"429"] * 10
    assert is_healthy(server)
    assert send(server, "POST", NAMESPACES, b'{"metadata":{"name":"seen-by-all"}}').status == 201
    for client in clients[:WATCHES]:
        seen = b""
        while b"seen-by-all" not in seen:
            seen += client.recv(65536)
    for client in clients:
        client.close()
    eventually_blocking(lambda: _closed(*a_watch(small, server)) == b"200", "room for another watch", pause_s=0.2)


def _closed(client: ssl.SSLSocket, status: bytes) -> bytes:
    client.close()
    return status


def test_connections_without_end(small: Live, server: Server) -> None:
    assert is_healthy(server)
    clients = []
    with contextlib.suppress(OSError):
        for _ in range(FILES):
            clients.append(connect(small))
    # Who was there before is still served.
    assert is_healthy(server)
    for client in clients:
        client.close()

    def connects() -> bool:
        with contextlib.suppress(OSError):
            connect(small).close()
            return True
        return False

    eventually_blocking(connects, "a new connection after all were closed", pause_s=0.2)
    assert is_healthy(server)
