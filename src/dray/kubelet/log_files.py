"""Log files of containers: finds the file of a container and reads what `kubectl logs` asks for.

A log that is full goes on in another file (`runtime/log_writer.py`): what is asked for comes from the newest one, as with a kubelet, and
whoever follows sees each of them to its end. The `process` runtime writes output as it comes. Beside such a file lies a list of (size, time) that says when each part was
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
from dray.kubelet.runtime.log_writer import full_files, times_path

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2
# Two numbers of 64 bits with what is between and behind them.
LONGEST_TIME = 42


def times_file(path: Path) -> Path:
    return Path(times_path(str(path)))


class LogTimesWriter:
    """Records when the log files of running containers grow."""

    def __init__(self) -> None:
        # The file behind the name, and the size that was recorded last.
        self._sizes: dict[Path, tuple[int, int]] = {}
        self._looking: asyncio.Task[None] | None = None

    def follow(self, path: Path) -> None:
        """Starts to record a file. Output from before counts as written at the file's last write."""
        self._sizes[path] = (_inode(path), _recorded_size(path))
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
            inode, size = self._sizes[path]
            is_same = status.st_ino == inode and status.st_size >= size
            if status.st_size <= (size if is_same else 0):
                return
            with open_private(times_file(path), "a") as file:
                file.write(f"{status.st_size} {status.st_mtime_ns}\n")
            self._sizes[path] = (status.st_ino, status.st_size)
        except OSError as error:
            log.debug("times of %s: %s", path, error)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _recorded_size(path: Path) -> int:
    """From the end of the list alone: it may be longer than the log."""
    try:
        with times_file(path).open("rb") as file:
            file.seek(max(0, file.seek(0, SEEK_END) - 2 * LONGEST_TIME))
            *_, last = file.read().splitlines() or [b""]
    except OSError:
        return 0
    size = last.partition(b" ")[0]
    return int(size) if size.isdigit() else 0


def read_times(path: Path) -> list[tuple[int, int]]:
    """(size, time in ns), growing: what comes before a smaller size was recorded of the file before this one."""
    found: list[tuple[int, int]] = []
    _read_on(path, 0, found)
    return found


def _read_on(path: Path, offset: int, found: list[tuple[int, int]]) -> int:
    """Adds what stands from `offset` on to `found`, and returns where the next line begins."""
    try:
        with times_file(path).open("rb") as file:
            file.seek(offset)
            content = file.read()
    except OSError:
        return offset
    lines, end, _ = content.rpartition(b"\n")
    for line in lines.splitlines():
        size, _, time_ns = line.partition(b" ")
        if size.isdigit() and time_ns.isdigit():
            if found and int(size) < found[-1][0]:
                found.clear()
            found.append((int(size), int(time_ns)))
    return offset + len(lines) + len(end)


class LineTimes:
    """The time of each line of one open file, also of lines that come while it is read."""

    def __init__(self, path: Path, file: BufferedReader) -> None:
        self._path = path
        self._file = file
        self._times: list[tuple[int, int]] = []
        self._length = 0

    def at(self, offset: int) -> int:
        """When the byte at `offset` was written, in ns."""
        if not self._times or self._times[-1][0] <= offset:
            self.read_on()
        index = bisect_right(self._times, offset, key=lambda each: each[0])
        return self._times[index][1] if index < len(self._times) else os.fstat(self._file.fileno()).st_mtime_ns

    def read_on(self) -> None:
        """Only what was added to the list, as there may be thousands of lines behind its end; never that of the file that came after this one."""
        try:
            length = times_file(self._path).stat().st_size
        except OSError:
            return
        if length > self._length and _inode(self._path) == os.fstat(self._file.fileno()).st_ino:
            self._length = _read_on(self._path, self._length, self._times)


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
    """The asked-for part of a file, then what is added to it and to those after it while they are followed and the container runs."""
    has_lines = is_cri or request.timestamps or request.since_ns is not None
    parts = _files(path, request, is_written)
    chunks = _printed(_lines(parts, path, is_cri=is_cri), request) if has_lines else _plain(parts)
    left = request.limit_bytes
    async for chunk in chunks:
        if left is not None and len(chunk) >= left:
            yield chunk[:left]
            return
        left = None if left is None else left - len(chunk)
        yield chunk


_Part = tuple[BufferedReader, AsyncIterator[bytes]]


async def _files(path: Path, request: LogRequest, is_written: Callable[[], bool]) -> AsyncIterator[_Part]:
    """Each file, open and at its place, with what is to be read from it."""
    file: BufferedReader | None = path.open("rb")
    assert file is not None
    end = file.seek(0, SEEK_END)
    if request.tail_lines is None:
        file.seek(0)
    else:
        _seek_to_last_lines(file, end, request.tail_lines)
    if not request.follow:
        with file:
            yield file, _chunks_before(file, end)
        return
    while file is not None:
        with file:
            yield file, _chunks(file, path, is_written)
            file = _file_after(file, path)


async def _plain(parts: AsyncIterator[_Part]) -> AsyncIterator[bytes]:
    async for _, chunks in parts:
        async for chunk in chunks:
            yield chunk


async def _lines(parts: AsyncIterator[_Part], path: Path, *, is_cri: bool) -> AsyncIterator[_Line]:
    async for file, chunks in parts:
        lines = _raw_lines(chunks, file.tell())
        async for line in _cri_lines(lines) if is_cri else _plain_lines(lines, LineTimes(path, file)):
            yield line


async def _chunks_before(file: BufferedReader, end: int) -> AsyncIterator[bytes]:
    """What is written meanwhile was not asked for: it would be more lines than were asked for, and without end from a container in a hurry."""
    while chunk := file.read(max(0, min(CHUNK, end - file.tell()))):
        yield chunk
        await asyncio.sleep(0)


async def _chunks(file: BufferedReader, path: Path, is_written: Callable[[], bool]) -> AsyncIterator[bytes]:
    is_last = False
    while True:
        chunk = file.read(CHUNK)
        if chunk:
            yield chunk
            # Whoever takes the chunks may never have to wait; others have their turn all the same.
            await asyncio.sleep(0)
        elif is_last:
            return
        elif is_written() and not _is_full(file, path):
            await asyncio.sleep(FOLLOW_EVERY_S)
        else:
            # What was written just before the end is still to be read.
            is_last = True


def _is_full(file: BufferedReader, path: Path) -> bool:
    """Whether another file has its name: nothing more comes into this one."""
    return _inode(path) not in (0, os.fstat(file.fileno()).st_ino)


def _file_after(file: BufferedReader, path: Path) -> BufferedReader | None:
    """The file that was begun when this one was full; the oldest of those that are kept if it is no longer there."""
    while _is_full(file, path):
        names = [*map(Path, full_files(str(path))), path]
        inodes = [_inode(each) for each in names]
        own = os.fstat(file.fileno()).st_ino
        index = inodes.index(own) + 1 if own in inodes else 0
        if index == len(names):
            continue
        try:
            found = names[index].open("rb")
        except FileNotFoundError:
            continue
        if os.fstat(found.fileno()).st_ino == inodes[index]:
            return found
        # It has been renamed just now.
        found.close()
    return None


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


async def _plain_lines(lines: AsyncIterator[tuple[int, bytes]], times: LineTimes) -> AsyncIterator[_Line]:
    # There may be hundreds of thousands.
    await asyncio.to_thread(times.read_on)
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


def _seek_to_last_lines(file: BufferedReader, end: int, count: int) -> None:
    """Read backwards in blocks from `end` until `count` line ends lie behind; a line end that closes the file does not count."""
    if count <= 0:
        file.seek(end)
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
