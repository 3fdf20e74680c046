"""Writes the output of one container to its log file, and begins another file when that one is full. Run as a program of its own, by nothing but its file.

It lives as long as something can write to the container's output, and so outlives the agent, as containers do. A container that
writes faster than the disk waits, so its log never takes more than its limits allow, whether an agent runs or not.
"""

import contextlib
import os
import sys

PIECE = 64 * 1024


def times_path(log_path: str) -> str:
    return f"{os.path.splitext(log_path)[0]}.times"


def full_files(log_path: str) -> list[str]:
    """The files that were filled before the one at `log_path`, as far as they are kept, oldest first."""
    folder, name = os.path.split(log_path)
    try:
        found = os.listdir(folder or ".")
    except OSError:
        return []
    numbers = [each.removeprefix(f"{name}.") for each in found if each.startswith(f"{name}.")]
    return [f"{log_path}.{number}" for number in sorted((each for each in numbers if each.isdecimal()), key=int)]


class RotatingLog:
    """At most `max_files` files of `max_bytes` each; a negative size is none. The newest has the log's own name, full ones a number behind it.

    The times of the lines count too, as in Kubernetes, where they stand in the log itself: a line a moment, for days, has more of them than text.
    """

    def __init__(self, path: str, max_bytes: int, max_files: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._file = -1
        self._size = 0
        self._ends_with_line = True

    def write(self, data: bytes) -> None:
        """Lines stay whole, unless one is longer than a file."""
        while data:
            self._open()
            length = self._fitting(data)
            while length:
                written = os.write(self._file, data[:length])
                self._size += written
                self._ends_with_line = data[written - 1 : written] == b"\n"
                data, length = data[written:], length - written
            if data:
                self._begin_another()

    def _fitting(self, data: bytes) -> int:
        if self._max_bytes < 0:
            return len(data)
        room = max(0, self._max_bytes - self._size - self._size_of_times())
        if len(data) <= room:
            return len(data)
        lines = data.rfind(b"\n", 0, room) + 1
        return lines or (0 if self._size and self._ends_with_line else room)

    def _size_of_times(self) -> int:
        if not self._size:
            return 0
        try:
            return os.stat(times_path(self._path)).st_size
        except OSError:
            return 0

    def _open(self) -> None:
        if self._file != -1:
            return
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size
        self._ends_with_line = not self._size or os.pread(self._file, 1, self._size - 1) == b"\n"

    def _begin_another(self) -> None:
        self.close()
        full = full_files(self._path)
        # With the one that is full now and the one that follows they are `max_files`.
        for each in full[: max(0, len(full) - self._max_files + 2)]:
            os.unlink(each)
        number = int(full[-1].rpartition(".")[2]) + 1 if full else 1
        os.link(self._path, f"{self._path}.{number}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(times_path(self._path))
        # There is a file of this name at any moment, for those who ask for the log.
        empty = f"{self._path}.new"
        os.close(os.open(empty, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        os.rename(empty, self._path)

    def close(self) -> None:
        if self._file != -1:
            os.close(self._file)
            self._file = -1


def main() -> None:
    path, max_bytes, max_files = sys.argv[1:]
    output = RotatingLog(path, int(max_bytes), int(max_files))
    while data := os.read(0, PIECE):
        # A container does not end because its log cannot be written: the disk may be full, or the log removed with the pod.
        with contextlib.suppress(OSError):
            output.write(data)


if __name__ == "__main__":
    main()
