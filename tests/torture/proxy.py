"""A TCP proxy on loopback that cuts, delays and holds back what passes through it."""

from __future__ import annotations

import asyncio
import contextlib

CHUNK = 64 * 1024


class Proxy:
    """Between one component and its servers. It sees bytes only: TLS goes through untouched.

    Each connection goes to one of the targets, and to another if that one does not listen, as a load balancer would do it.
    """

    def __init__(self, *target_ports: int, host: str = "127.0.0.1") -> None:
        self._host = host
        self._target_ports = list(target_ports)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._delay_s = 0.0
        self.port = 0
        self.connections = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- faults

    def cut(self) -> None:
        """Break every connection, in the middle of whatever it carries."""
        for writer in list(self._writers):
            writer.transport.abort()

    def delay(self, seconds: float) -> None:
        """Every piece takes so much longer, in both directions."""
        self._delay_s = seconds

    def hold(self) -> None:
        """Nothing passes, and nobody is told: as if the cable were pulled."""
        self._flows.clear()

    def heal(self) -> None:
        self._delay_s = 0.0
        self._flows.set()

    # --- passing on

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The stream server logs a cancelled handler as an error; here it is the usual end.
        with contextlib.suppress(asyncio.CancelledError):
            await self._connect(reader, writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._flows.wait()
            upstream = await self._reach()
            if upstream is None:
                writer.transport.abort()
                return
            self._writers |= {writer, upstream[1]}
            both = [
                asyncio.create_task(self._pass(reader, upstream[1])),
                asyncio.create_task(self._pass(upstream[0], writer)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in both:
                    each.cancel()
                await asyncio.gather(*both, return_exceptions=True)
                self._writers -= {writer, upstream[1]}
                for each_writer in (writer, upstream[1]):
                    each_writer.close()
        finally:
            self._tasks.discard(task)

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """The next target that listens; they take turns."""
        for _ in self._target_ports:
            port = self._target_ports[0]
            self._target_ports.append(self._target_ports.pop(0))
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(self._host, port)
        return None

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._flows.wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                writer.write(data)
                await writer.drain()
