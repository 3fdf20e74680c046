"""The client against a server with the habits of real ones, over real sockets: whatever it does, the copy is right."""

import asyncio
import random

import pytest

from dray.client import PODS, ApiError, Client, Connection, Handler, Informer, ServerUnreachable
from dray.client.credentials import NoCredentials
from dray.client.https import HttpsTransport
from dray.clock import RealClock
from tests.client.fake_kubernetes import FakeKubernetes
from tests.waiting import eventually, let_others_run

PATIENCE_S = 30.0
WATCH_HABITS = ("429", "503", "end", "cut", "error", "bookmarks", "halves")
LIST_HABITS = ("429", "503", "410-list", "close", "chunks", "cut")


class Hasty(RealClock):
    """Waits are real and short, and remembered."""

    def __init__(self):
        super().__init__()
        self.waits = []

    async def sleep(self, seconds):
        self.waits.append(seconds)
        await asyncio.sleep(min(seconds, 0.01))


class ContractRig:
    def __init__(self, **server):
        self.server = FakeKubernetes(**server)
        self.clock = Hasty()
        self.seen = {}
        self.mistakes = []

    async def __aenter__(self):
        self.transport = HttpsTransport(Connection(await self.server.start(), NoCredentials()))
        self.client = Client(self.transport, clock=self.clock)
        self.informer = Informer(self.client, PODS)
        self.informer.add_handler(Handler(self.added, self.changed, self.removed))
        return self

    async def __aexit__(self, *_):
        await self.informer.stop()
        await self.transport.close()
        await self.server.stop()

    # What handlers hear has to make sense on its own: no second addition, no change or removal of what is not there.

    def added(self, pod):
        self.note(pod, expected=False)
        self.seen[pod.metadata.name] = pod.status.phase

    def changed(self, _, pod):
        self.note(pod, expected=True)
        self.seen[pod.metadata.name] = pod.status.phase

    def removed(self, pod):
        self.note(pod, expected=True)
        self.seen.pop(pod.metadata.name, None)

    def note(self, pod, *, expected):
        if (pod.metadata.name in self.seen) != expected:
            self.mistakes.append(pod.metadata.name)

    async def agrees(self):
        """The copy and what handlers made of it equal the server's state."""
        wanted = None

        def is_right():
            nonlocal wanted
            wanted = {name: document["status"]["phase"] for name, document in self.server.objects.items()}
            copy = {pod.metadata.name: pod.status.phase for pod in self.informer}
            return self.informer.has_synced and copy == wanted and self.seen == wanted

        await eventually(is_right, lambda: f"{self.seen} to be {wanted}; {self.server.requests[-8:]}", PATIENCE_S)
        assert self.mistakes == []
        assert self.server.offences == []


async def fill(server, count=8):
    for number in range(count):
        await server.put(f"pod-{number}", phase="Pending")


async def test_a_server_with_watch_lists_is_asked_once():
    async with ContractRig() as rig:
        await fill(rig.server)
        rig.informer.start()
        await rig.agrees()
        await rig.server.put("pod-0", phase="Running")
        await rig.server.remove("pod-1")
        await rig.agrees()
        assert len(rig.server.requests) == 1


async def test_a_server_without_watch_lists_is_listed_in_pages_and_watched():
    """Kubernetes before 1.32, or with the feature off."""
    async with ContractRig(watch_list=False) as rig:
        await fill(rig.server)
        rig.informer.start()
        await rig.agrees()
        await rig.server.put("pod-0", phase="Running")
        await rig.agrees()
        kinds = ["list" if "watch" not in request else "watch" for request in rig.server.requests]
        assert kinds == ["watch", "list", "list", "list", "watch"]
        assert "resourceVersion=108" in rig.server.requests[-1]


async def test_a_list_that_expires_between_its_pages_starts_over_in_one_piece():
    async with ContractRig(watch_list=False) as rig:
        await fill(rig.server)
        rig.server.habits.extend(["chunks", "410-list"])
        rig.informer.start()
        await rig.agrees()
        lists = [request for request in rig.server.requests if "watch" not in request]
        assert len(lists) == 3
        assert "limit" not in lists[-1]


@pytest.mark.parametrize("code", ["429", "503"])
async def test_flow_control_is_obeyed(code):
    async with ContractRig(watch_list=False) as rig:
        await fill(rig.server)
        rig.server.habits.extend([code, code])
        listing = await rig.client.list(PODS)
        assert len(listing.items) == 8
        assert rig.clock.waits == [1.0, 1.0]


