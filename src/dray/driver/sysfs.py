"""Reads the kernel's description of a machine below /sys, for drivers of real devices. What the kernel does not say is no error."""

import contextlib
from pathlib import Path

SYSFS = Path("/sys")


def read_text(path: Path) -> str:
    """Empty where there is no such file."""
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""


def read_number(path: Path) -> int | None:
    with contextlib.suppress(ValueError):
        return int(read_text(path))
    return None


def numa_node_of(folder: Path) -> int | None:
    """Of a PCI device. The kernel writes -1 where it does not know."""
    number = read_number(folder / "numa_node")
    return number if number is not None and number >= 0 else None


def pcie_root_of(folder: Path) -> str | None:
    """The root that a PCI device hangs on: `pci0000:00` is a part of the real path of the device's folder."""
    with contextlib.suppress(OSError):
        return next((part for part in folder.resolve(strict=True).parts if part.startswith("pci")), None)
    return None
