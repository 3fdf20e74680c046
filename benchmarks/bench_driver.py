"""The driver kit: publishing slices."""

import asyncio
import tempfile
import time
from pathlib import Path

from report import Report

from dray.api.resource import Device, DeviceAttribute
from dray.client import SLICES
from dray.driver.plugin import Pool
from dray.driver.publisher import SlicePublisher
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions


def run(report: Report) -> None:
    asyncio.run(_publish(report))


async def _publish(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(ControlPlaneOptions(Path(folder) / "data", with_controllers=False, with_scheduler=False))
        await plane.start()
        times = []
        for i in range(5):
            devices = tuple(
                Device(name=f"gpu-{n}", attributes={"round": DeviceAttribute(int_=i), "index": DeviceAttribute(int_=n)})
                for n in range(1000)
            )
            publisher = SlicePublisher(plane.client("driver"), f"d{i}.example.com", "node")
            await publisher.start()
            started = time.perf_counter()
            publisher.publish([Pool("node", devices)])
            await publisher.settled()
            times.append(time.perf_counter() - started)
            writes = publisher.writes
            publisher.publish([Pool("node", devices)])
            await publisher.settled()
            report_writes = publisher.writes - writes
            await publisher.stop()
        assert len((await plane.client("x").list(SLICES)).items) == 5 * 8
        report.record("slices of 1,000 devices published", min(times), "s", 1.0)
        report.record("writes when nothing changed", report_writes, "writes", 0)
        await plane.stop()
