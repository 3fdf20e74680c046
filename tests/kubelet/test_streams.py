"""Commands in running containers and connections to their ports, over WebSocket and SPDY, on the process runtime."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock
from urllib.parse import urlencode

import aiohttp
import pytest

from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.clock import RealClock
from dray.http.connection import HttpRequest, Peer
from dray.http.responses import Response
from dray.http.server import HttpServer
from dray.http.spdy import SpdySession
from dray.http.tunnel import StreamPair
from dray.http.upgrade_client import UpgradeRequest, request_upgrade
from dray.kubelet.errors import ContainerError
from dray.kubelet.log_server import LogServer, LogSource
from dray.kubelet.runtime import cri_streams
from dray.kubelet.runtime.interface import ContainerSpec, RunningContainer
from dray.kubelet.runtime.isolation import Isolation, available_isolation
from dray.kubelet.runtime.none import NoRuntime
from dray.kubelet.runtime.process import ProcessRuntime
from dray.kubelet.streams.command_streams import CommandStreams, SpdyStreams, Status, StreamOptions
from dray.kubelet.streams.node_streams import NodeStreams, StreamTarget
from tests.kubelet.test_process_runtime import a_spec
from tests.waiting import eventually, let_others_run

POD = Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="pod-uid"))
ISOLATION = available_isolation()
STDOUT, STDERR, ERROR, RESIZE = 1, 2, 3, 4


class StreamingNode:
    """A container, and streams to it over plain HTTP."""

    def __init__(self, runtime: Any, container: RunningContainer, **limits: Any) -> None:
        self.container = container
        target = StreamTarget({"c": container}, lambda client: runtime.forward_ports(POD, client))
        self._streams = NodeStreams(
            lambda namespace, pod: target if (namespace, pod) == ("ns", "p") else None, **limits
        )
        self._server = HttpServer(self._answer, stop_after_s=0.1)
        self.port = 0

    async def _answer(self, request: HttpRequest) -> Response:
        return self._streams.answer(request, request.path_and_query()[0].split("/")[1:])

    async def start(self) -> None:
        _, self.port = await self._server.start("127.0.0.1", 0)

    async def stop(self) -> None:
        await self._server.stop()

    def url(self, *command: str, path: str = "/exec/ns/p/c", **options: str) -> str:
        query = [*options.items(), *(("command", word) for word in command)]
        return f"http://127.0.0.1:{self.port}{path}?{urlencode(query)}"


@asynccontextmanager
async def streaming_node(
    tmp_path: Path, *command: str, isolation: Isolation | None = None, env: dict[str, str] | None = None, **limits: Any
) -> AsyncIterator[StreamingNode]:
    runtime = ProcessRuntime(tmp_path, RealClock(), isolation=isolation)
    sandbox = await runtime.start_pod(POD, None)
    spec: ContainerSpec = a_spec(tmp_path, *(command or ("sleep", "1000")), env=env)
    node = StreamingNode(runtime, await runtime.start_container(POD, sandbox, spec), **limits)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()
        await runtime.stop_pod("pod-uid")


class Talk:
    """What a client has heard, by channel."""

    def __init__(self) -> None:
        self.heard: dict[int, bytes] = {}

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.heard[ERROR])
        return found


async def over_websocket(url: str, *messages: bytes, protocol: str = "v5.channel.k8s.io") -> Talk:
    talk = Talk()
    async with aiohttp.ClientSession() as session, session.ws_connect(url, protocols=(protocol,)) as socket:
        assert socket.protocol == protocol
        for message in messages:
            await socket.send_bytes(message)
        while (answer := await socket.receive(timeout=20)).type is aiohttp.WSMsgType.BINARY:
            channel = answer.data[0]
            talk.heard[channel] = talk.heard.get(channel, b"") + answer.data[1:]
        assert answer.type is aiohttp.WSMsgType.CLOSE
        assert answer.data == 1000
    return talk


class Script(CommandStreams):
    """A client of a CRI runtime's streams, which are the same as ours: input that is there from the beginning."""

    def __init__(self, options: StreamOptions, stdin: bytes = b"", sizes: bytes = b"") -> None:
        super().__init__(options)
        self.heard: dict[int, bytes] = {}
        self._stdin.offer(stdin)
        self._sizes.offer(sizes)
        self._stdin.end()

    async def run(self) -> None:
        """Nothing more comes."""

    async def opened(self) -> None:
        """They are open from the beginning."""

    async def finish(self, status: Status) -> None:
        """A runtime leaves it to the agent to tell the client how its command ended."""
        raise AssertionError(f"a runtime told its client: {status}")

    async def _send(self, channel: int, data: bytes) -> None:
        self.heard[channel] = self.heard.get(channel, b"") + data


