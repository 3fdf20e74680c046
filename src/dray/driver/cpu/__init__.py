"""The driver of the CPUs of a machine, `dray driver cpu` (`dra.cpu`), and of its memory, `dray driver memory` (`dra.memory`).

`topology` reads what the kernel tells below /sys; `devices` describes CPUs as DRA devices; `choice` picks the CPUs that a
claim gets of a group; `claim_records` remembers them; `driver` puts them together. `memory` does the same for the memory and the
huge pages of NUMA nodes.
"""

from dray.driver.cpu.driver import CpuDriver
from dray.driver.cpu.memory import MemoryDriver

__all__ = ["CpuDriver", "MemoryDriver"]
