"""The driver as a program of its own, with a stand-in card: `python standin_driver.py FOLDER OPTIONS...`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.driver.nvidia.host import make_dev, make_driver_root, make_sysfs
from tests.driver.nvidia.standin import StandInCard, StandInNvml, put_below_binding

from dray.driver import run
from dray.driver.nvidia import NvidiaDriver

folder = Path(sys.argv[1])
if not folder.exists():
    make_driver_root(folder / "nv"), make_dev(folder / "dev", 0, 1), make_sysfs(folder / "sys")
driver = NvidiaDriver(
    put_below_binding(
        StandInNvml(cards=[StandInCard(), StandInCard(uuid="GPU-second", minor=1, bus_id="00000000:00:07.0")])
    ),
    dev=folder / "dev",
    sysfs=folder / "sys",
)
run(driver, [*sys.argv[2:], "--driver-root", str(folder / "nv")])
