"""A driver that looks after its devices by itself, with options and metrics of its own."""

import argparse
import asyncio

import aiohttp
import pytest
from tests.waiting import eventually

from dray.client import SLICES
from dray.driver import Device, Driver, DriverPaths, Pool, RunningDriver
from dray.driver import running_driver as running_room
from dray.driver.running_driver import serve_health_and_metrics


class GrowingDriver(Driver):
    """Finds one more device each time somebody tells it to."""

    name = "grow.example.com"

    def __init__(self, fails_first=False):
        self.devices = 1
        self.grow = asyncio.Event()
        self.fails = fails_first
        self.watches = 0

    def pools(self, node_name):
        return [Pool(node_name, tuple(Device(name=f"d{i}") for i in range(self.devices)))]

    async def watch(self, republish):
        self.watches += 1
        if self.fails:
            self.fails = False
            raise RuntimeError("the bus is gone")
        while True:
            await self.grow.wait()
            self.grow.clear()
            self.devices += 1
            await asyncio.to_thread(republish)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--devices", type=int, default=1)

    def configure(self, options: argparse.Namespace) -> None:
        if options.devices < 1:
            raise ValueError("--devices must be at least 1")
        self.devices = options.devices

    def add_metrics(self, registry):
        registry.computed_gauge("grow_devices", "Devices.", lambda: [({}, self.devices)])


@pytest.fixture
async def start(plane, tmp_path):
    started = []

    async def begin(driver):
        running = RunningDriver(driver, plane.client("driver"), "n1", DriverPaths(tmp_path / "k", tmp_path / "cdi"))
        await running.start()
        started.append(running)
        return running

    yield begin
    for running in started:
        await running.stop()


async def published(plane):
    return sorted(
        device.name for each in (await plane.client("test").list(SLICES)).items for device in each.spec.devices
    )


async def test_devices_that_appear_are_published(plane, start):
    driver = GrowingDriver()
    running = await start(driver)
    await running.published()
    driver.grow.set()
    await eventually(lambda: len(driver.published_pools[0].devices) == 2, "the driver to be asked again")
    await running.published()
    assert await published(plane) == ["d0", "d1"]


async def test_a_watch_that_fails_begins_anew(start, monkeypatch):
    monkeypatch.setattr(running_room, "WATCH_AGAIN_AFTER_S", 0.01)
    driver = GrowingDriver(fails_first=True)
    await start(driver)
    driver.grow.set()
    await eventually(lambda: driver.devices == 2, "the watch to go on")
    assert driver.watches == 2


async def test_metrics_and_health_are_served(start):
    running = await start(GrowingDriver())
    async with serve_health_and_metrics(running, "127.0.0.1:0") as port, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert "grow_devices 1\n" in await answer.text()
        async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 500, "no kubelet has taken the driver in"


class RememberingDriver(GrowingDriver):
    """Its numbers come from what it has read of an earlier life."""

    def restore(self, data_dir):
        self.remembered = 3

    def add_metrics(self, registry):
        registry.computed_gauge("grow_remembered", "Devices.", lambda: [({}, self.remembered)])


async def test_metrics_are_answered_before_the_driver_is_restored(plane, tmp_path):
    paths = DriverPaths(tmp_path / "k", tmp_path / "cdi")
    running = RunningDriver(RememberingDriver(), plane.client("driver"), "n1", paths)
    async with serve_health_and_metrics(running, "127.0.0.1:0") as port, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.status == 200
            assert "grow_remembered" not in await answer.text()
        await running.start()
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert "grow_remembered 3\n" in await answer.text()
        await running.stop()


def test_options_that_make_no_sense_are_refused(capsys):
    with pytest.raises(SystemExit):
        running_room.run(GrowingDriver.__new__(GrowingDriver), ["--node-name", "n1", "--devices", "0"])
    assert "--devices must be at least 1" in capsys.readouterr().err
