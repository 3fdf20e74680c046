"""The HTTPS transport against a real TLS server: certificates, tokens, streams, cuts."""

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from aiohttp import web

from dray.apiserver.security.certificates import LIFETIME, Authority
from dray.client import PODS, ApiError, Client, Connection, Handler, Informer, ServerUnreachable
from dray.client.credentials import CertificateFiles, NoCredentials, Proof, StaticToken, TokenFile
from dray.client.https import HttpsTransport
from dray.client.transport import Call
from tests.waiting import eventually, let_others_run


@pytest.fixture(scope="module")
def authority():
    return Authority.create("test-ca")


@pytest.fixture
def server_tls(authority, tmp_path):
    pair = authority.issue_server("test", ["127.0.0.1", "localhost"])
    (tmp_path / "server.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    (tmp_path / "ca.pem").write_bytes(authority.certificate_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.pem"))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(tmp_path / "server.pem")
    return context


@contextlib.asynccontextmanager
async def serving(tls, handler):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def client_for(url, authority, credentials=None, **fields):
    connection = Connection(url, credentials or NoCredentials(), ca=authority.certificate_pem, **fields)
    return Client(HttpsTransport(connection))


async def test_a_client_certificate_is_presented(authority, server_tls):
    pair = authority.issue_client("me", ["devs"])

    async def handler(request):
        subject = dict(item[0] for item in request.transport.get_extra_info("peercert")["subject"])
        return web.json_response({"metadata": {"name": subject["commonName"]}})

    async with serving(server_tls, handler) as url:
        client = client_for(url, authority, client_certificate=pair.certificate_pem, client_key=pair.key_pem)
        assert (await client.get(PODS, "p", "ns")).metadata.name == "me"
        await client.close()


async def test_a_new_client_certificate_is_used_for_new_requests(authority, server_tls):
    async def handler(request):
        subject = dict(item[0] for item in request.transport.get_extra_info("peercert")["subject"])
        return web.json_response({"metadata": {"name": subject["commonName"]}})

    class Rotating:
        user = "one"

        async def proof(self):
            pair = pairs[self.user]
            return Proof("", pair.certificate_pem, pair.key_pem)

        def refused(self):
            return False

    pairs = {name: authority.issue_client(name, []) for name in ("one", "two")}
    async with serving(server_tls, handler) as url:
        client = client_for(url, authority, credentials := Rotating())
        assert (await client.get(PODS, "p", "ns")).metadata.name == "one"
        credentials.user = "two"
        assert (await client.get(PODS, "p", "ns")).metadata.name == "two"
        await client.close()


def write_pair(folder, pair):
    (folder / "client.crt").write_bytes(pair.certificate_pem)
    (folder / "client.key").write_bytes(pair.key_pem)


def ends_in(authority, user, seconds):
    return authority.issue_client(user, [], datetime.now(UTC) - LIFETIME + timedelta(seconds=seconds))


async def test_a_certificate_that_has_ended_is_read_again_at_once(authority, server_tls, tmp_path):
    async def handler(request):
        subject = dict(item[0] for item in request.transport.get_extra_info("peercert")["subject"])
        return web.json_response({"metadata": {"name": subject["commonName"]}})

    write_pair(tmp_path, ends_in(authority, "ended", -1))
    files = CertificateFiles(tmp_path / "client.crt", tmp_path / "client.key", NoCredentials())
    async with serving(server_tls, handler) as url:
        client = client_for(url, authority, files)
        with pytest.raises(ServerUnreachable):
            await client.get(PODS, "p", "ns")
        write_pair(tmp_path, ends_in(authority, "new", 3600))
        assert (await client.get(PODS, "p", "ns")).metadata.name == "new"
        await client.close()


async def test_a_key_is_not_shown_with_the_certificate_of_another(authority, tmp_path):
    """Certificate and key are replaced one after the other; a look between the two sees halves of both."""
    old, new = ends_in(authority, "old", 5), ends_in(authority, "new", 3600)
    write_pair(tmp_path, old)
    files = CertificateFiles(tmp_path / "client.crt", tmp_path / "client.key", NoCredentials())
    assert (await files.proof()).client_certificate == old.certificate_pem
    (tmp_path / "client.crt").write_bytes(new.certificate_pem)
    assert (await files.proof()).client_certificate == old.certificate_pem
    (tmp_path / "client.key").write_bytes(new.key_pem)
    assert (await files.proof()).client_certificate == new.certificate_pem


