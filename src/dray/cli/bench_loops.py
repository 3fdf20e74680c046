"""Controllers and scheduler under the benchmark, apart from the API server: `python -m dray.cli.bench_loops DESCRIPTOR`."""

from __future__ import annotations

import sys

from dray.cli.bench_meter import SchedulerMeter, answer_questions
from dray.cli.bench_plane import CONTROLLERS
from dray.cli.event_loop import run_loop, spare_the_collector
from dray.cli.loops_process import connected_loops
from dray.sim.control_loops import LoopsOptions


async def serve(descriptor: int) -> None:
    loops, _ = await connected_loops(descriptor, LoopsOptions(controllers=CONTROLLERS))
    await loops.start()
    spare_the_collector()
    assert loops.scheduler is not None
    await answer_questions(SchedulerMeter(loops.scheduler).answers())
    await loops.stop()


if __name__ == "__main__":
    run_loop(serve(int(sys.argv[1])))
