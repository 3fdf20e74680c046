"""The faults of the rig hurt what they say, and go away again."""

import asyncio
import itertools
import json
import random
import time
from datetime import UTC, datetime

import pytest

from dray.client import NAMESPACES as NAMESPACE_KIND
from dray.client import Call, connect
from dray.client.https import HttpsTransport
from tests.torture.proxy import Proxy
from tests.torture.rig import Part, short_traceback
from tests.torture.with_weather import Weather, hurt_watches
from tests.waiting import eventually

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
async def server(tmp_path):
    kubeconfig, ready = tmp_path / "kubeconfig", tmp_path / "ready"
    files = ("--data", str(tmp_path / "data"), "--kubeconfig", str(kubeconfig), "--ready-file", str(ready))
    part = Part(tmp_path, "apiserver", "apiserver", "--listen", "127.0.0.1:0", *files)
    part.start()
    async with asyncio.timeout(60):
        while not ready.exists():  # noqa: ASYNC110 - a file of another process has no event
            await asyncio.sleep(0.05)
    client = connect(kubeconfig, component="test")
    yield part, client
    await client.close()
    part.stop()


async def create(client, name):
    """Past the client, which would try again."""
    body = json.dumps({"metadata": {"name": name}}).encode()
    return (await client.transport.request(Call("POST", NAMESPACES, body=body))).status


async def test_a_full_disk_takes_no_write_until_there_is_room(server):
    part, client = server
    part.set_weather(disk_is_full=True)
    assert await create(client, "a") == 503
    part.set_weather(disk_is_full=False)
    assert await create(client, "a") == 201
    assert part.is_running


async def test_a_slow_disk_keeps_writers_waiting(server):
    part, client = server
    part.set_weather(commit_takes_s=0.4)
    began = time.monotonic()
    assert await create(client, "a") == 201
    assert time.monotonic() - began >= 0.4
    part.calm_weather()
    assert await create(client, "b") == 201


async def test_watch_events_come_twice(server, monkeypatch):
    _, client = server
    monkeypatch.setattr(HttpsTransport, "_frames", HttpsTransport._frames)
    hurt_watches(lambda: Weather(events_hurt=1.0), random.Random(1))
    names = []
    async with client.transport.stream(Call("GET", NAMESPACES, query={"watch": "true"})) as frames:
        async for frame in frames:
            names.append(json.loads(frame)["object"]["metadata"]["name"])
            if len(names) == 4:
                break
    assert names[0] == names[1] != names[2] == names[3]


async def test_a_wrong_clock_is_what_the_server_writes(server):
    """It works out the text of a moment once a second."""
    part, client = server
    names = (f"n{number}" for number in itertools.count())

    async def ahead_s():
        name = next(names)
        assert await create(client, name) == 201
        created = (await client.get(NAMESPACE_KIND, name)).metadata.creation_timestamp
        return (datetime.fromisoformat(created) - datetime.now(UTC)).total_seconds()

    async def is_wrong():
        return await ahead_s() > 3600

    async def is_right():
        return abs(await ahead_s()) < 60

    part.set_weather(clock_wrong_by_s=7200.0)
    await eventually(is_wrong, "the clock to be ahead")
    part.calm_weather()
    await eventually(is_right, "the clock to be right")


async def said(word, reader, writer):
    writer.write(word)
    return await reader.readexactly(1)


@pytest.fixture
async def echo():
    """A server that says back what it hears: its proxy, a way around it, and one through it."""

    async def serve(reader, writer):
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = Proxy(server.sockets[0].getsockname()[1])
    await proxy.start()
    direct = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await said(b"a", reader, writer) == b"a"
    yield proxy, direct, (reader, writer)
    writer.close()
    direct[1].close()
    await proxy.stop()
    server.close()


async def test_a_cut_ends_connections(echo):
    proxy, _, hurt = echo
    proxy.cut()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await said(b"b", *hurt)


async def test_what_is_held_back_arrives_when_the_way_is_healed(echo):
    proxy, direct, hurt = echo
    proxy.hold()
    heard = asyncio.create_task(said(b"b", *hurt))
    for _ in range(20):
        assert await said(b"c", *direct) == b"c"
    assert not heard.done()
    proxy.heal()
    assert await heard == b"b"


async def test_a_delay_holds_for_both_directions(echo):
    proxy, _, hurt = echo
    proxy.delay(0.2)
    began = time.monotonic()
    assert await said(b"b", *hurt) == b"b"
    assert time.monotonic() - began >= 0.4


def test_a_traceback_is_cut_to_its_last_frames_and_the_error():
    frames = "".join(f'  File "a.py", line {number}, in f{number}\n    call({number})\n' for number in range(9))
    log = f"some line\nTraceback (most recent call last):\n{frames}ValueError: why\nafter\n"
    (_, text) = log.split("Traceback (most recent call last):\n")
    short = short_traceback(text)
    assert short.startswith('  File "a.py", line 6, in f6')
    assert short.endswith("\n    ValueError: why")