SCRIPT = 'cat; echo "$GREETING"; echo oops >&2; exit 7'


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_a_command_over_websocket(tmp_path: Path, protocol: str) -> None:
    async with streaming_node(tmp_path, env={"GREETING": "hello"}) as node:
        # Only the fifth version can say that the input ends; before it the command has to know.
        script = SCRIPT if protocol.startswith("v5") else SCRIPT.replace("cat", "head -c 6")
        url = node.url("sh", "-c", script, input="1", output="1", error="1")
        end = (b"\xff\x00",) if protocol.startswith("v5") else ()
        talk = await over_websocket(url, b"\x00input\n", *end, protocol=protocol)
    assert talk.heard[STDOUT] == b"input\nhello\n"
    assert talk.heard[STDERR] == b"oops\n"
    assert talk.status["reason"] == "NonZeroExitCode"
    assert talk.status["details"] == {"causes": [{"reason": "ExitCode", "message": "7"}]}


async def test_base64_for_browsers(tmp_path: Path) -> None:
    async with (
        streaming_node(tmp_path) as node,
        aiohttp.ClientSession() as session,
        session.ws_connect(
            node.url("head", "-c", "2", input="1", output="1"), protocols=("v4.base64.channel.k8s.io",)
        ) as socket,
    ):
        await socket.send_str("0aGk=")
        heard = [(await socket.receive_str(timeout=20)) for _ in range(3)]
    assert heard[:2] == ["1", "1aGk="]
    assert heard[2].startswith("3")


async def test_a_command_over_spdy(tmp_path: Path) -> None:
    async with streaming_node(tmp_path, env={"GREETING": "hello"}) as node:
        url = node.url("sh", "-c", SCRIPT, input="1", output="1", error="1")
        client = Script(StreamOptions(True, True, True, False), b"input\n" * 50_000)
        assert await cri_streams.run_command(url, client) == 7
        assert client.heard == {STDOUT: b"input\n" * 50_000 + b"hello\n", STDERR: b"oops\n"}
        missing = Script(StreamOptions(False, True, True, False))
        with pytest.raises(ContainerError, match='exec: "nosuch": executable file not found in \\$PATH'):
            await cri_streams.run_command(node.url("nosuch", output="1", error="1"), missing)


class CountedEvent(asyncio.Event):
    """Fails where a loop asks again and again and lets nobody else run."""

    waits = 0

    async def wait(self) -> Literal[True]:
        self.waits += 1
        assert self.waits < 10
        return await super().wait()


async def test_a_client_may_take_its_time_between_two_streams() -> None:
    streams = SpdyStreams(Mock(), StreamOptions(False, True, True, False), "v4.channel.k8s.io")
    streams._changed = changed = CountedEvent()
    opening = asyncio.create_task(streams.opened())
    for number, name in enumerate(("error", "stdout", "stderr"), 1):
        await let_others_run(3)
        assert (opening.done(), changed.waits) == (False, number)
        assert streams._take(Mock(headers={"streamtype": name})) == ""
    await opening
    assert changed.waits == 3


async def test_a_terminal_has_the_clients_size(tmp_path: Path) -> None:
    script = "while [ \"$(stty size)\" != '12 34' ]; do :; done; tty; stty size; echo oops >&2"
    async with streaming_node(tmp_path) as node:
        client = Script(StreamOptions(True, True, False, True), sizes=b'{"Width":9}{"Width":34,"Height":12}')
        url = node.url("sh", "-c", script, input="1", output="1", error="1", tty="1")
        assert await cri_streams.run_command(url, client) == 0
        assert client.heard[STDOUT].startswith(b"/dev/")
        assert client.heard[STDOUT].endswith(b"12 34\r\noops\r\n")
        talk = await over_websocket(
            node.url("sh", "-c", "read line; echo got $line", input="1", output="1", tty="1"), b"\x00word\r"
        )
        assert b"got word" in talk.heard[STDOUT]


