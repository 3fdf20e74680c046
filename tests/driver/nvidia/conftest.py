"""The real NVML binding over a stand-in of the library, and a host's files."""

import pytest
from tests.driver.nvidia.host import make_dev, make_driver_root, make_sysfs
from tests.driver.nvidia.standin import StandInNvml, put_below_binding

from dray.driver.nvidia import NvidiaDriver


@pytest.fixture
def library():
    return StandInNvml()


@pytest.fixture
def nvml(library):
    return put_below_binding(library)


@pytest.fixture
def make_driver(nvml, tmp_path):
    """Builds a driver that has begun its life; all of them in a test share their data folder, as after a restart."""
    root, dev, sysfs = make_driver_root(tmp_path / "nv"), make_dev(tmp_path / "dev", 0), make_sysfs(tmp_path / "sys")
    made = []

    def build(**options):
        driver = NvidiaDriver(nvml, driver_root=str(root), dev=dev, sysfs=sysfs, **options)
        (tmp_path / "data").mkdir(exist_ok=True)
        driver.restore(tmp_path / "data")
        driver.published_pools = tuple(driver.pools("h200"))
        made.append(driver)
        return driver

    yield build
    for driver in made:
        for card in driver._cards:
            driver._stop_mps(card)
