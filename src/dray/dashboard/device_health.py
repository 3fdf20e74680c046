"""Health problems of devices, as the statuses of pods and claims report them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dray.api.core import Pod, ResourceHealth
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_claims import claim_names_by_entry
from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim

DeviceKey = tuple[str, str, str]
Reports = Mapping[DeviceKey, str]
"""What is wrong, by driver, pool and device."""

NOTHING: Reports = {}
# Conditions of an allocated device that say it works; False means that it does not.
_GOOD_CONDITIONS = ("Ready", "Healthy")


class DeviceHealthReports:
    """Reports by who made them: each pod and each claim replaces its own."""

    def __init__(self) -> None:
        self._by_source: dict[str, Reports] = {}
        self._by_device: dict[DeviceKey, dict[str, str]] = {}

    def problem_of(self, device: DeviceKey) -> str:
        """Empty if nobody complains."""
        return "; ".join(dict.fromkeys(self._by_device.get(device, {}).values()))

    def reports_of(self, source: str) -> Reports:
        return self._by_source.get(f"pod {source}", NOTHING)

    def put_pod(self, key: str, reports: Reports) -> None:
        self._put(f"pod {key}", reports)

    def put_claim(self, claim: ResourceClaim) -> None:
        reports = {
            (row.driver, row.pool, row.device): f"{each.type} is {each.status}: {each.message or each.reason}"
            for row in claim.status.devices
            for each in row.conditions
            if each.type in _GOOD_CONDITIONS and each.status == "False"
        }
        self._put(f"claim {claim.metadata.namespace}/{claim.metadata.name}", reports)

    def forget_pod(self, key: str) -> None:
        self._put(f"pod {key}", NOTHING)

    def forget_claim(self, key: str) -> None:
        self._put(f"claim {key}", NOTHING)

    def _put(self, source: str, reports: Reports) -> None:
        for device in self._by_source.pop(source, NOTHING):
            told = self._by_device[device]
            del told[source]
            if not told:
                del self._by_device[device]
        if reports:
            self._by_source[source] = reports
        for device, problem in reports.items():
            self._by_device.setdefault(device, {})[source] = problem


def reported_by(pod: Pod, claims: Mapping[tuple[str, str], ResourceClaim]) -> Reports:
    """Unhealthy devices in the status of a pod's containers."""
    reports: dict[DeviceKey, str] = {}
    names = claim_names_by_entry(pod)
    for container in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        for status in container.allocated_resources_status:
            entry, _, request = status.name.removeprefix("claim:").partition("/")
            claim = claims.get((pod.metadata.namespace, names.get(entry, "")))
            if claim is not None:
                results = list(_results(claim, request))
                for line in status.resources:
                    if line.health == "Unhealthy":
                        for row in _meant_by(line, results):
                            reports[(row.driver, row.pool, row.device)] = line.message or "reported as unhealthy"
    return reports


def _results(claim: ResourceClaim, request: str) -> Iterator[DeviceRequestAllocationResult]:
    for row in allocation_results(claim):
        if not request or row.request.partition("/")[0] == request:
            yield row


def _meant_by(
    line: ResourceHealth, results: list[DeviceRequestAllocationResult]
) -> list[DeviceRequestAllocationResult]:
    """The report names the device, or the CDI name that a driver made for it, which commonly ends in the device's name.

    Where neither leads to one device, all that it can be are meant: better one look too many.
    """
    exact = [row for row in results if line.resource_id == f"{row.driver}/{row.pool}/{row.device}"]
    if exact:
        return exact
    of_driver = [row for row in results if line.resource_id.startswith(f"{row.driver}/")] or results
    named = [row for row in of_driver if line.resource_id.endswith(row.device)]
    longest = max((len(row.device) for row in named), default=0)
    return [row for row in named if len(row.device) == longest] or of_driver