@pytest.mark.skipif(isinstance(ISOLATION, str), reason=str(ISOLATION))
async def test_a_command_in_an_isolated_pod_has_its_user_and_its_namespaces(tmp_path: Path) -> None:
    assert isinstance(ISOLATION, Isolation)
    os.chmod(tmp_path, 0o755)
    # The pod's user may not enter root's home, where this Python may live.
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no python3 for everybody on this machine")
    serve = f"{python} -m http.server 8000 --bind 127.0.0.1"
    async with streaming_node(
        tmp_path, "sh", "-c", f"{serve} & sleep 1000", isolation=ISOLATION, env={"A": "b"}
    ) as node:
        script = "for n in mnt pid net user; do readlink /proc/self/ns/$n; readlink /proc/1/ns/$n; done; cat /proc/self/uid_map; echo $A"

        client = Script(StreamOptions(False, True, False, False))
        await cri_streams.run_command(node.url("sh", "-c", script, output="1"), client)
        found = client.heard[STDOUT].decode().split()
        assert found[0:8:2] == found[1:8:2], "those of the container's first process"
        assert found[0] != os.readlink("/proc/self/ns/mnt")
        assert int(found[9]) >= 1_000_000_000, "the pod's own user"
        assert found[-1] == "b"

        async def has_page() -> bool:
            return b"200 OK" in await ask(node, 8000, b"GET / HTTP/1.0\r\n\r\n")

        await eventually(has_page, "the container's server in its own network")


async def ask(node: StreamingNode, port: int, question: bytes) -> bytes:
    """One question and its answer over a forwarded port; empty if there is none."""
    headers = (
        ("Connection", "Upgrade"),
        ("Upgrade", "SPDY/3.1"),
        ("X-Stream-Protocol-Version", "portforward.k8s.io"),
    )
    answer = await request_upgrade(UpgradeRequest("127.0.0.1", node.port, "/portForward/ns/p", headers, "POST"))
    assert isinstance(answer.connection, StreamPair)
    session = SpdySession(answer.connection, lambda stream: "no", is_client=True)
    reading = asyncio.create_task(session.run())
    names = {"port": str(port), "requestID": "0"}
    error = await session.open_stream({"streamType": "error", **names})
    data = await session.open_stream({"streamType": "data", **names})
    await data.write(question)
    heard = b""
    while piece := await data.read():
        heard += piece
    text = await error.read()
    reading.cancel()
    answer.connection.abort()
    return heard or text


async def test_ports_of_a_container(tmp_path: Path) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(100)).upper())
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with streaming_node(tmp_path) as node:
        assert await ask(node, port, b"quiet") == b"QUIET"
        server.close()
        assert b"failed to connect to localhost" in await ask(node, port, b"anybody?")


async def test_attaching_shows_what_comes_from_now_on(tmp_path: Path) -> None:
    flag = tmp_path / "go"
    async with streaming_node(
        tmp_path, "sh", "-c", f"echo before; until [ -e {flag} ]; do sleep 0.01; done; echo after"
    ) as node:
        await eventually(lambda: "before" in (tmp_path / "logs/0.log").read_text())
        client = Script(StreamOptions(False, True, True, False))
        attached = asyncio.create_task(cri_streams.run_command(node.url(path="/attach/ns/p/c", output="1"), client))
        await eventually(lambda: node._streams._open)
        flag.touch()
        assert await attached == 0
    assert client.heard.get(STDOUT, b"after\n") in (b"after\n", b"before\nafter\n")


