"""Claims to requests, subrequests spelled out, with everything checked that does not depend on a node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from dray.allocator.capacity_requests import RequestedCapacity
from dray.allocator.device_kinds import DeviceKind
from dray.allocator.matches import DeviceFilter, capacity_key_of
from dray.allocator.selectors import Selectors
from dray.allocator.types import FatalError, Features
from dray.api.resource import (
    MAX_ALLOCATION_RESULTS,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)

MOST_COUNT = 2**63 - 1

Spec = ExactDeviceRequest | DeviceSubRequest

CountOf = Callable[["Option"], int]


class Option:
    """An `exactly` request, or one alternative of a `firstAvailable` request."""

    __slots__ = (
        "admin_access",
        "all_devices",
        "base_name",
        "claim",
        "count",
        "derived",
        "device_class",
        "device_filter",
        "features",
        "index",
        "name",
        "request",
        "tolerations",
    )

    def __init__(self, request: ClaimRequest, spec: Spec, device_class: DeviceClass, name: str) -> None:
        problem = request.claim.problem
        self.request = request
        self.claim = request.claim
        self.name = name
        self.base_name = request.name
        self.device_class = device_class
        self.features = problem.features
        self.device_filter = problem.device_filter(spec, device_class, f"claim {request.claim.label}")
        self.all_devices = spec.allocation_mode == "All"
        self.count = spec.count
        self.admin_access = isinstance(spec, ExactDeviceRequest) and bool(spec.admin_access)
        self.tolerations = spec.tolerations
        self.derived = {derived.name: derived.expression for derived in spec.derived_attributes}
        self.index = len(problem.options)
        problem.options.append(self)

    def amounts(self, kind: DeviceKind) -> RequestedCapacity:
        return self.device_filter.amounts(kind)

    def __repr__(self) -> str:
        return f"Option({self.claim.label}, {self.name})"


def _labelled(owner: str, selectors: Sequence[DeviceSelector]) -> list[tuple[str, str]]:
    return [(f"{owner}: selector #{i}", s.cel.expression) for i, s in enumerate(selectors) if s.cel is not None]


class ClaimRequest:
    """One line of a claim: one option, or alternatives in order of preference."""

    __slots__ = ("claim", "index", "is_prioritized", "name", "options")

    def __init__(self, claim: ClaimProblem, spec: DeviceRequest) -> None:
        self.claim = claim
        self.name = spec.name
        self.index = len(claim.problem.requests)
        self.is_prioritized = bool(spec.first_available)
        claim.problem.requests.append(self)
        self.options: list[Option] = []
        if self.is_prioritized:
            if not claim.problem.features.prioritized_list:
                raise self._fatal("feature-off", "has subrequests, but the DRAPrioritizedList feature is disabled")
            for alternative in spec.first_available:
                self._add(alternative, f"{spec.name}/{alternative.name}")
        elif spec.exactly is not None:
            self._add(spec.exactly, spec.name)
        else:
            raise self._fatal("unsupported", "missing device class name (unsupported request type?)")

    def _add(self, spec: Spec, name: str) -> None:
        problem = self.claim.problem
        _check_spec(self, spec, problem.features)
        device_class = problem.classes.get(spec.device_class_name)
        if device_class is None:
            raise self._fatal(
                "missing-class",
                f"could not retrieve device class {spec.device_class_name}: "
                f'deviceclass.resource.k8s.io "{spec.device_class_name}" not found',
            )
        for i, selector in enumerate(device_class.spec.selectors):
            if selector.cel is None:
                raise self._fatal("unsupported", f"class selector #{i}: {EMPTY_CEL}")
        self.options.append(Option(self, spec, device_class, name))

    def _fatal(self, code: str, text: str) -> FatalError:
        return FatalError(code, f"claim {self.claim.label}, request {self.name}: {text}")


EMPTY_CEL = "CEL expression empty (unsupported selector type?)"


def _check_spec(request: ClaimRequest, spec: Spec, features: Features) -> None:
    for i, selector in enumerate(spec.selectors):
        if selector.cel is None:
            text = f"claim {request.claim.label}, request {request.name}, selector #{i}: {EMPTY_CEL}"
            raise FatalError("unsupported", text)
    if isinstance(spec, ExactDeviceRequest) and spec.admin_access is not None and not features.admin_access:
        raise request._fatal("feature-off", "admin access is requested, but the feature is disabled")
    if spec.capacity is not None and spec.capacity.requests and not features.consumable_capacity:
        raise request._fatal("feature-off", "has capacity requests, but the DRAConsumableCapacity feature is disabled")
    if spec.derived_attributes and not features.derived_attributes:
        raise request._fatal("feature-off", "cannot handle request with derived attributes, the feature is disabled")
    if not spec.device_class_name:
        raise request._fatal("unsupported", "missing device class name (unsupported request type?)")
    if spec.allocation_mode not in ("ExactCount", "All"):
        raise request._fatal("unsupported", f"unsupported count mode {spec.allocation_mode}")
    if spec.count > MOST_COUNT:
        raise request._fatal("too-many-devices", f"exact count {spec.count} is too large")


def claim_mark(index: int) -> str:
    """Stands for namespace and name of a claim in messages."""
    return f"\0{index}\0"


class ClaimProblem:
    """One claim with its requests and constraints."""

    __slots__ = ("claim", "constraints", "first_request", "index", "label", "problem", "requests")

    def __init__(self, problem: Problem, claim: ResourceClaim) -> None:
        self.problem = problem
        self.claim = claim
        self.index = len(problem.claims)
        # Claims of other pods with an equal spec share the problem; `Question` puts the right name in.
        self.label = claim_mark(self.index)
        self.first_request = len(problem.requests)
        self.requests = [ClaimRequest(self, request) for request in claim.spec.devices.requests]
        self.constraints: Sequence[DeviceConstraint] = claim.spec.devices.constraints
        for i, constraint in enumerate(self.constraints):
            if constraint.match_attribute is None and constraint.distinct_attribute is None:
                text = f"claim {self.label}, constraint #{i}: empty constraint (unsupported constraint type?)"
                raise FatalError("unsupported", text)
        if not any(option.all_devices for request in self.requests for option in request.options):
            self.check_minimum(lambda option: option.count)

    def check_minimum(self, count_of: CountOf) -> None:
        least = sum(min(count_of(option) for option in request.options) for request in self.requests)
        if least > MAX_ALLOCATION_RESULTS:
            raise FatalError(
                "too-many-devices",
                f"claim {self.label}: number of requested devices {least} exceeds "
                f"the claim limit of {MAX_ALLOCATION_RESULTS}",
            )


class Problem:
    """All claims of one pod that want devices, solved together."""

    __slots__ = (
        "_filters_by_content",
        "claims",
        "classes",
        "classes_have_configs",
        "features",
        "filters",
        "has_admin",
        "has_all",
        "is_simple",
        "options",
        "requests",
        "selectors",
    )

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        features: Features,
        selectors: Selectors,
    ) -> None:
        """Raises FatalError with the first thing that is wrong with the claims or their classes."""
        self.classes = classes
        self.features = features
        self.selectors = selectors
        self.filters: list[DeviceFilter] = []
        self._filters_by_content: dict[Hashable, DeviceFilter] = {}
        self.options: list[Option] = []
        self.requests: list[ClaimRequest] = []
        self.claims: list[ClaimProblem] = []
        for claim in claims:
            self.claims.append(ClaimProblem(self, claim))
        self.classes_have_configs = any(option.device_class.spec.config for option in self.options)
        self.has_admin = any(option.admin_access for option in self.options)
        self.has_all = any(option.all_devices for option in self.options)
        self.is_simple = not (
            self.has_admin
            or self.has_all
            or any(claim.constraints for claim in self.claims)
            or any(request.is_prioritized for request in self.requests)
        )

    def device_filter(self, spec: Spec, device_class: DeviceClass, label: str) -> DeviceFilter:
        selectors = _labelled(f"class {device_class.metadata.name}", device_class.spec.selectors)
        selectors += _labelled(label, spec.selectors)
        amounts = capacity_key_of(spec.capacity.requests, self.features) if spec.capacity is not None else ()
        content = (tuple(selectors), spec.tolerations, amounts)
        known = self._filters_by_content.get(content)
        if known is None:
            known = self._filters_by_content[content] = DeviceFilter(self, spec, selectors, label)
            self.filters.append(known)
        return known
