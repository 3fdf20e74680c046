"""A client at the other end of a socket is as good as one in the server's process; and both ends notice when the other is gone."""

import asyncio
import socket
import time

import msgspec
import pytest

from dray.client import CONFIG_MAPS, ApiError, Client, Handler, Informer, ServerUnreachable
from dray.client.frames import LENGTH, Asked, Chunk, Ended, FramePipe
from dray.client.pipe import PipeTransport
from dray.client.transport import Call
from dray.event_loop import fast_runner
from dray.features import FeatureGates
from dray.scheduler.config import API_VERSION, parse
from dray.sim.control_loops import LoopsOptions
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from dray.tasks import cancelled
from tests.waiting import eventually

PATIENCE_S = 30.0


class PipeRig:
    def __init__(self, path):
        self.plane = ControlPlane(ControlPlaneOptions(path, with_controllers=False, with_scheduler=False))

    async def __aenter__(self):
        await self.plane.start()
        ours, theirs = socket.socketpair()
        self.server = await self.plane.serve_pipe(ours)
        self.transport = await PipeTransport.over(theirs)
        self.client = Client(self.transport, user_agent="apart/1")
        return self

    async def __aexit__(self, *_):
        self.transport.pipe.close()
        await self.server.stop()
        await self.plane.stop()


RIG = PipeRig


def config(name, text="a"):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"key": text},
    }


async def until(holds):
    await eventually(holds, within_s=PATIENCE_S)


async def test_many_calls_at_once_get_their_own_answers(rig):
    names = [f"map-{number}" for number in range(100)]
    made = await asyncio.gather(*(rig.client.create(CONFIG_MAPS, config(name, name)) for name in names))
    assert [each.metadata.name for each in made] == names
    read = await asyncio.gather(*(rig.client.get(CONFIG_MAPS, name, "default") for name in reversed(names)))
    assert [each.metadata.name for each in read] == names[::-1]


async def test_what_is_larger_than_any_buffer_arrives_whole(rig):
    text = "x" * 900_000
    await rig.client.create(CONFIG_MAPS, config("large", text))
    answer = await rig.client.raw("GET", "/api/v1/namespaces/default/configmaps/large")
    assert text.encode() in answer.body


async def test_a_refusal_is_an_answer(rig):
    with pytest.raises(ApiError) as refused:
        await rig.client.get(CONFIG_MAPS, "none", "default")
    assert refused.value.is_not_found
    watching = rig.client.watch(CONFIG_MAPS, since="nonsense")
    with pytest.raises(ApiError) as refused:
        await watching.__aenter__()
    assert refused.value.code == 400


async def test_an_informer_follows_and_its_end_ends_the_watch(rig):
    informer, seen = Informer(rig.client, CONFIG_MAPS), []
    informer.add_handler(Handler(on_add=lambda new: seen.append(new.metadata.name)))
    informer.start()
    await informer.synced()
    watchers = rig.plane.running.server.core.caches()
    open_before = sum(len(cache.watchers) for cache in watchers)
    assert open_before == 1
    await rig.client.create(CONFIG_MAPS, config("one"))
    await until(lambda: "one" in seen)
    await informer.stop()
    await until(lambda: sum(len(cache.watchers) for cache in watchers) == 0)
    await until(lambda: not rig.server._tasks)


async def test_a_call_given_up_is_given_up_at_the_other_end(rig):
    reached, ended = asyncio.Event(), asyncio.Event()

    async def never(_):
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    rig.server._handle = never
    call = asyncio.create_task(rig.client.get(CONFIG_MAPS, "one", "default"))
    await reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()


