"""Leader election on Leases, against the real API server with simulated time."""

import asyncio
from functools import partial

import pytest

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.client import LEASES, ApiError, Client, InProcessTransport, LeaderElector, LeadershipLost, ServerUnreachable
from dray.clock import SimulatedClock
from dray.store.sqlite import SqliteStore
from tests import waiting


@pytest.fixture
async def server(tmp_path):
    store = SqliteStore(tmp_path / "db")
    running = await start_server(store, ServerOptions(tmp_path))
    yield running.server
    await running.stop()
    await store.close()


@pytest.fixture
def clock():
    return SimulatedClock()


class Breakable:
    """A connection that a test can cut."""

    def __init__(self, inner):
        self._inner = inner
        self.is_cut = False

    async def request(self, call):
        if self.is_cut:
            raise ServerUnreachable("cut")
        return await self._inner.request(call)


@pytest.fixture
def elector(server, clock):
    def make(identity):
        wire = Breakable(InProcessTransport(server.handle, partial(Request, user=LOOPBACK)))
        elector = LeaderElector(Client(wire, clock=clock), "test", identity)
        elector.wire = wire
        return elector

    return make


async def pass_time(clock, seconds):
    """Simulated seconds, with pauses in which the server serves."""
    await waiting.pass_time(clock, seconds, steps=int(seconds * 2), pause_s=waiting.PAUSE_S)


async def lead(elector, log):
    async def work():
        log.append(elector.identity)
        await asyncio.Event().wait()

    await elector.run(work)


async def test_one_leads_and_the_other_waits_and_takes_over_on_release(elector, clock):
    log = []
    first, second = elector("a"), elector("b")
    one = asyncio.create_task(lead(first, log))
    await pass_time(clock, 1)
    two = asyncio.create_task(lead(second, log))
    await pass_time(clock, 40)
    assert log == ["a"]
    assert (first.is_leader, second.is_leader) == (True, False)
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await pass_time(clock, 5)
    assert log == ["a", "b"]
    two.cancel()
    await asyncio.gather(two, return_exceptions=True)


async def test_a_silent_leader_is_replaced_and_knows_it(elector, clock):
    log = []
    first, second = elector("a"), elector("b")
    one = asyncio.create_task(lead(first, log))
    await pass_time(clock, 1)
    two = asyncio.create_task(lead(second, log))
    await pass_time(clock, 3)
    first.wire.is_cut = True
    await pass_time(clock, 13)
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(one, 30)
    assert not second.is_leader
    await pass_time(clock, 8)
    assert log == ["a", "b"]
    two.cancel()
    await asyncio.gather(two, return_exceptions=True)


async def test_a_short_outage_costs_nothing(elector, clock):
    log = []
    only = elector("a")
    task = asyncio.create_task(lead(only, log))
    await pass_time(clock, 3)
    only.wire.is_cut = True
    await pass_time(clock, 6)
    only.wire.is_cut = False
    await pass_time(clock, 20)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_lease_taken_away_ends_the_work_at_once(elector, clock, server):
    log = []
    only = elector("a")
    task = asyncio.create_task(lead(only, log))
    await pass_time(clock, 3)
    patch = {"spec": {"holderIdentity": "thief"}}
    await only._client.patch(LEASES, "test", patch, "kube-system")
    await pass_time(clock, 4)
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(task, 30)


async def test_of_two_takers_one_wins(elector, clock):
    first, second = elector("a"), elector("b")
    results = await asyncio.gather(first._try_hold(), second._try_hold())
    assert sorted(results) == [False, True]


async def test_the_lease_says_who_and_since_when(elector, clock):
    only = elector("a")
    await only.acquire()
    lease = await only._client.get(LEASES, "test", "kube-system")
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds, lease.spec.lease_transitions) == ("a", 15, 0)
    assert lease.spec.acquire_time.startswith("2024-01-01T00:00:0")
    assert len(lease.spec.renew_time) == len("2024-01-01T00:00:00.000000Z")
    await only.release()
    lease = await only._client.get(LEASES, "test", "kube-system")
    assert not lease.spec.holder_identity
    with pytest.raises(ApiError):
        await only._client.get(LEASES, "other", "kube-system")


async def test_work_that_ends_releases_the_lease(elector, clock):
    only = elector("a")

    async def work():
        return None

    await asyncio.wait_for(only.run(work), 10)
    assert not only.is_leader
    lease = await only._client.get(LEASES, "test", "kube-system")
    assert not lease.spec.holder_identity
