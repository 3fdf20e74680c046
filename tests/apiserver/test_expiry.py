"""Events vanish an hour after they last happened."""

import json
from pathlib import Path

from tests.waiting import eventually

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.clock import SimulatedClock
from dray.store.sqlite import SqliteStore

EVENTS = "/api/v1/namespaces/default/events"


async def test_an_event_lives_for_an_hour_after_it_last_happened(tmp_path: Path) -> None:
    clock = SimulatedClock()
    store = SqliteStore(tmp_path / "dray.db", clock)
    running = await start_server(store, ServerOptions(tmp_path), clock)

    async def send(method: str, path: str, body: object = None, kind: str = "application/json") -> int:
        headers = {"content-type": kind, "accept": "application/json"}
        data = json.dumps(body).encode() if body else b""
        return (await running.server.handle(Request(method, path, "", headers, data, LOOPBACK))).status

    async def expired(name: str) -> None:
        async def is_gone() -> bool:
            return await send("GET", f"{EVENTS}/{name}") == 404

        await eventually(is_gone, f"event {name} to expire")

    reference = {"kind": "Pod", "name": "p", "namespace": "default"}
    for name in ("once", "again"):
        event = {"metadata": {"name": name}, "involvedObject": reference, "reason": "Why", "type": "Normal"}
        assert await send("POST", EVENTS, event) == 201
    await clock.advance(3000)
    assert await send("PATCH", f"{EVENTS}/again", {"count": 2}, "application/merge-patch+json") == 200
    assert await send("GET", f"{EVENTS}/once") == 200
    await clock.advance(700)
    await expired("once")
    assert await send("GET", f"{EVENTS}/once") == 404
    assert await send("GET", f"{EVENTS}/again") == 200
    await clock.advance(3000)
    await expired("again")
    assert await send("GET", f"{EVENTS}/again") == 404
    await running.stop()
    await store.close()
