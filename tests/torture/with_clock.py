"""`python with_clock.py FILE ARGUMENTS...`: `dray ARGUMENTS...` on a machine whose wall clock is wrong by the seconds in FILE.

The file may change at any time: the clock jumps. Seconds since the start stay true, as on a real machine. Only Dray's own
`Clock` is wrong. TLS libraries read their own clock, and so does gRPC: it takes a deadline as `time.time()` plus some seconds
and compares it with the machine's clock in C. Were the first wrong and the second right, which no machine does, every call
would be late before it began.
"""

import os
import sys
from datetime import datetime, timedelta


class WrongBy:
    """The seconds in a file, read anew each time."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._last = 0.0

    def __call__(self) -> float:
        text = os.pread(self._file, 64, 0)
        # Empty for a moment while it is written.
        if text.endswith(b"\n"):
            self._last = float(text)
        return self._last


def make_wrong(wrong_by_s: WrongBy) -> None:
    from dray.clock import RealClock

    right_now = RealClock.now

    def now(self: RealClock) -> datetime:
        return right_now(self) + timedelta(seconds=wrong_by_s())

    RealClock.now = now  # type: ignore[method-assign]


if __name__ == "__main__":
    # Our folder is not a place to import from.
    del sys.path[0]
    file = sys.argv.pop(1)
    make_wrong(WrongBy(file))
    from dray.cli.main import main

    main()
