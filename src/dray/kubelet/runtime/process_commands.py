"""Commands beside the one of a container (`kubectl exec`), and connections to its ports: in its namespaces, as its user, with its variables.

Imported when the first one comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import pty
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dray.http.tunnel import MAX_HELD, first_of
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.isolation import CLEAN_ENVIRONMENT, START
from dray.kubelet.streams.command_streams import CommandStreams

CLONE_NEWNET = 0x40000000
# How long output may still come after the command has ended: a child of it may keep the pipe open for ever.
DRAIN_S = 1.0
CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """Where the command of a container runs. `uid` is that of an isolated pod."""

    pid: int
    environment: Mapping[str, str]
    working_dir: str
    uid: int | None = None
    own_network: bool = False
    # Of the container's cgroup; a process that writes its number there is in it.
    cgroup_file: str = ""
    cpuset_file: str = ""
    cpus: tuple[int, ...] = ()


async def run_command(place: ContainerPlace, command: Sequence[str], streams: CommandStreams) -> int:
    """The exit code. ContainerError if the command cannot be started, or the container ends before it."""
    program = shutil.which(command[0], path=place.environment.get("PATH"))
    if program is None:
        raise ContainerError("ExecError", f'exec: "{command[0]}": executable file not found in $PATH')
    start = _start(place, [program, *command[1:]])
    run = _run_on_terminal if streams.options.tty else _run_on_pipes
    ended: list[int] = []

    async def command_end() -> None:
        ended.append(await run(place, start, streams))

    await first_of(command_end(), _gone(place.pid))
    if not ended:
        raise ContainerError("ExecError", "the container has ended")
    return ended[0]


# --- starting


@dataclass(frozen=True, slots=True)
class _CommandStart:
    argv: list[str]
    environment: Mapping[str, str]
    # Read from a descriptor of its own by the program that gives up root.
    told: bytes = b""


def joined(pid: int, wanted: Mapping[str, Any], *, own_network: bool) -> tuple[list[str], bytes]:
    """A command in the namespaces of an isolated container: the program that becomes it, and what that program is told."""
    inside = namespaced_process(pid, "pid")
    if inside is None:
        raise ContainerError("ExecError", "the container is not running")
    network = ["--net"] if own_network else []
    argv = [*_nsenter(inside, "--mount", "--pid", *network), sys.executable, "-I", "-S", str(START)]
    return argv, json.dumps({**wanted, "joins": True}).encode()


def _start(place: ContainerPlace, command: list[str]) -> _CommandStart:
    if place.uid is None:
        inside = namespaced_process(place.pid, "mnt")
        in_folder = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', place.working_dir, *command]
        argv = in_folder if inside is None else [*_nsenter(inside, "--mount"), *in_folder]
        return _CommandStart(argv, place.environment)
    wanted = {
        "command": command,
        "env": dict(place.environment),
        "workingDir": place.working_dir,
        "uid": place.uid,
    }
    argv, told = joined(place.pid, wanted, own_network=place.own_network)
    return _CommandStart(argv, CLEAN_ENVIRONMENT, told)


def _nsenter(pid: int, *namespaces: str) -> list[str]:
    program = shutil.which("nsenter", path=CLEAN_ENVIRONMENT["PATH"])
    if program is None:
        raise ContainerError(
            "ExecError", "there is no nsenter on this machine, which enters the container's namespaces"
        )
    return [program, "--target", str(pid), *namespaces, "--"]


def namespaced_process(pid: int, name: str) -> int | None:
    """The first process at or below this one in a namespace of its own (mnt, pid, net); None where the container has the machine's."""
    try:
        if _namespace(pid, name) != _namespace("self", name):
            return pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    found = (namespaced_process(int(child), name) for child in children)
    return next((each for each in found if each is not None), None)


