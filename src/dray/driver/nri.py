"""A plugin of a container runtime (NRI): sets CPUs, memory nodes and huge pages of containers before they start, and changes them later.

A driver gives a rule: what a container gets, by its environment. The plugin asks the rule for each container that the runtime
creates, for all containers when it meets the runtime, and again whenever the driver says that its answers changed. CDI files
cannot say such things, and a driver that wrote to the containers' cgroups behind the runtime's back would come too late for new containers.

The runtime speaks ttrpc over one socket that carries two connections: on the first it calls the plugin, on the second the
plugin calls the runtime.
"""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dray.proto import nri_v1alpha1_pb2 as messages
from dray.proto import ttrpc_pb2

log = logging.getLogger(__name__)

PLUGIN_CONNECTION, RUNTIME_CONNECTION = 1, 2
REQUEST, RESPONSE = 1, 2
MOST_BYTES = (4 << 20) + 10
UNIMPLEMENTED = 12
CALL_TIMEOUT_S = 10.0
CONNECT_AGAIN_AFTER_S = 1.0
TRIES, TRY_AGAIN_AFTER_S = 5, 0.3
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
# Some versions of the runtime have a call of its own for an event, others send it with StateChange.
_EVENT_OF_METHOD = {
    "PostCreateContainer": "POST_CREATE_CONTAINER",
    "PostStartContainer": "POST_START_CONTAINER",
    "StopContainer": "STOP_CONTAINER",
    "RemoveContainer": "REMOVE_CONTAINER",
}
EVENTS = ("CREATE_CONTAINER", "POST_CREATE_CONTAINER", "POST_START_CONTAINER", "STOP_CONTAINER", "REMOVE_CONTAINER")

Resources = messages.LinuxResources
Rule = Callable[[Mapping[str, str]], Resources]
"""What a container with this environment gets; fields that are not set stay as they are."""


class RuntimeUnreachable(Exception):
    """The container runtime cannot be told, or does not do it: the text says why."""