async def test_an_unknown_authority_is_not_trusted(authority, server_tls):
    async def handler(request):
        return web.json_response({})

    async with serving(server_tls, handler) as url:
        other = Authority.create("other")
        client = Client(HttpsTransport(Connection(url, NoCredentials(), ca=other.certificate_pem)))
        with pytest.raises(ServerUnreachable, match="certificate"):
            await client.get(PODS, "p", "ns")
        await client.close()
        trusting = Client(HttpsTransport(Connection(url, NoCredentials(), verify=False)))
        await trusting.get(PODS, "p", "ns")
        await trusting.close()


async def test_what_a_request_carries(authority, server_tls):
    seen = {}

    async def handler(request):
        seen.update(
            path=request.raw_path, query=dict(request.query), body=await request.read(), headers=dict(request.headers)
        )
        return web.json_response({"metadata": {"name": "p"}})

    async with serving(server_tls, handler) as url:
        client = client_for(url, authority, StaticToken("secret")).named("me/1.0").urgent()
        await client.patch(PODS, "p", {"a": "ü"}, "ns", field_manager="x y+z%2F")
        await client.close()
    assert seen["query"] == {"fieldManager": "x y+z%2F"}
    assert seen["path"].startswith("/api/v1/namespaces/ns/pods/p?")
    assert seen["headers"]["Authorization"] == "Bearer secret"
    assert seen["headers"]["User-Agent"] == "me/1.0"
    assert seen["headers"]["Priority"] == "u=0"
    assert seen["headers"]["Content-Type"] == "application/merge-patch+json"
    assert msgspec.json.decode(seen["body"]) == {"a": "ü"}


async def test_a_refused_token_is_read_again_once(authority, server_tls, tmp_path):
    file = tmp_path / "token"
    file.write_text("old")
    asked = []

    async def handler(request):
        asked.append(request.headers["Authorization"])
        if asked[-1] == "Bearer new":
            return web.json_response({"metadata": {"name": "p"}})
        file.write_text("new")
        return web.json_response({"kind": "Status", "code": 401, "message": "Unauthorized"}, status=401)

    async with serving(server_tls, handler) as url:
        client = client_for(url, authority, TokenFile(file))
        assert (await client.get(PODS, "p", "ns")).metadata.name == "p"
        await client.close()
    assert asked == ["Bearer old", "Bearer new"]


