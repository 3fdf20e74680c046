"""Finds interfaces that carry no packets, for the health and the taints of devices, and counts the traffic of claims for the metrics."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dray.api.resource import DeviceTaint
from dray.driver.net.claim_records import InterfaceRecord
from dray.driver.net.links import IFF_UP, Link, operational_state
from dray.driver.net.namespaces import ask
from dray.telemetry import Registry, Sample

TAINT = "dra.net/link"
_WITHOUT_CARRIER = ("down", "lower-layer-down", "not-present")


@dataclass(frozen=True, slots=True)
class LinkProblem:
    """Why an interface carries no packets; `value` is that of the taint that keeps new claims away."""

    value: str
    message: str

    @property
    def taint(self) -> DeviceTaint:
        return DeviceTaint(key=TAINT, value=self.value, effect="NoSchedule")


@dataclass(frozen=True, slots=True)
class PodLink:
    """An interface inside a pod, as the kernel counts it there."""

    is_up: bool
    state: str
    received_bytes: int = 0
    sent_bytes: int = 0
    received_packets: int = 0
    sent_packets: int = 0


def problem_on_host(link: Link, *, is_shared: bool) -> LinkProblem | None:
    """An interface for one claim may be down: the driver turns it on in the pod. A shared interface must be up."""
    if is_shared and not link.is_up:
        return LinkProblem("down", f"interface {link.name} is down: shares of it carry nothing")
    return _without_carrier(link.name, link.is_up, link.state)


def problem_in_pod(name: str, link: PodLink | None) -> LinkProblem | None:
    """A pod may turn off its own interface: that is no problem of the interface."""
    if link is None:
        return LinkProblem("missing", f"interface {name} is not in its pod any more")
    return _without_carrier(name, link.is_up, link.state)


def _without_carrier(name: str, is_up: bool, state: str) -> LinkProblem | None:
    if is_up and state in _WITHOUT_CARRIER:
        return LinkProblem("no-carrier", f"interface {name} has no carrier")
    return None


def read_pod_link(pod: Path, mark: str) -> PodLink | None:
    """None where no interface of the namespace has the mark."""

    def read(routes: Any) -> PodLink | None:
        found = next((link for link in routes.get_links() if link.get("ifalias") == mark), None)
        if found is None:
            return None
        counted = found.get("stats64") or {}
        return PodLink(
            is_up=bool(found["flags"] & IFF_UP),
            state=operational_state(found),
            received_bytes=counted.get("rx_bytes", 0),
            sent_bytes=counted.get("tx_bytes", 0),
            received_packets=counted.get("rx_packets", 0),
            sent_packets=counted.get("tx_packets", 0),
        )

    return ask(pod, read)


PodLinks = Mapping[tuple[str, int], PodLink]
"""By the UID of the claim and the number of the device in it."""


def add_traffic_metrics(
    registry: Registry, records: Callable[[], Mapping[str, InterfaceRecord]], pod_links: Callable[[], PodLinks]
) -> None:
    """One line for each interface that a pod has."""

    def numbers(number_of: Callable[[PodLink], int]) -> Callable[[], Iterable[Sample]]:
        def compute() -> Iterable[Sample]:
            by_uid = records()
            for (uid, number), link in pod_links().items():
                if uid in by_uid:
                    for labels in _labels(by_uid[uid], number):
                        yield labels, number_of(link)

        return compute

    def limits() -> Iterable[Sample]:
        for record in records().values():
            for number, use in enumerate(record.uses):
                if use.bits_per_second is not None:
                    for labels in _labels(record, number):
                        yield labels, use.bits_per_second

    registry.computed_counter(
        "dray_net_receive_bytes_total", "Bytes that the pod received.", numbers(lambda link: link.received_bytes)
    )
    registry.computed_counter(
        "dray_net_transmit_bytes_total", "Bytes that the pod sent.", numbers(lambda link: link.sent_bytes)
    )
    registry.computed_counter(
        "dray_net_receive_packets_total", "Packets that the pod received.", numbers(lambda link: link.received_packets)
    )
    registry.computed_counter(
        "dray_net_transmit_packets_total", "Packets that the pod sent.", numbers(lambda link: link.sent_packets)
    )
    registry.computed_gauge(
        "dray_net_claim_limit_bits_per_second", "What a share may send, and what it may receive.", limits
    )


def _labels(record: InterfaceRecord, number: int) -> Iterable[dict[str, str]]:
    use = record.uses[number]
    return ({"device": use.device, "interface": use.name_in_pod} | labels for labels in record.metric_labels)