class NriPlugin:
    """`run` keeps up the connection; `apply` brings all containers in line with the rule."""

    def __init__(self, socket: Path, name: str, rule: Rule, index: str = "50") -> None:
        self._socket = socket
        self._name = name
        self._index = index
        self._rule = rule
        self._connection: _Connection | None = None
        self._has_synchronized = False
        self._environments: dict[str, Mapping[str, str]] = {}
        # What containers got last, and what they were created with. The runtime loses updates of a container that it is still
        # creating, and of one that it is just starting.
        self._told: dict[str, bytes] = {}
        self._created_with: dict[str, bytes] = {}
        self._being_created: set[str] = set()
        self._catching_up: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until cancelled. The runtime may come later, go, and come again."""
        has_complained = False
        while True:
            try:
                await self._serve()
            except (OSError, EOFError, RuntimeUnreachable) as error:
                if not has_complained or self._has_synchronized:
                    log.warning("container runtime at %s: %s; its containers are not watched now", self._socket, error)
                has_complained = True
            self._has_synchronized = False
            await asyncio.sleep(CONNECT_AGAIN_AFTER_S)

    async def apply(self) -> None:
        """Tells the runtime what changed for its containers; RuntimeUnreachable if that is not in force afterwards."""
        for attempt in range(TRIES):
            if attempt:
                # A container that has ended meanwhile is refused until the runtime has told us of its end.
                await asyncio.sleep(TRY_AGAIN_AFTER_S)
            if not self._has_synchronized or self._connection is None:
                continue
            failed = await self._update(self._changes())
            if not failed:
                return
        if not self._has_synchronized:
            raise RuntimeUnreachable(f"the container runtime at {self._socket} is not connected")
        raise RuntimeUnreachable(
            f"the container runtime could not change {len(failed)} containers: {', '.join(failed)}"
        )

    async def _update(self, changes: Mapping[str, Resources]) -> list[str]:
        if not changes:
            return []
        assert self._connection is not None
        request = messages.UpdateContainersRequest(update=[_update_of(*each) for each in changes.items()])
        answer = messages.UpdateContainersResponse()
        answer.ParseFromString(await self._connection.call(RUNTIME_SERVICE, "UpdateContainers", request))
        failed = {each.container_id for each in answer.failed}
        for id_, resources in changes.items():
            if id_ in self._environments and id_ not in failed | self._being_created:
                self._told[id_] = _bytes(resources)
        return sorted(failed & set(self._environments))

    def _changes(self) -> dict[str, Resources]:
        wanted = {id_: self._rule(environment) for id_, environment in self._environments.items()}
        return {id_: resources for id_, resources in wanted.items() if self._told.get(id_) != _bytes(resources)}

    # --- one connection

    async def _serve(self) -> None:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        for known in (self._environments, self._told, self._created_with, self._being_created):
            known.clear()
        connection = self._connection = _Connection(reader, writer)
        answering = asyncio.create_task(connection.answer(self._answer), name=f"NRI plugin {self._name}")
        try:
            request = messages.RegisterPluginRequest(plugin_name=self._name, plugin_idx=self._index)
            await connection.call(RUNTIME_SERVICE, "RegisterPlugin", request)
            await answering
        finally:
            self._connection = None
            for task in (answering, *self._catching_up):
                task.cancel()
            await asyncio.gather(answering, *self._catching_up, return_exceptions=True)
            writer.close()

    def _answer(self, method: str, payload: bytes) -> Any:
        """The answer to a call of the runtime; None for one that this plugin does not know."""
        if method == "Configure":
            events = sum(1 << (messages.Event.Value(name) - 1) for name in EVENTS)
            return messages.ConfigureResponse(events=events)
        if method == "Synchronize":
            return self._synchronize(_read(messages.SynchronizeRequest, payload))
        if method == "CreateContainer":
            return self._create(_read(messages.CreateContainerRequest, payload).container)
        if method == "StateChange":
            event = _read(messages.StateChangeEvent, payload)
            self._see(messages.Event.Name(event.event), event.container.id)
        elif method in _EVENT_OF_METHOD:
            # All requests about one container look the same.
            self._see(_EVENT_OF_METHOD[method], _read(messages.StopContainerRequest, payload).container.id)
        elif method != "Shutdown":
            return None
        return messages.Empty()

    def _synchronize(self, request: Any) -> Any:
        """A runtime with many containers sends them in parts."""
        for container in request.containers:
            self._environments[container.id] = _environment(container)
        if request.more:
            return messages.SynchronizeResponse(more=True)
        wanted = {id_: self._rule(environment) for id_, environment in self._environments.items()}
        self._told = {id_: _bytes(resources) for id_, resources in wanted.items()}
        self._has_synchronized = True
        log.info("container runtime at %s: connected, with %d containers", self._socket, len(wanted))
        return messages.SynchronizeResponse(update=[_update_of(*each) for each in wanted.items()])

    def _create(self, container: Any) -> Any:
        environment = _environment(container)
        resources = self._rule(environment)
        self._environments[container.id] = environment
        self._told[container.id] = self._created_with[container.id] = _bytes(resources)
        self._being_created.add(container.id)
        linux = messages.LinuxContainerAdjustment(resources=resources)
        return messages.CreateContainerResponse(adjust=messages.ContainerAdjustment(linux=linux))

    def _see(self, event: str, id_: str) -> None:
        self._being_created.discard(id_)
        if event in ("STOP_CONTAINER", "REMOVE_CONTAINER"):
            for known in (self._environments, self._told, self._created_with):
                known.pop(id_, None)
            return
        if event == "POST_START_CONTAINER" and self._told.get(id_) != self._created_with.pop(id_, None):
            self._told.pop(id_, None)
        if id_ in self._changes():
            self._catch_up()

    def _catch_up(self) -> None:
        """Afterwards: the runtime takes no calls before its own one is answered."""
        task = asyncio.create_task(self._apply_or_log(), name=f"NRI plugin {self._name} catches up")
        self._catching_up.add(task)
        task.add_done_callback(self._catching_up.discard)

    async def _apply_or_log(self) -> None:
        try:
            await self.apply()
        except RuntimeUnreachable as error:
            log.error("%s", error)


def _environment(container: Any) -> dict[str, str]:
    return dict(entry.partition("=")[::2] for entry in container.env)


def _update_of(id_: str, resources: Resources) -> Any:
    return messages.ContainerUpdate(container_id=id_, linux=messages.LinuxContainerUpdate(resources=resources))


def _bytes(resources: Resources) -> bytes:
    return bytes(resources.SerializeToString(deterministic=True))


def _read(kind: Any, payload: bytes) -> Any:
    message = kind()
    message.ParseFromString(payload)
    return message


# --- ttrpc over a socket that carries several connections ----------------------------------------------------------------


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._streams = 1
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def call(self, service: str, method: str, request: Any) -> bytes:
        """The answer's payload; RuntimeUnreachable if the other side refuses or is gone."""
        stream, self._streams = self._streams, self._streams + 2
        answer = self._waiting[stream] = asyncio.get_running_loop().create_future()
        body = ttrpc_pb2.Request(
            service=service,
            method=method,
            payload=request.SerializeToString(),
            timeout_nano=int(CALL_TIMEOUT_S * 1_000_000_000),
        )
        try:
            self._send(RUNTIME_CONNECTION, stream, REQUEST, body.SerializeToString())
            async with asyncio.timeout(CALL_TIMEOUT_S):
                payload: bytes = await answer
                return payload
        except (TimeoutError, OSError) as error:
            raise RuntimeUnreachable(f"{method}: {error or 'no answer'}") from error
        finally:
            del self._waiting[stream]

    async def answer(self, handle: Callable[[str, bytes], Any]) -> None:
        """Answers the other side's calls, in their order, and hands its answers to those who wait."""
        try:
            async for connection, stream, kind, body in self._messages():
                if connection == PLUGIN_CONNECTION and kind == REQUEST:
                    self._send(PLUGIN_CONNECTION, stream, RESPONSE, _answer_of(handle, body))
                elif connection == RUNTIME_CONNECTION and kind == RESPONSE and stream in self._waiting:
                    _resolve(self._waiting[stream], _read(ttrpc_pb2.Response, body))
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(RuntimeUnreachable("the connection ended"))

    def _send(self, connection: int, stream: int, kind: int, body: bytes) -> None:
        frame = struct.pack(">IIBB", len(body), stream, kind, 0) + body
        self._writer.write(struct.pack(">II", connection, len(frame)) + frame)

    async def _messages(self) -> AsyncIterator[tuple[int, int, int, bytes]]:
        buffers: dict[int, bytearray] = {}
        while True:
            connection, size = struct.unpack(">II", await self._reader.readexactly(8))
            if size > MOST_BYTES:
                raise RuntimeUnreachable(f"a frame of {size} bytes: at most {MOST_BYTES} are allowed")
            buffer = buffers.setdefault(connection, bytearray())
            buffer += await self._reader.readexactly(size)
            for message in _complete_messages(buffer):
                yield connection, *message


