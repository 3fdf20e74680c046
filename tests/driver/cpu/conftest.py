"""A driver of made-up machines."""

import pytest
from tests.driver.cpu.machines import TWO_SOCKETS, make_sysfs
from tests.short_paths import tmp_path as tmp_path

from dray.driver.cpu import CpuDriver
from dray.driver.cpu.devices import CpuOptions


@pytest.fixture
def make_driver(tmp_path):
    def make(machine=TWO_SOCKETS, **options):
        driver = CpuDriver(CpuOptions(**options), sysfs=make_sysfs(tmp_path / "sys", machine))
        driver.restore(tmp_path / "data")
        driver.published_pools = tuple(driver.pools("node-1"))
        return driver

    return make
