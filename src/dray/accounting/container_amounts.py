"""The amounts in a pod's spec and status, container by container, without claims.

Init containers run one after the other, sidecars (init containers that restart always) from their turn to the end, containers
last; the highest of all moments counts. Amounts are whole nano-units here, so that nothing is lost before the final rounding.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dray.api.core import Container, ContainerStatus, Pod, ResourceRequirements
from dray.api.dra.qos import is_pod_level_resource, sets_pod_level_resources
from dray.api.quantity import Quantity

Role = Literal["init", "sidecar", "container", "pod"]
Amounts = tuple[tuple[str, int], ...]


class Source(NamedTuple):
    """One container and the amounts it asks for."""

    name: str
    role: Role
    amounts: Amounts


def peak_amounts(sources: Sequence[Source]) -> dict[str, int]:
    """Per resource, the most that is asked for at one moment. Sources come init containers first, in order."""
    running: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for source in sources:
        role = source.role
        if role == "init":
            for name, nanos in source.amounts:
                total = nanos + sidecars.get(name, 0)
                if name not in peak or total > peak[name]:
                    peak[name] = total
            continue
        for name, nanos in source.amounts:
            running[name] = running.get(name, 0) + nanos
            if role == "sidecar":
                sidecars[name] = sidecars.get(name, 0) + nanos
    for name, nanos in peak.items():
        if name not in running or nanos > running[name]:
            running[name] = nanos
    return running


def moments(sources: Sequence[Source]) -> list[list[Source]]:
    """Which containers run at the same time: first the containers with all sidecars, then each init container with the sidecars before it."""
    together = [[source for source in sources if source.role != "init"]]
    sidecars: list[Source] = []
    for source in sources:
        if source.role == "sidecar":
            sidecars.append(source)
        if source.role in ("init", "sidecar"):
            together.append([*(other for other in sidecars if other is not source), source])
    return together


Quantities = Mapping[str, Quantity]

_RESIZE_PENDING = "PodResizePending"
_INFEASIBLE = "Infeasible"
_NOTHING: Quantities = {}


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Which parts of a pod are looked at; the names and defaults are those of Kubernetes."""

    use_claim_status: bool = False
    exclude_overhead: bool = False
    skip_pod_level_resources: bool = False
    skip_container_level_resources: bool = False
    non_missing_container_requests: Quantities = field(default_factory=dict)
    use_status_resources: bool = False
    in_place_pod_level_resources: bool = False


class AmountReading(NamedTuple):
    """One answer to what the containers have. With a resize under way there are several, and the highest counts."""

    sources: tuple[Source, ...]
    # The kubelet reports what is in force with the claims' amounts in it.
    includes_claims: bool = False

    @property
    def is_of_pod(self) -> bool:
        """One amount for the whole pod instead of one per container."""
        return len(self.sources) == 1 and self.sources[0].role == "pod"


class Ask(NamedTuple):
    """Everything that decides a pod's amounts except its claims; equal for all pods of one template."""

    readings: tuple[AmountReading, ...]
    level: Amounts = ()
    overhead: Amounts = ()


def is_resize_infeasible(pod: Pod) -> bool:
    for condition in pod.status.conditions:
        if condition.type == _RESIZE_PENDING:
            return condition.reason == _INFEASIBLE
    return False


def requests_asked(pod: Pod, options: RequestOptions) -> Ask:
    """The requests of the containers, the pod level and the overhead, without claims."""
    if options.skip_container_level_resources:
        readings: tuple[AmountReading, ...] = ()
    elif options.use_status_resources and _has_resource_status(pod):
        readings = _without_repeats(_resizing_requests(pod, options))
    elif options.non_missing_container_requests:
        readings = (AmountReading(_sources(pod, _spec_requests, options.non_missing_container_requests)),)
    else:
        readings = (AmountReading(_spec_sources(pod)),)
    level = pod.spec.resources
    return Ask(
        readings,
        _level(pod, options, level.requests, pod.status.allocated_resources, _requests) if level else (),
        () if options.exclude_overhead else as_amounts(pod.spec.overhead),
    )


def limits_asked(pod: Pod, options: RequestOptions) -> Ask:
    """As `requests_asked`, for limits. Skipping containers is a matter of requests alone, as in Kubernetes."""
    if options.use_status_resources and _has_resource_status(pod):
        readings = _without_repeats(_resizing_limits(pod, options))
    else:
        readings = (AmountReading(_sources(pod, _spec_limits)),)
    level = pod.spec.resources
    return Ask(
        readings,
        _level(pod, options, level.limits, _NOTHING, _limits) if level else (),
        () if options.exclude_overhead else as_amounts(pod.spec.overhead),
    )


def _has_resource_status(pod: Pod) -> bool:
    """Does the status say anything about resources?"""
    status = pod.status
    if status.resources is not None or status.allocated_resources:
        return True
    for each in (*status.container_statuses, *status.init_container_statuses):
        if each.resources is not None or each.allocated_resources:
            return True
    return is_resize_infeasible(pod)


def _without_repeats(readings: tuple[AmountReading, ...]) -> tuple[AmountReading, ...]:
    """Once a resize is over, all readings are the same; with the claims on top, the first is the highest."""
    first = readings[0]
    if first.includes_claims:
        return readings
    return (first, *(reading for reading in readings[1:] if reading.sources != first.sources))


def as_amounts(quantities: Quantities) -> Amounts:
    return tuple([(name, quantity.nanos) for name, quantity in quantities.items()]) if quantities else ()


# --- containers --------------------------------------------------------------------------------------------------------

Take = Callable[[Container], Quantities]