def _complete_messages(buffer: bytearray) -> Iterable[tuple[int, int, bytes]]:
    """Takes whole messages off the buffer's front."""
    while len(buffer) >= 10:
        size, stream, kind, _ = struct.unpack(">IIBB", buffer[:10])
        if size > MOST_BYTES:
            raise RuntimeUnreachable(f"a message of {size} bytes: at most {MOST_BYTES} are allowed")
        if len(buffer) < 10 + size:
            return
        body = bytes(buffer[10 : 10 + size])
        del buffer[: 10 + size]
        yield stream, kind, body


def _answer_of(handle: Callable[[str, bytes], Any], body: bytes) -> bytes:
    request = _read(ttrpc_pb2.Request, body)
    answer = handle(request.method, request.payload)
    if answer is None:
        status = ttrpc_pb2.Status(code=UNIMPLEMENTED, message=f"{request.method} is not known")
        return bytes(ttrpc_pb2.Response(status=status).SerializeToString())
    return bytes(ttrpc_pb2.Response(payload=answer.SerializeToString()).SerializeToString())


def _resolve(waiting: asyncio.Future[bytes], response: Any) -> None:
    if waiting.done():
        return
    if response.status.code:
        waiting.set_exception(RuntimeUnreachable(response.status.message))
    else:
        waiting.set_result(response.payload)
