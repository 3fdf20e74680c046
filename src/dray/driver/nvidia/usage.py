"""How much of the cards is used, by whom: NVML's numbers joined with the claims and pods that have the cards."""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dray.driver.nvidia.cards import Card
from dray.telemetry import Registry

PROC = Path("/proc")
_CLAIM_VARIABLE = "DRAY_CLAIM_DEVICE__"
_CLAIM_LABELS = ("namespace", "claim", "pod")


@dataclass(frozen=True, slots=True)
class CardUser:
    """A claim that has a card or a part of it. Its limit is 0 where it may use all memory of what it has."""

    claim_uid: str
    labels: Mapping[str, str]
    memory_limit: int


@dataclass(frozen=True, slots=True)
class CardUsage:
    """One reading of a card's numbers by metric, the claims that had the card then, and the memory that the processes
    of each claim have, by the claim's UID; what NVML does not know is left out."""

    values: Mapping[str, float]
    users: Sequence[CardUser]
    memory_of_claims: Mapping[str, int]


def claim_variable(claim_uid: str, device: str, card: str) -> str:
    """An entry for the environment of a claim's processes, by which `read_usage` knows whose they are."""
    name = f"{_CLAIM_VARIABLE}{device}__{claim_uid}".upper().replace("-", "_")
    return f"{name}={claim_uid}/{card}"


def labels_in_common(users: Collection[Mapping[str, str]]) -> dict[str, str]:
    """Labels for a number that belongs to all of these together: from the first on which they differ, all are empty."""
    common = dict.fromkeys(_CLAIM_LABELS, "")
    for key in _CLAIM_LABELS:
        values = {labels[key] for labels in users}
        if len(values) != 1:
            break
        common[key] = values.pop()
    return common


def read_usage(nvml: Any, card: Card, users: Sequence[CardUser], proc: Path) -> CardUsage:
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
    return CardUsage(values, users, _memory_of_claims(nvml, handle, card.name, proc))


def _memory_of_claims(nvml: Any, handle: Any, card: str, proc: Path) -> Mapping[str, int]:
    """NVML lists each process with its own memory: clients of MPS too, beside the MPS server, which has little."""
    memory: Counter[str] = Counter()
    with contextlib.suppress(nvml.NVMLError):
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            for claim in _claims_of_process(proc / str(process.pid), card):
                memory[claim] += process.usedGpuMemory or 0
    return memory


def _claims_of_process(folder: Path, card: str) -> set[str]:
    """UIDs of the claims through which a process has the card; none for a process that has ended or is not of a claim."""
    return {uid for uid, named in _claims_and_cards(folder) if named == card}


def _claims_and_cards(folder: Path) -> Iterator[tuple[str, str]]:
    try:
        environment = (folder / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return
    for entry in environment.split("\0"):
        if entry.startswith(_CLAIM_VARIABLE):
            uid, _, card = entry.partition("=")[2].partition("/")
            yield uid, card


def add_usage_metrics(registry: Registry, readings: Callable[[], Mapping[Card, CardUsage]]) -> None:
    """One line for each card, which names the claim that alone has it; and one line for each claim of a card."""

    def samples(metric: str) -> Iterable[tuple[dict[str, str], float]]:
        for card, usage in readings().items():
            if metric in usage.values:
                labels = labels_in_common([user.labels for user in usage.users])
                yield {"device": card.name, "uuid": card.uuid} | labels, usage.values[metric]

    def limits() -> Iterable[tuple[dict[str, str], float]]:
        for card, usage in readings().items():
            for user in usage.users:
                if user.memory_limit:
                    yield {"device": card.name} | dict(user.labels), user.memory_limit

    def used_by_claims() -> Iterable[tuple[dict[str, str], float]]:
        for card, usage in readings().items():
            for user in usage.users:
                yield {"device": card.name} | dict(user.labels), usage.memory_of_claims.get(user.claim_uid, 0)

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