def _spec_requests(container: Container) -> Quantities:
    return container.resources.requests


def _spec_limits(container: Container) -> Quantities:
    return container.resources.limits


def _sources(pod: Pod, take: Take, non_missing: Quantities = _NOTHING) -> tuple[Source, ...]:
    spec = pod.spec
    sources = [_source(container, _init_role(container), take, non_missing) for container in spec.init_containers]
    sources += [_source(container, "container", take, non_missing) for container in spec.containers]
    return tuple(sources)


def _spec_sources(pod: Pod) -> tuple[Source, ...]:
    """`_sources` of the spec's requests, in one go: this is asked for every pod (benchmark: demand-3-containers)."""
    spec = pod.spec
    sources = [
        Source(each.name, "container", tuple([(name, q.nanos) for name, q in each.resources.requests.items()]))
        for each in spec.containers
    ]
    if spec.init_containers:
        init = [_source(each, _init_role(each), _spec_requests, _NOTHING) for each in spec.init_containers]
        sources = init + sources
    return tuple(sources)


def _source(container: Container, role: Role, take: Take, non_missing: Quantities) -> Source:
    amounts = as_amounts(take(container))
    if non_missing:
        amounts = with_defaults(amounts, as_amounts(non_missing))
    return Source(container.name, role, amounts)


def with_defaults(amounts: Amounts, defaults: Amounts) -> Amounts:
    """An explicit amount stays, be it zero."""
    present = {name for name, _ in amounts}
    return (*amounts, *(entry for entry in defaults if entry[0] not in present))


def _init_role(container: Container) -> Role:
    return "sidecar" if container.restart_policy == "Always" else "init"


# --- in-place resize ---------------------------------------------------------------------------------------------------


def _requests(resources: ResourceRequirements) -> Quantities:
    return resources.requests


def _limits(resources: ResourceRequirements) -> Quantities:
    return resources.limits


def _resizing_requests(pod: Pod, options: RequestOptions) -> tuple[AmountReading, ...]:
    """The wanted amounts, the amounts that the node granted, and the amounts in force."""
    infeasible, defaults = is_resize_infeasible(pod), options.non_missing_container_requests
    readings = [] if infeasible else [AmountReading(_sources(pod, _spec_requests, defaults))]
    status = pod.status
    if options.in_place_pod_level_resources and status.allocated_resources and status.resources:
        in_force = status.resources.requests
        if in_force:
            return (*readings, *_pod_readings(status.allocated_resources, in_force))
    statuses = _statuses_by_name(pod)

    def fallback(container: Container) -> Quantities:
        return _NOTHING if infeasible else container.resources.requests

    def granted(container: Container) -> Quantities:
        found = statuses.get(container.name)
        return (found and found.allocated_resources) or fallback(container)

    def in_effect(container: Container) -> Quantities:
        found = statuses.get(container.name)
        actual = found.resources.requests if found and found.resources else None
        return actual or granted(container)

    readings.append(AmountReading(_sources(pod, granted, defaults)))
    readings.append(AmountReading(_sources(pod, in_effect, defaults), includes_claims=True))
    return tuple(readings)


def _resizing_limits(pod: Pod, options: RequestOptions) -> tuple[AmountReading, ...]:
    infeasible = is_resize_infeasible(pod)
    readings = () if infeasible else (AmountReading(_sources(pod, _spec_limits)),)
    status = pod.status
    if options.in_place_pod_level_resources and status.resources and status.resources.limits:
        return (*readings, *_pod_readings(status.resources.limits))
    statuses = _statuses_by_name(pod)

    def in_effect(container: Container) -> Quantities:
        found = statuses.get(container.name)
        actual = found.resources.limits if found and found.resources else None
        return actual or (_NOTHING if infeasible else container.resources.limits)

    return (*readings, AmountReading(_sources(pod, in_effect), includes_claims=True))


def _pod_readings(*lists: Quantities) -> Iterable[AmountReading]:
    return [AmountReading((Source("", "pod", as_amounts(quantities)),), includes_claims=True) for quantities in lists]


def _statuses_by_name(pod: Pod) -> dict[str, ContainerStatus]:
    both = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {status.name: status for status in both}


# --- pod level ---------------------------------------------------------------------------------------------------------


def _level(
    pod: Pod,
    options: RequestOptions,
    wanted: Quantities,
    granted: Quantities,
    part: Callable[[ResourceRequirements], Quantities],
) -> Amounts:
    """Pod-level amounts, which replace the sum of the containers; other names than the supported ones are ignored."""
    if options.skip_pod_level_resources or not _names_level(pod, part):
        return ()
    in_force = pod.status.resources
    if options.use_status_resources and options.in_place_pod_level_resources and in_force is not None:
        spec = _NOTHING if is_resize_infeasible(pod) else wanted
        wanted = _highest(spec, part(in_force), granted)
    return tuple((name, quantity.nanos) for name, quantity in wanted.items() if is_pod_level_resource(name))


def _names_level(pod: Pod, part: Callable[[ResourceRequirements], Quantities]) -> bool:
    level = pod.spec.resources
    if level is None:
        return False
    # Limits in force count for a pod that only sets pod-level requests, but not the other way round.
    if part is _limits:
        return sets_pod_level_resources(pod)
    return any(map(is_pod_level_resource, level.requests))


def _highest(*lists: Quantities) -> dict[str, Quantity]:
    highest: dict[str, Quantity] = {}
    for quantities in lists:
        for name, quantity in quantities.items():
            if name not in highest or quantity > highest[name]:
                highest[name] = quantity
    return highest
