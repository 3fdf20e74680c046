"""A driver as a program of its own, on a made-up machine: `python made_up_machine.py cpu|memory FOLDER OPTIONS...`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.driver.cpu.machines import TWO_SOCKETS, make_sysfs

from dray.driver import run
from dray.driver.cpu import CpuDriver, MemoryDriver

kind, folder = sys.argv[1], Path(sys.argv[2])
sysfs = folder if folder.exists() else make_sysfs(folder, TWO_SOCKETS)
run(CpuDriver(sysfs=sysfs) if kind == "cpu" else MemoryDriver(sysfs=sysfs), sys.argv[3:])
