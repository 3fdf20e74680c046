"""API server, controllers, two schedulers and a node in one process, with weather between them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from dray.client import CLAIMS, CONFIG_MAPS, PODS, ApiError, Client, ServerUnreachable, Transport
from dray.clock import Clock, RealClock
from dray.features import FeatureGates
from dray.proof import History, ProofReport, RecordingTransport, WatchRecorder, check
from dray.proof.recording import FOLLOWED
from dray.scheduler.service import SchedulerService
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from dray.sim.node_pools import NodePool
from dray.sim.nodes import NodesOptions, RealNodes
from tests.torture.workload import Workload
from tests.waiting import eventually

Wrap = Callable[[Transport], Transport]


class SmallCluster(ControlPlane):
    """Components get their clients through `wrap`, and clocks of their own if `clocks` names them."""

    def __init__(
        self, root: Path, wrap: Wrap, clock: Clock | None = None, clocks: dict[str, Clock] | None = None
    ) -> None:
        super().__init__(ControlPlaneOptions(root / "data"), clock)
        self._wrap = wrap
        self._clocks = clocks or {}

    def client(self, component: str) -> Client:
        plain = super().client(component)
        clock = self._clocks.get(component, plain.clock)
        return Client(self._wrap(plain.transport), clock=clock, user_agent=plain.user_agent)

    def plain_client(self) -> Client:
        return Client(super().client("test").transport, clock=RealClock(), user_agent="test")


@contextlib.asynccontextmanager
async def small_cluster(
    wrap: Wrap = lambda inner: inner, clock: Clock | None = None, clocks: dict[str, Clock] | None = None
) -> AsyncIterator[SmallCluster]:
    gates = FeatureGates.default()
    with tempfile.TemporaryDirectory(prefix="dray-w", ignore_cleanup_errors=True) as folder:
        plane = SmallCluster(Path(folder), wrap, clock, clocks)
        await plane.start()
        second = SchedulerService(plane.client("dray-scheduler-2"), gates=gates)
        rival = asyncio.create_task(second.run())
        nodes = RealNodes(
            plane.plain_client(), NodesOptions(NodePool(cpu="4", devices=("gpu", "nic")), Path(folder) / "n", gates)
        )
        try:
            await nodes.start()
            yield plane
        finally:
            rival.cancel()
            await asyncio.gather(rival, return_exceptions=True)
            await nodes.stop()
            await plane.stop()


# A history with fewer claims allocated in it proves too little.
ENOUGH_ALLOCATIONS = 6


async def live(plane: SmallCluster, seed: int, steps: int, *, pause_s: float = 0.03) -> tuple[ProofReport, Workload]:
    """Random work, then peace until nothing is left; the answer is what the checker says of all of it.

    On a slow machine pods may be deleted before they were placed: the work goes on until enough was allocated.
    """
    history = History()
    client = Client(RecordingTransport(plane.plain_client().transport, history))
    followers = [WatchRecorder(plane.plain_client(), history, name, (*FOLLOWED, CONFIG_MAPS)) for name in ("a", "b")]
    workload = Workload(client, seed, "faults")
    for follower in followers:
        await follower.start()
    await workload.prepare()
    for each in range(10 * steps):
        if each >= steps and each % 20 == 0 and check(history).allocations >= ENOUGH_ALLOCATIONS:
            break
        await workload.step()
        await asyncio.sleep(pause_s)
    await until_nothing_is_left(client, workload)
    for follower in followers:
        await follower.finish()
    return check(history, bound_must_fit=True), workload


async def until_all_run(client: Client, timeout_s: float = 90.0) -> None:
    said: list[str] = []

    async def all_run() -> bool:
        waiting = [each for each in (await client.list(PODS)).items if each.status.phase != "Running"]
        said[:] = [f"{each.metadata.name} {each.status.phase}: {each.status.conditions}" for each in waiting]
        return not waiting

    await eventually(all_run, lambda: f"pods to run: {said}", timeout_s)


async def until_nothing_is_left(client: Client, workload: Workload, timeout_s: float = 90.0) -> None:
    left: list[str] = []

    async def nothing_is_left() -> bool:
        try:
            await workload.clean_up()
            left[:] = [f"pod {each.metadata.name}" for each in (await client.list(PODS)).items]
            left.extend(f"claim {each.metadata.name}" for each in (await client.list(CLAIMS)).items)
        except (ApiError, ServerUnreachable) as error:
            left[:] = [str(error)]
        return not left

    await eventually(nothing_is_left, lambda: f"everything to go: {left}", timeout_s, pause_s=0.1)
