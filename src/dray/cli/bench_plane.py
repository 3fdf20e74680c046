"""The control plane under the benchmark, as in `dray up`: API server, controllers and scheduler in one process or in two.

`python -m dray.cli.bench_plane DIRECTORY [--pipe DESCRIPTOR] [--profile FILE]` serves HTTPS and answers questions (`bench_meter`)
until its standard input ends. With a pipe, controllers and scheduler are at its other end: `python -m dray.cli.bench_loops`.
"""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

from dray.atomic_files import write_private
from dray.cli.bench_meter import CpuMeter, SchedulerMeter, answer_questions
from dray.cli.event_loop import YOUNG_OF_A_SERVER, run_loop, spare_the_collector
from dray.controllers.node_lifecycle import NodeLifecycleController
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions

# There are no kubelets here, so nobody may miss their heartbeats.
CONTROLLERS = ("*", f"-{NodeLifecycleController.name}")


async def serve(directory: Path, pipe: int | None, profile: Path | None) -> None:
    options = ControlPlaneOptions(directory / "data", controllers=CONTROLLERS, loops_apart=pipe is not None)
    plane = ControlPlane(options)
    await plane.start()
    await plane.listen()
    write_private(directory / "kubeconfig", plane.kubeconfig().encode())
    if pipe is not None:
        await plane.serve_pipe(socket.socket(fileno=pipe))
    spare_the_collector(YOUNG_OF_A_SERVER)
    meter = SchedulerMeter(plane.scheduler, profile) if plane.scheduler else CpuMeter(profile)
    await answer_questions(meter.answers())
    await plane.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pipe", type=int)
    parser.add_argument("--profile", type=Path)
    given = parser.parse_args()
    run_loop(serve(given.directory, given.pipe, given.profile))
