"""The drivers that come with Dray, by name. Those in this folder are examples to read; those of real devices have folders of their own.

`gpu`: made-up cards from a YAML profile, partitioned over counters or shared. `nic`: network cards whose bandwidth is shared
as consumable capacity.
"""

from collections.abc import Callable

from dray.driver.plugin import Driver


def _gpu() -> Driver:
    from dray.driver.example.gpu import GpuDriver, load_profile

    return GpuDriver(load_profile("h200"))


def _gpu_shared() -> Driver:
    from dray.driver.example.gpu import GpuDriver, load_profile

    return GpuDriver(load_profile("shared"))


def _cpu() -> Driver:
    from dray.driver.cpu import CpuDriver

    return CpuDriver()


def _memory() -> Driver:
    from dray.driver.cpu import MemoryDriver

    return MemoryDriver()


def _nic() -> Driver:
    from dray.driver.example.nic import NicDriver

    return NicDriver()


def _nvidia() -> Driver:
    from dray.driver.nvidia import NvidiaDriver

    return NvidiaDriver()


def _net() -> Driver:
    from dray.driver.net import NetDriver

    return NetDriver()


DRIVERS: dict[str, Callable[[], Driver]] = {"cpu": _cpu, "gpu": _gpu, "gpu-shared": _gpu_shared, "nic": _nic}
"""Names for `dray driver` and `dray up --devices`."""

DRIVERS_OF_HARDWARE: dict[str, Callable[[], Driver]] = {"memory": _memory, "net": _net, "nvidia": _nvidia}
"""Names for `dray driver` alone: these publish what the machine they run on has."""
