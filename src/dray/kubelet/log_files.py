"""Log files of containers: finds the file of a container and reads what `kubectl logs` asks for.

The `process` runtime writes output as it comes. Beside such a file lies a list of (size, time) that says when each part was
written; a line on its own gets the time of its write, lines of one burst share the time of the last. CRI runtimes write
time and stream before each line."""

import asyncio
import logging
import os
import re
import shutil
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from io import SEEK_END, BufferedReader
from pathlib import Path

from dray.api.times import parse_time
from dray.atomic_files import open_private

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2


def times_file(path: Path) -> Path:
    return path.with_suffix(".times")


class LogTimesWriter:
    """Records when the log files of running containers grow."""

    def __init__(self) -> None:
        self._sizes: dict[Path, int] = {}
        self._looking: asyncio.Task[None] | None = None

    def follow(self, path: Path) -> None:
        """Starts to record a file. Output from before counts as written at the file's last write."""
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
            with open_private(times_file(path), "a") as file:
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


class LineTimes:
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


FOLLOW_EVERY_S = 0.2
CHUNK = 64 * 1024
# Lines that are read before others have their turn: a few milliseconds.
LINES_IN_A_TURN = 500


@dataclass(frozen=True, slots=True)
class LogRequest:
    """What `kubectl logs` can ask for."""

    tail_lines: int | None = None
    limit_bytes: int | None = None
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since_ns: int | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    """A line, or a part of one that was too long for its writer."""

    time_ns: int
    text: bytes
    is_continued: bool = False


def find_log(root: Path, namespace: str, pod: str, container: str, *, previous: bool) -> Path | None:
    """The newest attempt's file, or the one before it. Names are checked: no path leaves `root`."""
    if any("/" in part or part in ("", ".", "..") for part in (namespace, pod, container)):
        return None
    folders = sorted(root.glob(f"{escape(namespace)}_{escape(pod)}_*"), key=lambda each: each.stat().st_mtime)
    if not folders:
        return None
    files = sorted((folders[-1] / container).glob("[0-9]*.log"), key=lambda each: int(each.stem))
    wanted = -2 if previous else -1
    return files[wanted] if len(files) >= -wanted else None


def remove_logs_of_deleted_pods(root: Path, pod_uids: Set[str]) -> None:
    """Removes the output of pods that the API no longer has: nobody can ask for it any more."""
    for folder in root.iterdir() if root.is_dir() else ():
        if folder.name.rsplit("_", 1)[-1] not in pod_uids:
            shutil.rmtree(folder, ignore_errors=True)


def _always() -> bool:
    return True


async def read_log(
    path: Path, request: LogRequest, is_written: Callable[[], bool] = _always, *, is_cri: bool = False
) -> AsyncIterator[bytes]:
    """The asked-for part of a file, then what is added to it while it is followed and its container runs."""
    with path.open("rb") as file:
        if request.tail_lines is not None:
            _seek_to_last_lines(file, request.tail_lines)
        offset = file.tell()
        chunks = _chunks(file, request.follow, is_written)
        if is_cri:
            chunks = _printed(_cri_lines(_raw_lines(chunks, offset)), request)
        elif request.timestamps or request.since_ns is not None:
            chunks = _printed(_plain_lines(_raw_lines(chunks, offset), path), request)
        left = request.limit_bytes
        async for chunk in chunks:
            if left is not None and len(chunk) >= left:
                yield chunk[:left]
                return
            left = None if left is None else left - len(chunk)
            yield chunk


async def _chunks(file: BufferedReader, follow: bool, is_written: Callable[[], bool]) -> AsyncIterator[bytes]:
    is_last = not follow
    while True:
        chunk = file.read(CHUNK)
        if chunk:
            yield chunk
            # Whoever takes the chunks may never have to wait; others have their turn all the same.
            await asyncio.sleep(0)
        elif is_last:
            return
        elif is_written():
            await asyncio.sleep(FOLLOW_EVERY_S)
        else:
            # What was written just before the end is still to be read.
            is_last = True


async def _raw_lines(chunks: AsyncIterator[bytes], offset: int) -> AsyncIterator[tuple[int, bytes]]:
    """Lines with their line ends and where they begin; the last may have none."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for number, line in enumerate(lines, 1):
            yield offset, line + b"\n"
            offset += len(line) + 1
            if number % LINES_IN_A_TURN == 0:
                await asyncio.sleep(0)
    if rest:
        yield offset, rest


async def _plain_lines(lines: AsyncIterator[tuple[int, bytes]], path: Path) -> AsyncIterator[_Line]:
    times = LineTimes(path)
    async for offset, text in lines:
        yield _Line(times.at(offset), text)


async def _cri_lines(lines: AsyncIterator[tuple[int, bytes]]) -> AsyncIterator[_Line]:
    """`TIME STREAM TAGS TEXT`, where the tag P marks a line that goes on in the next. What is no such line is left out."""
    async for _, line in lines:
        parts = line.split(b" ", 3)
        if len(parts) != 4:
            continue
        try:
            time_ns = nanoseconds(parts[0].decode())
        except ValueError:
            continue
        is_continued = b"P" in parts[2].split(b":")
        yield _Line(time_ns, parts[3].removesuffix(b"\n") if is_continued else parts[3], is_continued)


async def _printed(lines: AsyncIterator[_Line], request: LogRequest) -> AsyncIterator[bytes]:
    begins = True
    async for line in lines:
        if request.since_ns is None or line.time_ns >= request.since_ns:
            head = f"{_timestamp(line.time_ns)} ".encode() if request.timestamps and begins else b""
            yield head + line.text
        begins = not line.is_continued


def nanoseconds(moment: str) -> int:
    """Of an RFC 3339 time, to its last digit; ValueError for anything else."""
    seconds = int(parse_time(moment).replace(microsecond=0).timestamp())
    fraction = re.search(r"\.(\d{1,9})", moment)
    return seconds * 10**9 + (int(fraction[1].ljust(9, "0")) if fraction else 0)


def _timestamp(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _seek_to_last_lines(file: BufferedReader, count: int) -> None:
    """Read backwards in blocks until `count` line ends lie behind; a line end that closes the file does not count."""
    end = file.seek(0, SEEK_END)
    if count <= 0:
        return
    position, wanted = end, count
    while position > 0:
        step = min(CHUNK, position)
        position -= step
        file.seek(position)
        block = file.read(step)
        if position + step == end and block.endswith(b"\n"):
            wanted += 1
        lines = block.count(b"\n")
        if lines >= wanted:
            found = -1
            for _ in range(lines - wanted + 1):
                found = block.find(b"\n", found + 1)
            file.seek(position + found + 1)
            return
        wanted -= lines
    file.seek(0)