async def test_flow_control_of_a_watch_is_obeyed():
    async with ContractRig() as rig:
        await fill(rig.server)
        rig.server.habits.append("429")
        rig.informer.start()
        await rig.agrees()
        assert [wait for wait in rig.clock.waits if wait >= 1.0]


@pytest.mark.parametrize("habit", WATCH_HABITS)
async def test_each_habit_of_a_watch(habit):
    async with ContractRig() as rig:
        await fill(rig.server)
        rig.server.habits.extend([habit] * 3)
        rig.informer.start()
        for round_number in range(5):
            await rig.server.put("pod-0", phase=f"round-{round_number}")
            await rig.server.put(f"new-{round_number}", phase="ü€")
            await rig.server.remove(f"pod-{round_number + 1}")
            await rig.agrees()
        assert len(rig.server.habits) < 3


async def test_a_watch_of_bookmarks_alone_resumes_from_the_last_one():
    async with ContractRig() as rig:
        await fill(rig.server)
        rig.informer.start()
        await rig.agrees()
        await rig.server.put("pod-0", phase="Running")
        await rig.agrees()
        rig.server.habits.append("bookmarks")
        rig.server.cut()
        await rig.agrees()
        await eventually(lambda: len(rig.server.requests) >= 3, "the next watch", PATIENCE_S)
        assert rig.informer.relists == 1


async def test_history_that_is_gone_costs_one_list():
    async with ContractRig() as rig:
        await fill(rig.server)
        rig.informer.start()
        await rig.agrees()
        rig.server.habits.append("end")
        await rig.server.put("pod-0", phase="Running")
        await rig.agrees()
        rig.server.cut()
        await rig.server.put("pod-1", phase="Running")
        await rig.server.remove("pod-2")
        await rig.server.forget_history()
        await rig.agrees()
        assert rig.informer.relists <= 2


async def test_connections_that_are_closed_between_calls_are_not_noticed():
    async with ContractRig() as rig:
        await fill(rig.server)
        for _ in range(5):
            assert len((await rig.client.list(PODS)).items) == 8
            rig.server.close_idle()
            await let_others_run(20)
        rig.server.habits.extend(["close"] * 4)
        for _ in range(3):
            assert len((await rig.client.list(PODS)).items) == 8


async def test_a_read_that_is_cut_is_repeated_once_and_no_more():
    async with ContractRig() as rig:
        await fill(rig.server, 2)
        rig.server.habits.append("cut")
        assert len((await rig.client.list(PODS)).items) == 2
        rig.server.habits.extend(["cut", "cut"])
        with pytest.raises(ServerUnreachable):
            await rig.client.list(PODS)


async def test_a_server_that_stays_busy_is_an_error_in_the_end():
    async with ContractRig() as rig:
        rig.server.habits.extend(["429"] * 20)
        with pytest.raises(ApiError) as caught:
            await rig.client.list(PODS)
        assert (caught.value.code, caught.value.retry_after_s) == (429, 1.0)
        assert "Too many requests" in str(caught.value)


@pytest.mark.parametrize("watch_list", [True, False])
@pytest.mark.parametrize("seed", range(6))
async def test_any_order_of_habits_and_changes(seed, watch_list):
    """Whatever happens to connections, lists and watches, the copy ends up right, and handlers heard a story that fits."""
    choose = random.Random(seed)
    async with ContractRig(watch_list=watch_list, page=choose.randint(1, 4)) as rig:
        await fill(rig.server, 5)
        rig.informer.start()
        for _ in range(40):
            deed = choose.choice(["put", "put", "put", "remove", "habit", "habit", "cut", "idle", "forget", "look"])
            if deed == "put":
                await rig.server.put(f"pod-{choose.randrange(8)}", phase=str(choose.randrange(1000)))
            elif deed == "remove" and rig.server.objects:
                await rig.server.remove(choose.choice(sorted(rig.server.objects)))
            elif deed == "habit":
                rig.server.habits.append(choose.choice([*WATCH_HABITS, *LIST_HABITS]))
            elif deed == "cut":
                rig.server.cut()
            elif deed == "idle":
                rig.server.close_idle()
            elif deed == "forget":
                await rig.server.forget_history()
            else:
                await asyncio.sleep(choose.choice([0, 0.001, 0.02]))
        # From now on the server is well-mannered.
        rig.server.habits.clear()
        await rig.agrees()
