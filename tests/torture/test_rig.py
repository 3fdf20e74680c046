"""The faults of the rig hurt what they say, and go away again."""

import asyncio
import json
import random
import time

import pytest

from dray.client import Call, connect
from dray.client.https import HttpsTransport
from tests.torture.rig import Part, short_traceback
from tests.torture.with_weather import Weather, hurt_watches

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


def test_a_traceback_is_cut_to_its_last_frames_and_the_error():
    frames = "".join(f'  File "a.py", line {number}, in f{number}\n    call({number})\n' for number in range(9))
    log = f"some line\nTraceback (most recent call last):\n{frames}ValueError: why\nafter\n"
    (_, text) = log.split("Traceback (most recent call last):\n")
    short = short_traceback(text)
    assert short.startswith('  File "a.py", line 6, in f6')
    assert short.endswith("\n    ValueError: why")