def _namespace(pid: int | str, name: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{name}")


def _popen(
    place: ContainerPlace, start: _CommandStart, stdio: tuple[int, int, int], *, terminal: bool
) -> subprocess.Popen[bytes]:
    """Starts the command as the leader of a session of its own, in the container's cgroup."""
    told, tell = os.pipe()
    try:
        argv = [*start.argv, str(told)] if start.told else start.argv
        process = subprocess.Popen(
            argv,
            stdin=stdio[0],
            stdout=stdio[1],
            stderr=stdio[2],
            env=dict(start.environment),
            cwd="/",
            start_new_session=True,
            pass_fds=[told] if start.told else [],
            preexec_fn=lambda: _become_part(place, terminal=terminal),
        )
        # It reads all of this before it does anything else, and pipes hold 64 KiB: more goes when there is room.
        os.close(told)
        told = -1
        with open(tell, "wb", closefd=False) as pipe:
            pipe.write(start.told)
        return process
    except BrokenPipeError:
        return process
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ContainerError("ExecError", f"{start.argv[0]}: {error}") from error
    finally:
        os.close(tell)
        if told != -1:
            os.close(told)


def _become_part(place: ContainerPlace, *, terminal: bool) -> None:
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if place.cpus:
        os.sched_setaffinity(0, place.cpus)
    for file in filter(None, (place.cgroup_file, place.cpuset_file)):
        with contextlib.suppress(OSError):
            Path(file).write_text("0")


# --- running


async def _run_on_pipes(place: ContainerPlace, start: _CommandStart, streams: CommandStreams) -> int:
    stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
    ours, theirs = (stdin[1], stdout[0], stderr[0]), (stdin[0], stdout[1], stderr[1])
    try:
        process = _popen(place, start, theirs, terminal=False)
    except ContainerError:
        for descriptor in ours:
            os.close(descriptor)
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    outputs = [_Reader(stdout[0], streams.write_stdout), _Reader(stderr[0], streams.write_stderr)]
    return await _run(process, _Writer(stdin[1], ends=True), outputs, streams)


async def _run_on_terminal(place: ContainerPlace, start: _CommandStart, streams: CommandStreams) -> int:
    master, slave = pty.openpty()
    try:
        if place.uid is not None:
            os.fchown(slave, place.uid, -1)
        process = _popen(place, start, (slave, slave, slave), terminal=True)
    except (ContainerError, OSError):
        os.close(master)
        raise
    finally:
        os.close(slave)
    sizes = asyncio.create_task(_follow_sizes(os.dup(master), streams))
    try:
        writer = _Writer(os.dup(master), ends=False)
        return await _run(process, writer, [_Reader(master, streams.write_stdout)], streams)
    finally:
        sizes.cancel()
        await asyncio.gather(sizes, return_exceptions=True)


async def _run(
    process: subprocess.Popen[bytes], writer: _Writer, outputs: list[_Reader], streams: CommandStreams
) -> int:
    feeding = asyncio.create_task(writer.run(streams))
    reading = [asyncio.create_task(each.run()) for each in outputs]
    try:
        await _gone(process.pid)
        code = process.wait()
        await _drain(reading, streams)
        return 128 - code if code < 0 else code
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for task in (feeding, *reading):
            task.cancel()
        await asyncio.gather(feeding, *reading, return_exceptions=True)
        await asyncio.to_thread(process.wait)


async def _drain(reading: list[asyncio.Task[None]], streams: CommandStreams) -> None:
    """Waits for the rest of the output, for as long as it comes or the client has not taken it."""
    while True:
        before = streams.active_at
        _, late = await asyncio.wait(reading, timeout=DRAIN_S)
        if not late or (streams.active_at == before and not streams.writing):
            return


async def _follow_sizes(terminal: int, streams: CommandStreams) -> None:
    try:
        while (size := await streams.next_size()) is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    finally:
        os.close(terminal)


async def _gone(pid: int) -> None:
    """Waits for the end of a process, whoever its parent is; reaps nothing."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await _ready(descriptor, writing=False)
    finally:
        os.close(descriptor)


async def _ready(descriptor: int, *, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)


class _Reader:
    """Passes on what comes from a pipe or terminal, a piece at a time."""

    def __init__(self, descriptor: int, sink: Callable[[bytes], Awaitable[None]]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._sink = sink

    async def run(self) -> None:
        try:
            while data := await self._piece():
                await self._sink(data)
        finally:
            os.close(self._descriptor)

    async def _piece(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, MAX_HELD)
            except BlockingIOError:
                await _ready(self._descriptor, writing=False)
            except OSError:  # a terminal whose last process has ended
                return b""


class _Writer:
    """Passes the client's input on. At its end a pipe is closed, and a terminal is not: its processes end by themselves."""

    def __init__(self, descriptor: int, *, ends: bool) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._ends = ends

    async def run(self, streams: CommandStreams) -> None:
        try:
            while data := await streams.read_stdin():
                await self._write(data)
            if not self._ends:
                await asyncio.get_running_loop().create_future()
        except OSError:  # the command reads no more
            pass
        finally:
            os.close(self._descriptor)

    async def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                await _ready(self._descriptor, writing=True)


# --- ports


async def connect_to_port(pid: int, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To localhost, in the network of the container with this process."""
    thread = ThreadPoolExecutor(1)
    try:
        inside = namespaced_process(pid, "net") or pid
        found = await asyncio.get_running_loop().run_in_executor(thread, _connected_socket, inside, port)
    finally:
        thread.shutdown(wait=False)
    return await asyncio.open_connection(sock=found)


def _connected_socket(pid: int, port: int) -> socket.socket:
    """Runs in a thread of its own: only that thread enters the network, and it ends afterwards."""
    if _namespace("self", "net") != _namespace(pid, "net"):
        with open(f"/proc/{pid}/ns/net") as network:
            _enter_network(network.fileno())
    return _connect(port)


def _connect(port: int) -> socket.socket:
    try:
        return socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT_S)
    except OSError as first:
        try:
            return socket.create_connection(("::1", port), CONNECT_TIMEOUT_S)
        except OSError:
            raise first from None


def _enter_network(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the pod's network cannot be entered: {os.strerror(number)}")