async def test_frames_survive_any_chunking(authority, server_tls):
    frames = [
        msgspec.json.encode({"type": "ADDED", "object": {"kind": "Pod", "metadata": {"name": "x" * size}}})
        for size in (1, 200_000, 3)
    ]
    data = b"\n".join(frames) + b"\n"

    async def handler(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for start in range(0, len(data), 777):
            await response.write(data[start : start + 777])
        return response

    async with serving(server_tls, handler) as url:
        client = client_for(url, authority)
        async with client.watch(PODS) as events:
            assert [len(event.object.metadata.name) async for event in events] == [1, 200_000, 3]
        await client.close()


async def test_a_refused_watch_raises_before_any_event(authority, server_tls):
    async def handler(request):
        body = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        return web.json_response(body, status=410)

    async with serving(server_tls, handler) as url:
        client = client_for(url, authority)
        with pytest.raises(ApiError) as caught:
            async with client.watch(PODS):
                pass
        assert caught.value.is_expired
        await client.close()


async def test_no_server_and_a_slow_server_are_unreachable(authority, server_tls):
    async def handler(request):
        await asyncio.Event().wait()

    async with serving(server_tls, handler) as url:
        transport = HttpsTransport(Connection(url, NoCredentials(), ca=authority.certificate_pem))
        with pytest.raises(ServerUnreachable, match="timed out"):
            await transport.request(Call("GET", "/x", timeout_s=0.2))
        await transport.close()
        with pytest.raises(ServerUnreachable, match="closed"):
            await transport.request(Call("GET", "/x"))
    gone = HttpsTransport(Connection("https://127.0.0.1:1", NoCredentials()))
    with pytest.raises(ServerUnreachable):
        await gone.request(Call("GET", "/x"))
    await gone.close()


async def test_an_informer_survives_cut_connections(authority, server_tls):
    """Every stream is cut in the middle of a frame; nothing is lost and nothing comes twice."""
    total = 12

    async def handler(request):
        since = int(request.query.get("resourceVersion") or 0)
        response = web.StreamResponse()
        await response.prepare(request)
        if request.query.get("sendInitialEvents"):
            marker = {"resourceVersion": "0", "annotations": {"k8s.io/initial-events-end": "true"}}
            await response.write(msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": marker}}) + b"\n")
        for number in range(since + 1, min(since + 4, total) + 1):
            metadata = {"name": f"p{number}", "namespace": "ns", "uid": str(number), "resourceVersion": str(number)}
            await response.write(msgspec.json.encode({"type": "ADDED", "object": {"metadata": metadata}}) + b"\n")
        if since + 4 < total:
            await response.write(b'{"type":"ADDED","obj')
            await let_others_run(5)
            request.transport.abort()
        else:
            await asyncio.Event().wait()
        return response

    async with serving(server_tls, handler) as url:
        client = client_for(url, authority)
        informer = Informer(client, PODS)
        added = []
        informer.add_handler(Handler(on_add=lambda pod: added.append(pod.metadata.name)))
        informer.start()
        await eventually(lambda: len(informer) == total, "all pods")
        assert added == [f"p{number}" for number in range(1, total + 1)]
        await informer.stop()
        await client.close()


async def name_of(client):
    return (await client.get(PODS, "p", "ns")).metadata.name


async def answer_with_path(request):
    if "watch" in request.query:
        return web.Response(text="")
    return web.json_response({"metadata": {"name": request.path}})


async def test_a_server_behind_a_path(authority, server_tls):
    """As management planes offer their clusters."""
    async with serving(server_tls, answer_with_path) as url:
        client = client_for(f"{url}/k8s/clusters/c-1", authority)
        assert await name_of(client) == "/k8s/clusters/c-1/api/v1/namespaces/ns/pods/p"
        async with client.watch(PODS) as events:
            assert [event async for event in events] == []
        await client.close()


@pytest.fixture
def inner_tls(authority, tmp_path):
    """A certificate for a name that is not the address one connects to."""
    pair = authority.issue_server("inner", ["inner.example"])
    (tmp_path / "inner.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "inner.pem")
    return context


async def test_the_name_to_expect_may_be_another_than_the_address(authority, inner_tls):
    async with serving(inner_tls, answer_with_path) as url:
        wrong = client_for(url, authority)
        with pytest.raises(ServerUnreachable, match="certificate"):
            await name_of(wrong)
        await wrong.close()
        right = client_for(url, authority, tls_server_name="inner.example")
        assert await name_of(right)
        async with right.watch(PODS) as events:
            assert [event async for event in events] == []
        await right.close()


class Proxy:
    """Tunnels whoever asks it to, and counts."""

    def __init__(self):
        self.tunnels = []

    async def start(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self):
        self._server.close()

    async def _connected(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split("\r\n")[0].split(" ")
        self.tunnels.append((method, target))
        host, _, port = target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer), return_exceptions=True)


async def _pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@pytest.mark.parametrize("named_by", ["kubeconfig", "environment"])
async def test_calls_and_watches_go_through_a_proxy(authority, server_tls, named_by, monkeypatch):
    proxy = Proxy()
    where = await proxy.start()
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    if named_by == "environment":
        monkeypatch.setenv("HTTPS_PROXY", where)
    async with serving(server_tls, answer_with_path) as url:
        client = client_for(url, authority, **({"proxy": where} if named_by == "kubeconfig" else {}))
        assert await name_of(client) == "/api/v1/namespaces/ns/pods/p"
        async with client.watch(PODS) as events:
            assert [event async for event in events] == []
        await client.close()
        assert set(proxy.tunnels) == {("CONNECT", url.removeprefix("https://"))}
    await proxy.stop()


async def test_a_proxy_that_is_away_is_an_unreachable_server(authority):
    client = client_for("https://127.0.0.1:1", authority, proxy="http://127.0.0.1:1")
    with pytest.raises(ServerUnreachable):
        await name_of(client)
    await client.close()
