"""When lines of a container's output were written, for output that goes straight from the process into a file.

Beside the file lies a list of (size, time): up to this size the file had grown when it was last written to. It is kept by
looking at the files that grow; a line on its own gets the time of its write, lines of one burst share the time of the last.
"""

import asyncio
import logging
import os
from bisect import bisect_right
from pathlib import Path

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2


def times_file(path: Path) -> Path:
    return path.with_suffix(".times")


class LogTimes:
    """Watches the files of running containers."""

    def __init__(self) -> None:
        self._sizes: dict[Path, int] = {}
        self._looking: asyncio.Task[None] | None = None

    def follow(self, path: Path) -> None:
        """From now on; what was written while nobody looked counts as written at its last write."""
        known = read_times(path)
        self._sizes[path] = known[-1][0] if known else 0
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_ever(), name="times of log lines")

    def unfollow(self, path: Path) -> None:
        if path in self._sizes:
            self.look_at(path)
            del self._sizes[path]

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look_for_ever(self) -> None:
        while self._sizes:
            await asyncio.sleep(LOOK_EVERY_S)
            for path in list(self._sizes):
                self.look_at(path)

    def look_at(self, path: Path) -> None:
        try:
            status = os.stat(path)
            if status.st_size <= self._sizes[path]:
                return
            with times_file(path).open("a") as file:
                file.write(f"{status.st_size} {status.st_mtime_ns}\n")
            self._sizes[path] = status.st_size
        except OSError as error:
            log.debug("times of %s: %s", path, error)


def read_times(path: Path) -> list[tuple[int, int]]:
    """(size, time in ns), growing."""
    try:
        lines = times_file(path).read_text().splitlines()
    except OSError:
        return []
    pairs = (line.split() for line in lines)
    return [(int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2 and all(part.isdigit() for part in pair)]


class TimesOfLines:
    """The time of each line of one file, also of lines that come while it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._times: list[tuple[int, int]] = []

    def at(self, offset: int) -> int:
        """When the byte at `offset` was written, in ns."""
        if not self._times or self._times[-1][0] <= offset:
            self._times = read_times(self._path)
        index = bisect_right(self._times, offset, key=lambda each: each[0])
        return self._times[index][1] if index < len(self._times) else os.stat(self._path).st_mtime_ns
