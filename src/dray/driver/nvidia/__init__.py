"""The driver of real NVIDIA cards: `gpu.nvidia.com`, as `dray driver nvidia` serves it.

`cards` asks NVML what the machine has; `devices` describes cards and MIG instances as DRA devices, with the names that
NVIDIA's own driver uses; `host_files` finds what a container needs of the host; `parameters` reads GpuConfig; `claim_records` remembers on disk which claim has which cards; `mps` shares
a card among claims; `mig` makes and removes partitions, behind an option; `health` turns NVML's events into health and
taints; `usage` joins NVML's numbers with claims for `/metrics`; `driver` puts them together.

No module changes a setting of a card (MIG mode, clocks, power, compute mode, persistence mode) or resets one. Only `mig`
changes what is on a card, and only with `--dynamic-mig`.
"""

from dray.driver.nvidia.driver import NvidiaDriver

__all__ = ["NvidiaDriver"]
