"""Events are many and live an hour: the server keeps little of each, and nobody who reads them can tell."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.in_process_api import InProcessApi

from dray.api.scheme import by_kind
from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.apiserver.watch import kind_cache as caches
from dray.apiserver.watch.packed_objects import Packed
from dray.apiserver.watch.stored_object import Stored
from dray.store.sqlite import SqliteStore

EVENTS = "/api/v1/namespaces/default/events"
YOUNG = 4
# Bytes, of an Event of a thousand.
MOST_HELD = 350
ODD = 'quotes " and \\ and ümlauts, <b> too'


class Api(InProcessApi):
    async def create(self, number: int, reason: str = "Scheduled") -> None:
        pod = {"kind": "Pod", "namespace": "default", "name": f"p{number}", "uid": f"uid-{number}", "apiVersion": "v1"}
        event = {
            "metadata": {"name": f"p{number}.18e8", "labels": {"parity": str(number % 2)}},
            "involvedObject": pod,
            "reason": reason,
            "message": f"Successfully assigned default/p{number} to node-{number % 7}",
            "source": {"component": "default-scheduler"},
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "count": 1,
            "type": "Normal",
            "reportingComponent": "default-scheduler",
        }
        await self.ask("POST", EVENTS, body=event)

    async def names(self, query: str) -> list[str]:
        items = json.loads(await self.ask("GET", EVENTS, query))["items"]
        return [each["involvedObject"]["name"] for each in items]

    def stored(self) -> list[Stored]:
        return list(self.running.server.core.cache(by_kind("Event")).list())


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.setattr(caches, "KEPT_EVENTS", YOUNG)
    store = SqliteStore(tmp_path / "dray.db")
    running = await start_server(store, ServerOptions(tmp_path))
    yield Api(running)
    await running.stop()
    await store.close()


def held(stored: Stored) -> int:
    """Bytes of what this object alone holds: texts and what was read from them. The key and the sample are shared."""
    names = {name for kind in type(stored).__mro__ for name in getattr(kind, "__slots__", ())}
    own = [getattr(stored, name) for name in names - {"key", "_sample"} if _is_set(stored, name)]
    return sys.getsizeof(stored) + sum(_size(each) for each in own if isinstance(each, str | bytes | dict))


def _is_set(stored: Stored, name: str) -> bool:
    descriptor = next(vars(kind)[name] for kind in type(stored).__mro__ if name in vars(kind))
    try:
        descriptor.__get__(stored, type(stored))
    except AttributeError:
        return False
    return True


def _size(value: Any) -> int:
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else []
    return sys.getsizeof(value) + sum(map(sys.getsizeof, inner))


async def test_of_an_event_that_is_no_longer_new_little_is_kept(api: Api) -> None:
    for number in range(60):
        await api.create(number)
    assert await api.names("fieldSelector=involvedObject.name%3Dp17") == ["p17"]
    assert len(await api.names("labelSelector=parity%3D1")) == 30
    old = sorted(api.stored(), key=lambda each: each.revision)[:-YOUNG]
    assert len(old) == 56
    assert sum(map(held, old)) / len(old) < MOST_HELD
    assert sum(len(each.value) for each in old) / len(old) > 2 * MOST_HELD, "else there is nothing to save"


async def test_whoever_reads_them_cannot_tell(api: Api) -> None:
    await api.create(0)
    await api.create(1, ODD)
    ways: list[tuple[str, str, dict[str, str]]] = [
        (f"{EVENTS}/p1.18e8", "", {}),
        (f"{EVENTS}/p1.18e8", "", {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}),
        ("/apis/events.k8s.io/v1/namespaces/default/events/p0.18e8", "", {}),
        (f"{EVENTS}/p1.18e8", "", {"accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}),
    ]
    before = [await api.ask("GET", path, query, **headers) for path, query, headers in ways]
    for number in range(2, 12):
        await api.create(number)
    assert [await api.ask("GET", path, query, **headers) for path, query, headers in ways] == before
    assert sum(isinstance(each, Packed) for each in api.stored()) == 12 - YOUNG


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("fieldSelector=involvedObject.uid%3Duid-3", ["p3"]),
        ("fieldSelector=involvedObject.name%3Dp3,involvedObject.namespace%3Ddefault", ["p3"]),
        ("fieldSelector=involvedObject.name%3Dnobody", []),
        # Mentioned, but elsewhere.
        ("fieldSelector=reason%3Ddefault", []),
        ("fieldSelector=reason!%3DScheduled", ["p1"]),
        ("fieldSelector=reason%3Dquotes+%22+and+%5C%5C+and+%C3%BCmlauts%5C,+%3Cb%3E+too", ["p1"]),
        ("fieldSelector=metadata.name%3Dp5.18e8", ["p5"]),
        ("labelSelector=parity%3D1", ["p1", "p3", "p5", "p7"]),
        ("limit=2", ["p0", "p1"]),
    ],
)
async def test_selectors(api: Api, query: str, expected: list[str]) -> None:
    for number in range(8):
        await api.create(number, ODD if number == 1 else "Scheduled")
    assert await api.names(query) == expected


async def test_they_are_changed_and_deleted_as_ever(api: Api) -> None:
    for number in range(8):
        await api.create(number)
    revision = json.loads(await api.ask("GET", EVENTS))["metadata"]["resourceVersion"]
    patch = {"content-type": "application/merge-patch+json"}
    changed = json.loads(await api.ask("PATCH", f"{EVENTS}/p0.18e8", body={"count": 2}, **patch))
    assert (changed["count"], changed["reason"]) == (2, "Scheduled")
    await api.ask("DELETE", f"{EVENTS}/p1.18e8")
    watch = Request("GET", EVENTS, f"watch=true&resourceVersion={revision}", {}, b"", LOOPBACK)
    answer = await api.running.server.handle(watch)
    lines: list[bytes] = []
    assert answer.stream is not None
    async for chunk in answer.stream:
        lines += chunk.splitlines()
        if len(lines) >= 2:
            break
    told = [json.loads(line) for line in lines]
    assert [(each["type"], each["object"]["involvedObject"]["name"]) for each in told] == [
        ("MODIFIED", "p0"),
        ("DELETED", "p1"),
    ]
    assert await api.names("") == ["p0", *(f"p{number}" for number in range(2, 8))]


async def test_they_are_packed_again_when_the_server_starts(tmp_path: Path) -> None:
    """And objects of kinds that do not vanish by themselves are not: they are read all the time."""
    store = SqliteStore(tmp_path / "dray.db")
    running = await start_server(store, ServerOptions(tmp_path))
    for number in range(6):
        await Api(running).create(number)
    before = await Api(running).ask("GET", EVENTS)
    await running.stop()
    await store.close()
    store = SqliteStore(tmp_path / "dray.db")
    running = await start_server(store, ServerOptions(tmp_path))
    api = Api(running)
    assert all(isinstance(each, Packed) for each in api.stored())
    assert json.loads(await api.ask("GET", EVENTS))["items"] == json.loads(before)["items"]
    namespaces = list(running.server.core.cache(by_kind("Namespace")).list())
    assert namespaces
    assert not any(isinstance(each, Packed) for each in namespaces)
    await running.stop()
    await store.close()
