"""`run(driver)`: the whole main program of a driver."""

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from dray.client import connect
from dray.driver.plugin import Driver
from dray.driver.running import KUBELET_ROOT, DriverPaths, RunningDriver
from dray.signals import stop_signal
from dray.telemetry import set_up_logging


def run(driver: Driver, arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C. Options come from the command line, or from the environment of a pod."""
    options = _parser(driver).parse_args(arguments)
    set_up_logging(options.verbose)
    asyncio.run(serve(driver, options))


class DriverBroken(OSError):
    """The driver cannot go on; whoever runs it should start it again."""


async def serve(driver: Driver, options: argparse.Namespace) -> None:
    stopping = stop_signal()
    client = connect(options.kubeconfig, component=driver.name)
    running = RunningDriver(
        driver,
        client,
        options.node_name,
        DriverPaths(options.kubelet_root, options.cdi_dir),
        instance=options.instance,
    )
    try:
        await _until_stopped(running, stopping)
    finally:
        await running.stop()
        await client.close()


async def _until_stopped(running: RunningDriver, stopping: asyncio.Event) -> None:
    """A signal counts at any time, also while the driver waits for its node."""
    stopped = asyncio.create_task(stopping.wait())
    life = asyncio.create_task(_live(running))
    try:
        await asyncio.wait({stopped, life}, return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            life.result()
    finally:
        for task in (stopped, life):
            task.cancel()
        await asyncio.gather(stopped, life, return_exceptions=True)


async def _live(running: RunningDriver) -> None:
    await running.start()
    raise DriverBroken(f"driver {running.driver.name}: {await running.broken()}")


def _absolute(text: str) -> Path:
    """Others read the paths we write down, from directories of their own."""
    return Path(text).absolute()


def _parser(driver: Driver) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=f"DRA driver {driver.name}")
    node_name = os.environ.get("NODE_NAME")
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG"), help="in a pod: left out")
    parser.add_argument("--node-name", default=node_name, required=node_name is None, help="default: $NODE_NAME")
    parser.add_argument("--kubelet-root", type=_absolute, default=KUBELET_ROOT)
    parser.add_argument("--cdi-dir", type=_absolute, default=Path("/var/run/cdi"))
    parser.add_argument("--instance", default=os.environ.get("POD_UID", ""), help="the pod's UID, for rolling updates")
    parser.add_argument("-v", "--verbose", action="count", default=0)
    return parser
