"""A container runtime as an NRI plugin sees it: frames and calls written down from the protocol, apart from the plugin's own code.

Checked once against containerd 1.7.24, which makes the same calls in the same order (`tests/peer/test_cpus_of_containers.py`).
"""

import asyncio
import struct
from pathlib import Path

from dray.proto import nri_v1alpha1_pb2 as messages
from dray.proto import ttrpc_pb2


def nri_container(id_, **environment):
    return messages.Container(id=id_, env=[f"{name}={value}" for name, value in environment.items()])


class StandInRuntime:
    """Keeps the CPUs of its containers, as the plugin sets them."""

    def __init__(self, socket: Path, containers=()):
        self.socket = socket
        self.containers = {each.id: each for each in containers}
        self.cpus: dict[str, str] = {}
        self.being_started: set[str] = set()
        self.refuses: set[str] = set()
        self.registered = asyncio.Event()
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._stream = 1

    async def __aenter__(self):
        self._server = await asyncio.start_unix_server(self._meet, self.socket)
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.hang_up()

    def hang_up(self):
        self.registered.clear()
        if hasattr(self, "_writer"):
            self._writer.close()

    async def _meet(self, reader, writer):
        self._writer = writer
        self._tasks = [asyncio.create_task(self._read(reader))]

    async def _read(self, reader):
        while True:
            try:
                connection, size = struct.unpack(">II", await reader.readexactly(8))
                frame = await reader.readexactly(size)
            except (EOFError, OSError):
                return
            length, stream, kind, _ = struct.unpack(">IIBB", frame[:10])
            assert length == len(frame) - 10
            if connection == 1:
                assert kind == 2, "the plugin answers on the first connection"
                response = ttrpc_pb2.Response.FromString(frame[10:])
                self._answers.pop(stream).set_result(response)
            else:
                assert kind == 1, "the plugin calls on the second connection"
                self._tasks.append(asyncio.create_task(self._serve(stream, ttrpc_pb2.Request.FromString(frame[10:]))))

    async def _serve(self, stream, request):
        if request.method == "RegisterPlugin":
            self._send(2, stream, 2, ttrpc_pb2.Response())
            await self._greet()
            return
        assert request.method == "UpdateContainers"
        failed = self._apply(messages.UpdateContainersRequest.FromString(request.payload).update)
        answer = messages.UpdateContainersResponse(failed=failed)
        self._send(2, stream, 2, ttrpc_pb2.Response(payload=answer.SerializeToString()))

    async def _greet(self):
        configured = messages.ConfigureResponse.FromString(
            await self.call("Configure", messages.ConfigureRequest(runtime_name="stand-in"))
        )
        assert configured.events == 0b11001011000, "create, post create, post start, stop, remove"
        request = messages.SynchronizeRequest(containers=list(self.containers.values()))
        answer = messages.SynchronizeResponse.FromString(await self.call("Synchronize", request))
        assert not self._apply(answer.update)
        self.registered.set()

    def _apply(self, updates):
        """Updates of containers that are not there yet, or that are just starting, are lost, as with containerd."""
        for update in updates:
            if update.container_id in self.containers.keys() - self.refuses - self.being_started:
                self.cpus[update.container_id] = update.linux.resources.cpu.cpus
        return [each for each in updates if each.container_id in self.refuses]

    async def create(self, container, meanwhile=None):
        answer = messages.CreateContainerResponse.FromString(
            await self.call("CreateContainer", messages.CreateContainerRequest(container=container))
        )
        if meanwhile is not None:
            await meanwhile
        self.cpus[container.id] = answer.adjust.linux.resources.cpu.cpus
        self.containers[container.id] = container
        event = messages.StateChangeEvent(event=messages.POST_CREATE_CONTAINER, container=container)
        await self.call("StateChange", event)

    async def start(self, id_, meanwhile=None):
        self.being_started.add(id_)
        if meanwhile is not None:
            await meanwhile
        self.being_started.discard(id_)
        event = messages.StateChangeEvent(event=messages.POST_START_CONTAINER, container=self.containers[id_])
        await self.call("StateChange", event)

    async def stop(self, id_):
        await self.call("StopContainer", messages.StopContainerRequest(container=self.containers.pop(id_)))

    async def call(self, method, request):
        response = await self.call_for_status(method, request)
        assert not response.status.code, response.status.message
        return response.payload

    async def call_for_status(self, method, request):
        stream, self._stream = self._stream, self._stream + 2
        future = self._answers[stream] = asyncio.get_running_loop().create_future()
        body = ttrpc_pb2.Request(
            service="nri.pkg.api.v1alpha1.Plugin", method=method, payload=request.SerializeToString()
        )
        self._send(1, stream, 1, body)
        async with asyncio.timeout(10):
            return await future

    def _send(self, connection, stream, kind, message):
        """In two pieces: a message may be spread over several frames."""
        body = message.SerializeToString()
        frame = struct.pack(">IIBB", len(body), stream, kind, 0) + body
        for piece in (frame[:7], frame[7:]):
            self._writer.write(struct.pack(">II", connection, len(piece)) + piece)
