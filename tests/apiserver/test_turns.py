"""Who goes first: at once or one by one, and who may ask for it."""

from __future__ import annotations

import asyncio

import pytest

from dray.apiserver.core import SCHEDULER, URGENT_FOR_S, WritePriority
from dray.apiserver.request.request_info import LOOPBACK, Request, User, request_info_of

from .conftest import Client

PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
SOMEBODY = User("jane", ("system:authenticated",))
URGENT = {"priority": "u=0"}


class PriorityRig:
    """Notes in which turn of the loop each request is begun."""

    def __init__(self) -> None:
        self.turns = WritePriority()
        self.begun: list[tuple[str, int]] = []
        self._turn = 0
        asyncio.get_running_loop().call_soon(self._count)

    def _count(self) -> None:
        self._turn += 1
        if self._turn < 50:
            asyncio.get_running_loop().call_soon(self._count)

    def send(
        self, name: str, method: str = "POST", path: str = PODS, *, user: User = SOMEBODY, urgent: bool = False
    ) -> asyncio.Task[None]:
        return asyncio.create_task(self._send(name, Request(method, path, "", URGENT if urgent else {}), user))

    async def _send(self, name: str, request: Request, user: User) -> None:
        what = request_info_of(request.method, request.path, watch=False, field_name="")
        await self.turns.wait(user, request, what)
        self.begun.append((name, self._turn))

    def turn_of(self, name: str) -> int:
        return dict(self.begun)[name]


@pytest.fixture
def long_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is."""
    monkeypatch.setattr("dray.apiserver.core.URGENT_FOR_S", 60.0)


@pytest.fixture
async def rig(long_hurry: None) -> PriorityRig:
    return PriorityRig()


async def test_nobody_waits_while_nobody_is_in_a_hurry(rig: PriorityRig) -> None:
    await asyncio.gather(*(rig.send(str(number)) for number in range(8)))
    assert len({turn for _, turn in rig.begun}) == 1


async def test_behind_the_scheduler_one_write_is_begun_in_each_turn_in_order(rig: PriorityRig) -> None:
    first = rig.send("scheduler", user=LOOPBACK, urgent=True)
    await asyncio.gather(first, *(rig.send(str(number)) for number in range(8)))
    assert [name for name, _ in rig.begun] == ["scheduler", *map(str, range(8))]
    turns = [rig.turn_of(str(number)) for number in range(8)]
    assert turns == list(range(turns[0], turns[0] + 8))


async def test_as_many_writes_are_begun_as_the_scheduler_made(rig: PriorityRig) -> None:
    """Few writes at once cost more than many; half of the server is enough for the scheduler."""
    urgent = [rig.send(f"scheduler-{number}", user=LOOPBACK, urgent=True) for number in range(3)]
    await asyncio.gather(*urgent, *(rig.send(str(number)) for number in range(8)))
    turns = [rig.turn_of(str(number)) for number in range(8)]
    assert [turn - turns[0] for turn in turns] == [0, 0, 0, 1, 2, 3, 4, 5]


async def test_the_next_write_of_the_scheduler_overtakes_those_that_wait(rig: PriorityRig) -> None:
    begun = [rig.send("first", user=LOOPBACK, urgent=True), *(rig.send(str(number)) for number in range(8))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    begun.append(rig.send("second", user=LOOPBACK, urgent=True))
    await asyncio.gather(*begun)
    assert rig.turn_of("second") < rig.turn_of("4")


async def test_when_the_hurry_is_over_all_are_begun_at_once(rig: PriorityRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.apiserver.core.URGENT_FOR_S", URGENT_FOR_S)
    await rig.send("scheduler", user=LOOPBACK, urgent=True)
    await asyncio.sleep(URGENT_FOR_S)
    await asyncio.gather(*(rig.send(str(number)) for number in range(8)))
    assert len({turn for name, turn in rig.begun if name != "scheduler"}) == 1


async def test_a_caller_that_gave_up_costs_no_turn(rig: PriorityRig) -> None:
    await rig.send("scheduler", user=LOOPBACK, urgent=True)
    waiting = [rig.send(str(number)) for number in range(4)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    waiting[2].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert [name for name, _ in rig.begun] == ["scheduler", "0", "3"]
    # Nobody is forgotten behind them either.
    await asyncio.wait_for(rig.send("next"), 1.0)


@pytest.mark.parametrize(
    ("user", "trusted"),
    [
        (LOOPBACK, True),
        (User(SCHEDULER), True),
        (User("root", ("system:masters",)), True),
        (SOMEBODY, False),
        (User("system:kube-controller-manager"), False),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
async def test_only_who_is_trusted_is_let_pass(rig: PriorityRig, user: User, trusted: bool) -> None:
    await rig.send("scheduler", user=LOOPBACK, urgent=True)
    waiting = [rig.send(str(number)) for number in range(3)]
    asks = rig.send("asks", user=user, urgent=True)
    await asyncio.gather(asks, *waiting)
    assert [name for name, _ in rig.begun].index("asks") == (1 if trusted else 4)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", PODS), ("GET", f"{PODS}/a"), ("GET", "/livez"), ("POST", LEASES), ("PUT", f"{LEASES}/a")],
)
async def test_reads_and_leases_never_wait(rig: PriorityRig, method: str, path: str) -> None:
    await rig.send("scheduler", user=LOOPBACK, urgent=True)
    waiting = [rig.send(str(number)) for number in range(3)]
    await asyncio.gather(rig.send("it", method, path), *waiting)
    assert [name for name, _ in rig.begun].index("it") == 1


@pytest.mark.usefixtures("long_hurry")
async def test_a_write_of_the_scheduler_is_answered_before_a_crowd_that_came_earlier(server: Client) -> None:
    answered: list[str] = []

    async def create(name: str, **headers: str) -> None:
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        answer = await server.post("/api/v1/namespaces/default/configmaps", document, **headers)
        assert answer.status == 201
        answered.append(name)

    await create("warm", priority="u=0")
    crowd = [asyncio.create_task(create(f"other-{number}")) for number in range(60)]
    await asyncio.sleep(0)
    await create("first", priority="u=0")
    await asyncio.gather(*crowd)
    assert answered.index("first") < 40
    assert len(answered) == 62
