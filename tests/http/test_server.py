"""A server of pages: handlers that fail or never end, health checks, and what its clients see."""

import asyncio

import pytest

from dray.http.connection import HttpRequest
from dray.http.health import HealthAndMetrics, HealthChecks
from dray.http.responses import Response
from dray.http.server import HttpServer, url_of


async def get(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_a_handler_that_fails_is_a_500_and_the_server_goes_on() -> None:
    async def handle(request: HttpRequest) -> Response:
        path, query = request.path_and_query()
        if path == "/fail":
            raise ValueError("on purpose")
        return Response(200, f"{path}?{query}".encode(), "text/plain")

    server = HttpServer(handle)
    _, port = await server.start("127.0.0.1", 0)
    assert await get(port, "/fail") == (500, b"the server failed; its log says why\n")
    assert await get(port, "/a%20b?x=1&y") == (200, b"/a%20b?x=1&y")
    await server.stop()


async def test_stopping_cuts_off_a_request_that_does_not_end_in_time() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def never(request: HttpRequest) -> Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    server = HttpServer(never, stop_after_s=0.01)
    _, port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await begun.wait()
    async with asyncio.timeout(20):
        await server.stop()
        assert await reader.read() == b""
    assert cancelled.is_set()
    assert server.open_connections == 0
    writer.close()


async def passes() -> bool:
    return True


async def breaks() -> bool:
    raise OSError("away")


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/healthz?exclude=store", 200, b"ok"),
        ("/livez/ping", 200, b"ok"),
        ("/readyz", 500, b"[+]ping ok\n[-]store failed: reason withheld\nreadyz check failed\n"),
        ("/readyz?verbose&exclude=store", 200, b"[+]ping ok\nreadyz check passed\n"),
        ("/healthz/unknown", 404, b"404 page not found\n"),
        ("/metrics", 200, b"up 1\n"),
        ("/other", 404, b"404 page not found\n"),
    ],
)
async def test_health_and_metrics(path: str, status: int, body: bytes) -> None:
    checks = HealthChecks({"ping": passes, "store": breaks})
    server = HttpServer(HealthAndMetrics(checks, lambda: "up 1\n"))
    _, port = await server.start("127.0.0.1", 0)
    assert await get(port, path) == (status, body)
    assert (await get(port, path, "POST"))[0] == 405
    await server.stop()


def test_a_server_that_listens_everywhere_has_a_url_of_this_machine() -> None:
    assert url_of("https", "0.0.0.0", 6443) == "https://127.0.0.1:6443"
    assert url_of("http", "::", 80) == "http://[::1]:80"
    assert url_of("http", "10.0.0.7", 80) == "http://10.0.0.7:80"
