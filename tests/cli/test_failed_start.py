"""A server that cannot begin to serve ends in order: what it runs beside requests first, its store last."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.apiserver.assembly import RunningServer, ServerOptions
from dray.cli import apiserver
from dray.cli.options import Serving
from dray.store.sqlite import SqliteStore


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_the_store_is_closed_after_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def noted(kind: type, method: str) -> None:
        original = getattr(kind, method)

        async def call(self: Any) -> None:
            await original(self)
            ended.append(kind.__name__)

        monkeypatch.setattr(kind, method, call)

    noted(RunningServer, "stop")
    noted(SqliteStore, "close")

    def refuse(*_: object) -> None:
        raise PermissionError("the kubeconfig is locked")

    monkeypatch.setattr(apiserver, "_announce", refuse)
    options = ServerOptions(data=tmp_path / "data")
    serving = Serving("127.0.0.1", 0, options.data, "", None, None, options.gates, "", False, "")
    with pytest.raises(PermissionError):
        await asyncio.wait_for(apiserver._serve(options, serving), 60)
    assert ended == ["RunningServer", "SqliteStore"]
