"""How much of the cards is used, by whom: NVML's numbers joined with the claims and pods that have the cards."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dray.driver.nvidia.cards import Card
from dray.telemetry import Registry

Users = Mapping[str, Iterable[Mapping[str, str]]]
"""By the name of the card: the labels of each claim that has it or a part of it, the claim's UID, and the memory that it may use."""
PROC = Path("/proc")
_CLAIM_VARIABLE = "DRAY_CLAIM_DEVICE__"
_CLAIM_LABELS = ("namespace", "claim", "pod")


@dataclass(frozen=True, slots=True)
class CardUsage:
    """One reading of a card's numbers by metric, and the memory that the processes of each claim have, by the claim's
    UID; what NVML does not know is left out."""

    values: Mapping[str, float]
    memory_of_claims: Mapping[str, int] = field(default_factory=dict)


def claim_variable(claim_uid: str, device: str, card: str) -> str:
    """An entry for the environment of a claim's processes, by which `read_usage` knows whose they are."""
    name = f"{_CLAIM_VARIABLE}{device}__{claim_uid}".upper().replace("-", "_")
    return f"{name}={claim_uid}/{card}"


def read_usage(nvml: Any, card: Card, proc: Path = PROC) -> CardUsage:
    handle = nvml.nvmlDeviceGetHandleByUUID(card.uuid)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    values: dict[str, float] = {
        "dray_nvidia_memory_used_bytes": memory.used,
        "dray_nvidia_memory_total_bytes": memory.total,
    }
    with contextlib.suppress(nvml.NVMLError):
        values["dray_nvidia_utilization_ratio"] = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    with contextlib.suppress(nvml.NVMLError):
        values["dray_nvidia_energy_joules_total"] = nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000
    with contextlib.suppress(nvml.NVMLError):
        values["dray_nvidia_power_watts"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    return CardUsage(values, _memory_of_claims(nvml, handle, card.name, proc))


def _memory_of_claims(nvml: Any, handle: Any, card: str, proc: Path) -> Mapping[str, int]:
    """NVML lists each process with its memory, clients of MPS too."""
    memory: Counter[str] = Counter()
    with contextlib.suppress(nvml.NVMLError):
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            for claim in _claims_of_process(proc / str(process.pid), card):
                memory[claim] += process.usedGpuMemory or 0
    return memory


def _claims_of_process(folder: Path, card: str) -> Iterator[str]:
    """UIDs of the claims through which a process has the card; none for a process that has ended or is not of a claim."""
    try:
        environment = (folder / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return
    for entry in environment.split("\0"):
        if entry.startswith(_CLAIM_VARIABLE):
            uid, _, named = entry.partition("=")[2].partition("/")
            if named == card:
                yield uid


def add_usage_metrics(
    registry: Registry, readings: Callable[[], Mapping[Card, CardUsage]], users: Callable[[], Users]
) -> None:
    """One line for each card, or for each claim that uses the card."""

    def samples(metric: str) -> Iterable[tuple[dict[str, str], float]]:
        who = users()
        for card, usage in readings().items():
            if metric not in usage.values:
                continue
            own = {"device": card.name, "uuid": card.uuid}
            for user in who.get(card.name) or (dict.fromkeys(_CLAIM_LABELS, ""),):
                yield own | _labels(user), usage.values[metric]

    def limits() -> Iterable[tuple[dict[str, str], float]]:
        for card, claims in users().items():
            for user in claims:
                if user.get("memory"):
                    yield {"device": card} | _labels(user), float(user["memory"])

    def used_by_claims() -> Iterable[tuple[dict[str, str], float]]:
        who = users()
        for card, usage in readings().items():
            for user in who.get(card.name, ()):
                yield {"device": card.name} | _labels(user), float(usage.memory_of_claims.get(user["uid"], 0))

    def gauge(metric: str) -> Callable[[], Iterable[tuple[dict[str, str], float]]]:
        return partial(samples, metric)

    registry.computed_gauge(
        "dray_nvidia_memory_used_bytes", "Memory of the card that is in use.", gauge("dray_nvidia_memory_used_bytes")
    )
    registry.computed_gauge(
        "dray_nvidia_memory_total_bytes", "Memory of the card.", gauge("dray_nvidia_memory_total_bytes")
    )
    registry.computed_gauge(
        "dray_nvidia_utilization_ratio",
        "Share of the last second in which the card computed something.",
        gauge("dray_nvidia_utilization_ratio"),
    )
    registry.computed_counter(
        "dray_nvidia_energy_joules_total",
        "Energy that the card has used since its driver was loaded.",
        gauge("dray_nvidia_energy_joules_total"),
    )
    registry.computed_gauge(
        "dray_nvidia_power_watts", "Power that the card uses now.", gauge("dray_nvidia_power_watts")
    )
    registry.computed_gauge(
        "dray_nvidia_claim_memory_limit_bytes", "Memory that a claim may use of a shared card.", limits
    )
    registry.computed_gauge(
        "dray_nvidia_claim_memory_used_bytes", "Memory of the card that the processes of a claim have.", used_by_claims
    )


def _labels(user: Mapping[str, str]) -> dict[str, str]:
    return {key: user[key] for key in _CLAIM_LABELS}