async def test_a_command_ends_with_its_client_and_with_its_container(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with streaming_node(tmp_path) as node:
        url = node.url("sh", "-c", f"echo $$ > {pid_file}; sleep 1000", output="1")
        async with aiohttp.ClientSession() as session, session.ws_connect(url, protocols=("v5.channel.k8s.io",)):
            await eventually(lambda: pid_file.exists() and pid_file.read_text())
        await eventually(lambda: not Path(f"/proc/{pid_file.read_text().strip()}").exists())
        talking = asyncio.create_task(over_websocket(node.url("sleep", "1000", output="1")))
        await eventually(lambda: node._streams._open)
        await node.container.stop(0)
        assert "the container has ended" in (await talking).status["message"]


async def test_a_client_that_never_reads_is_closed_and_its_command_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    async with streaming_node(tmp_path, idle_s=0.5) as node:
        _, writer = await asyncio.open_connection("127.0.0.1", node.port, limit=1024)
        target = node.url("sh", "-c", f"echo $$ > {pid_file}; exec yes", output="1").partition(str(node.port))[2]
        writer.write(
            f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n".encode()
        )
        await eventually(lambda: pid_file.exists() and pid_file.read_text())
        before = resident_bytes()
        await eventually(lambda: not Path(f"/proc/{pid_file.read_text().strip()}").exists())
        assert resident_bytes() - before < 32 * 2**20
        writer.close()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_stream_without_data_is_closed_with_a_reason(tmp_path: Path) -> None:
    async with streaming_node(tmp_path, idle_s=0.2) as node:
        talk = await over_websocket(node.url("sleep", "1000", output="1"))
    assert "no data came or went for 0.2 seconds" in talk.status["message"]


UPGRADE = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}


@pytest.mark.parametrize(
    ("path", "headers", "status", "text"),
    [
        ("/exec/ns/p/c?output=1&command=true", {}, 400, "Upgrade request required"),
        ("/exec/ns/other/c?output=1&command=true", UPGRADE, 404, "pod does not exist"),
        ("/exec/ns/p/d?output=1&command=true", UPGRADE, 500, 'container not found ("d")'),
        ("/exec/ns/p/c?command=true", UPGRADE, 400, "at least 1 of stdin, stdout, stderr"),
        ("/exec/ns/p/c?output=1", UPGRADE, 400, "a command is needed"),
        ("/exec/ns/p/c?output=1&command=x", {**UPGRADE, "X-Stream-Protocol-Version": "v9"}, 403, "unable to negotiate"),
        ("/exec/ns/p/c?output=1&command=x", {"Connection": "Upgrade", "Upgrade": "h2c"}, 400, "are spoken here"),
        ("/exec/ns/p/c?output=1&command=x", {"Connection": "Upgrade", "Upgrade": "websocket"}, 400, "version 13"),
    ],
)
async def test_refusals(tmp_path: Path, path: str, headers: dict[str, str], status: int, text: str) -> None:
    async with streaming_node(tmp_path) as node:
        asked = UpgradeRequest("127.0.0.1", node.port, path, tuple(headers.items()), "POST")
        answer = await request_upgrade(asked)
    assert answer.status == status
    assert text in answer.text.decode()


async def test_no_more_streams_than_allowed(tmp_path: Path) -> None:
    async with streaming_node(tmp_path, most=1) as node:
        first = asyncio.create_task(over_websocket(node.url("sleep", "1000", output="1")))
        await eventually(lambda: node._streams._open)
        with pytest.raises(ContainerError, match="1 streams are open on this node, and no more are allowed"):
            await cri_streams.run_command(
                node.url("true", output="1"), Script(StreamOptions(False, True, False, False))
            )
        await node.container.stop(0)
        await first
        assert (await eventually(lambda: not node._streams._open)) is True


async def test_a_container_on_paper_says_that_nothing_runs_in_it(tmp_path: Path) -> None:
    runtime = NoRuntime(RealClock())
    sandbox = await runtime.start_pod(POD, None)
    node = StreamingNode(runtime, await runtime.start_container(POD, sandbox, a_spec(tmp_path, "sleep")))
    await node.start()
    for path in ("/exec/ns/p/c", "/attach/ns/p/c"):
        talk = await over_websocket(node.url("true", path=path, output="1"))
        assert "exists as a status only: no process runs in it" in talk.status["message"]
    assert b"no process listens in it" in await ask(node, 80, b"hello")
    await node.stop()


async def test_the_server_of_logs_answers_streams(tmp_path: Path) -> None:
    server = LogServer(LogSource(tmp_path), ssl.create_default_context())
    peer = Peer(common_name="kube-apiserver-kubelet-client")
    headers = {name.lower(): value for name, value in UPGRADE.items()}
    for _ in range(2):
        answer = await server._answer(HttpRequest("GET", b"/exec/ns/p/c?output=1&command=true", headers, peer=peer))
        assert answer.status == 404
        assert answer.body == b"pod does not exist\n"
