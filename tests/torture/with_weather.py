"""`python with_weather.py FILE ARGUMENTS...`: `dray ARGUMENTS...` on a machine that is as unwell as FILE says.

FILE holds a `Weather` as one line of JSON and may change at any time.

- The clock jumps. Seconds since the start stay true, as on a real machine. Only Dray's own `Clock` is wrong. TLS libraries read their
  own clock, and so does gRPC: it takes a deadline as `time.time()` plus some seconds and compares it with the machine's clock in C.
  Were the first wrong and the second right, which no machine does, every call would be late before it began.
- The disk takes long to commit what SQLite writes, or has no room for it.
- Watch events come late, and some of them twice.
"""

import asyncio
import dataclasses
import functools
import json
import os
import random
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any


@dataclasses.dataclass(frozen=True)
class Weather:
    clock_wrong_by_s: float = 0.0
    commit_takes_s: float = 0.0
    disk_is_full: bool = False
    # The share of watch events that are late, and of those that are repeated.
    events_hurt: float = 0.0

    def line(self) -> str:
        return json.dumps(dataclasses.asdict(self)) + "\n"


FINE = Weather()


class Forecast:
    """The weather in a file, looked up each time."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._text, self._weather = b"", FINE

    def __call__(self) -> Weather:
        text = os.pread(self._file, 512, 0)
        # Empty for a moment while it is written.
        if text != self._text and text.endswith(b"\n"):
            self._text, self._weather = text, Weather(**json.loads(text))
        return self._weather


def hurt_clock(weather: Forecast) -> None:
    from dray.clock import RealClock

    right_now = RealClock.now

    def now(self: RealClock) -> datetime:
        return right_now(self) + timedelta(seconds=weather().clock_wrong_by_s)

    RealClock.now = now  # type: ignore[method-assign]


def hurt_disk(weather: Forecast) -> None:
    class Hurt(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if sql == "COMMIT" and self.in_transaction:
                if weather().disk_is_full:
                    raise sqlite3.OperationalError("database or disk is full")
                time.sleep(weather().commit_takes_s)
            return super().execute(sql, *arguments)

    sqlite3.connect = functools.partial(sqlite3.connect, factory=Hurt)  # type: ignore[assignment]


def hurt_watches(weather: Forecast, chance: random.Random) -> None:
    from dray.client.https import HttpsTransport

    whole = HttpsTransport._frames

    async def frames(self: HttpsTransport, response: Any) -> AsyncIterator[bytes]:
        async for frame in whole(self, response):
            if chance.random() < weather().events_hurt:
                await asyncio.sleep(chance.uniform(0.0, 0.3))
            yield frame
            if chance.random() < weather().events_hurt:
                yield frame

    HttpsTransport._frames = frames  # type: ignore[method-assign]


if __name__ == "__main__":
    # Our folder is not a place to import from.
    del sys.path[0]
    forecast = Forecast(sys.argv.pop(1))
    hurt_clock(forecast)
    hurt_disk(forecast)
    hurt_watches(forecast, random.Random(1))
    from dray.cli.main import main

    main()
