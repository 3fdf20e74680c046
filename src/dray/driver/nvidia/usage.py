"""How much of the cards is used, by whom: NVML's numbers joined with the claims and pods that have the cards."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dray.driver.nvidia.cards import Card
from dray.telemetry import Registry

Users = Mapping[str, Iterable[Mapping[str, str]]]
"""By the name of the card: the labels of each claim that has it or a part of it."""


@dataclass(frozen=True, slots=True)
class CardUsage:
    """One reading of a card's numbers by metric; what NVML does not know is left out."""

    values: Mapping[str, float]


def read_usage(nvml: Any, card: Card) -> CardUsage:
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
    return CardUsage(values)


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
            for user in who.get(card.name) or ({"namespace": "", "claim": "", "pod": ""},):
                yield own | {key: user[key] for key in ("namespace", "claim", "pod")}, usage.values[metric]

    def limits() -> Iterable[tuple[dict[str, str], float]]:
        for card, claims in users().items():
            for user in claims:
                if user.get("memory"):
                    labels = {key: user[key] for key in ("namespace", "claim", "pod")}
                    yield {"device": card} | labels, float(user["memory"])

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
    registry.computed_gauge(
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