async def test_each_call_is_given_up_when_it_is_late(rig):
    started, ended = [], []

    async def never(request):
        started.append(request.path)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(request.path)

    rig.server._handle = never
    patient = asyncio.create_task(rig.transport.request(Call("GET", "/patient", timeout_s=PATIENCE_S)))
    for path, timeout_s in (("/late", 0.05), ("/sooner", 0.01)):
        with pytest.raises(ServerUnreachable, match=f"no answer within {timeout_s:g} s"):
            await rig.transport.request(Call("GET", path, timeout_s=timeout_s))
    await until(lambda: ended == ["/late", "/sooner"])
    assert set(started) == {"/patient", "/late", "/sooner"}
    assert not patient.done()
    await cancelled(patient)


async def test_without_the_server_calls_and_streams_fail_at_once(rig):
    opened = asyncio.Event()

    async def follow():
        async with rig.client.watch(CONFIG_MAPS) as events:
            opened.set()
            async for _ in events:
                pass

    following = asyncio.create_task(follow())
    await opened.wait()
    await rig.server.stop()
    with pytest.raises(ServerUnreachable):
        async with asyncio.timeout(PATIENCE_S):
            await following
    await rig.transport.lost.wait()
    with pytest.raises(ServerUnreachable):
        await rig.client.get(CONFIG_MAPS, "one", "default")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
async def test_frames_survive_being_cut_anywhere(size):
    frames = [Ended(1), Chunk(2**40, b"{}"), Ended(3)]
    sent, taken = bytearray(), []

    class Wire:
        def write(self, data):
            sent.extend(data)

        def is_closing(self):
            return False

    pipe = FramePipe(taken.append, lambda: None)
    pipe.connection_made(Wire())
    for frame in frames:
        pipe.send(frame)
        await asyncio.sleep(0)
    assert len(sent) > 3 * LENGTH.size
    for start in range(0, len(sent), size):
        pipe.data_received(bytes(sent[start : start + size]))
    assert taken == frames


def test_frames_of_one_turn_arrive_together():
    """The loop that components run on sends them in one system call, so that the other end wakes up once."""

    async def exchange():
        ours, theirs = socket.socketpair()
        pieces, taken = [], []
        reader = FramePipe(taken.append, lambda: None)
        receive = reader.data_received
        reader.data_received = lambda data: [pieces.append(data), receive(data)]
        sender = FramePipe(taken.append, lambda: None)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: reader, sock=theirs)
        await loop.create_unix_connection(lambda: sender, sock=ours)
        frames = [Ended(number) for number in range(20)]
        for frame in frames:
            sender.send(frame)
        await until(lambda: taken == frames)
        assert len(pieces) == 1
        sender.close()
        reader.close()

    with fast_runner() as runner:
        runner.run(exchange())


async def test_a_call_given_up_before_its_task_has_begun_leaves_nothing_behind(rig):
    for frame in (Asked(7, "GET", "/api", "", {}, b""), Ended(7)):
        rig.server._take(frame)
    await asyncio.sleep(0)
    assert not rig.server._tasks


async def test_a_large_frame_in_many_pieces_is_put_together_once():
    """Joining what has arrived with each new piece would move 80 GB here."""
    sent, taken = bytearray(), []

    class Wire:
        def write(self, data):
            sent.extend(data)

    pipe = FramePipe(taken.append, lambda: None)
    pipe.connection_made(Wire())
    large = Chunk(7, b"x" * (12 * 2**20))
    for frame in (Ended(1), large, Ended(2)):
        pipe.send(frame)
        await asyncio.sleep(0)
    started = time.process_time()
    for start in range(0, len(sent), 1000):
        pipe.data_received(bytes(sent[start : start + 1000]))
    assert taken == [Ended(1), large, Ended(2)]
    assert time.process_time() - started < 2.0


def test_loop_options_are_the_same_in_the_other_process():
    gates = FeatureGates.for_release("1.37")
    document = {
        "apiVersion": API_VERSION,
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "mine"}],
    }
    options = LoopsOptions(gates, ("*", "-jobs"), False, parse(document, gates), "PEM")
    assert msgspec.json.decode(msgspec.json.encode(options), type=LoopsOptions) == options
