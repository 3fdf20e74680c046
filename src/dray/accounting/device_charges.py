"""From allocated devices to amounts: what each claim of a pod takes from the node's cpu, memory and huge pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dray.accounting.charges import (
    ClaimCharge,
    DeviceShare,
    MappedAmount,
    OverheadAmount,
    Policy,
    charges_in_status,
    claim_statuses,
)
from dray.accounting.devices import DeviceIndex, DeviceNeed, IndexedDevice
from dray.accounting.errors import (
    AccountingError,
    AmountOverflow,
    ClaimNotPublished,
    DeviceNotFound,
    DeviceNotOnNode,
    NegativeAmount,
    PolicyMissing,
)
from dray.accounting.resources import MAX_AMOUNT, ledger_amount
from dray.api.core import Pod
from dray.api.dra.pod_claims import claim_names_by_entry, containers_by_entry
from dray.api.quantity import NANOS, Quantity
from dray.api.resource import AllocationResult, DeviceClass, DeviceRequestAllocationResult, ResourceClaim

Classes = Mapping[str, DeviceClass]
ServesNode = Callable[[IndexedDevice], bool]


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A claim with its allocation: the stored one, or the one that is about to be written."""

    claim: ResourceClaim
    allocation: AllocationResult

    @property
    def key(self) -> str:
        return f"{self.claim.metadata.namespace}/{self.claim.metadata.name}"


@dataclass(frozen=True, slots=True)
class DeviceLookup:
    """Finds devices, classes and the devices that a node can reach."""

    devices: DeviceIndex
    classes: Classes
    serves_node: ServesNode | None = None


def claim_charges(pod: Pod, claims: Mapping[str, AllocatedClaim], inventory: DeviceLookup) -> tuple[ClaimCharge, ...]:
    """The amounts that the pod's claims take, each claim once. `claims` are keyed by their name in `spec.resourceClaims`.

    Claims that take nothing are left out. Raises `AccountingError` if an amount cannot be told.
    """
    users = containers_by_entry(pod)
    charges = [_charge(users, names, allocated, inventory) for names, allocated in _distinct(claims)]
    return tuple([charge for charge in charges if charge is not None])


def claim_charges_of_published(
    pod: Pod, claims: Mapping[str, AllocatedClaim], inventory: DeviceLookup
) -> tuple[ClaimCharge, ...]:
    """As `claim_charges`, but a claim of which no device is in any slice takes nothing, as in Kubernetes."""
    published = {name: allocated for name, allocated in claims.items() if _is_published(allocated, inventory)}
    return claim_charges(pod, published, inventory)


def manages_node_resources(device_class: DeviceClass) -> bool:
    """Does the class say that its devices take from the node? Then a pool may serve what the spec asks for, and the claims decide about fit."""
    spec = device_class.spec
    return bool(spec.manages_node_allocatable_resources or spec.node_allocatable_resource_accounting_policies)


def _is_published(allocated: AllocatedClaim, inventory: DeviceLookup) -> bool:
    return any(
        inventory.devices.find(result.driver, result.pool, result.device)
        for result in allocated.allocation.devices.results
    )


def _distinct(claims: Mapping[str, AllocatedClaim]) -> list[tuple[list[str], AllocatedClaim]]:
    """Two entries of a pod may point at one claim, which still counts once. In order of claim names."""
    by_key: dict[str, tuple[list[str], AllocatedClaim]] = {}
    for name, allocated in claims.items():
        by_key.setdefault(allocated.key, ([], allocated))[0].append(name)
    return [by_key[key] for key in sorted(by_key)]


def _charge(
    users: Mapping[str, list[str]], pod_claim_names: list[str], allocated: AllocatedClaim, inventory: DeviceLookup
) -> ClaimCharge | None:
    """The amounts that one claim takes; None if its devices declare nothing."""
    tally = _Tally(allocated)
    devices = inventory.devices
    for result in allocated.allocation.devices.results:
        published = devices.find(result.driver, result.pool, result.device)
        if published is None:
            tally.missing.append(result)
            continue
        tally.found += 1
        needs = devices.needs(published)
        if needs and inventory.serves_node is not None and not inventory.serves_node(published):
            raise DeviceNotOnNode(
                f"claim {allocated.key}, device {result.device}: device {result.device} does not match node"
            )
        for need in needs:
            tally.enter(need, result, published, inventory.classes)
    tally.refuse_missing()
    if not tally.mapped and not tally.overhead:
        return None
    return ClaimCharge(
        allocated.claim.metadata.name,
        _users_of(users, pod_claim_names, allocated.claim.metadata.name),
        tuple(tally.mapped.values()),
        tuple(tally.overhead.values()),
    )


def _users_of(users: Mapping[str, list[str]], pod_claim_names: list[str], claim_name: str) -> tuple[str, ...]:
    """Each container once, though it may list several requests of the claim."""
    names = [user for name in pod_claim_names for user in users.get(name, ())]
    return tuple(dict.fromkeys((*names, *users.get(f"/{claim_name}", ()))))


class _Tally:
    """The amounts of one claim while its devices are gone through."""

    def __init__(self, allocated: AllocatedClaim) -> None:
        self.allocated = allocated
        self.mapped: dict[tuple[str, Policy, bool], MappedAmount] = {}
        self.overhead: dict[str, OverheadAmount] = {}
        self.found = 0
        self.missing: list[DeviceRequestAllocationResult] = []

    def enter(
        self, need: DeviceNeed, result: DeviceRequestAllocationResult, published: IndexedDevice, classes: Classes
    ) -> None:
        quantity = _mapped_quantity(need, result, published)
        if quantity is not None:
            share = self._share(need.resource, result, quantity)
            policy = need.policy or self._class_policy(need, result, classes)
            key = (need.resource, policy, need.in_mapping_list)
            present = self.mapped.get(key)
            if present is not None:
                quantity = present.quantity + quantity
                share = (*present.shares, *share)
            self._refuse_overflow(need.resource, quantity)
            self.mapped[key] = MappedAmount(need.resource, quantity, policy, need.in_mapping_list, share)
        if need.per_pod is not None or need.per_container is not None:
            self._enter_overhead(need, result)

    def _enter_overhead(self, need: DeviceNeed, result: DeviceRequestAllocationResult) -> None:
        resource = need.resource
        present = self.overhead.get(resource) or OverheadAmount(resource)
        per_pod, per_container = _sum(present.per_pod, need.per_pod), _sum(present.per_container, need.per_container)
        for total in (per_pod, per_container):
            if total is not None:
                self._refuse_overflow(resource, total)
        self.overhead[resource] = OverheadAmount(
            resource,
            per_pod,
            per_container,
            (*present.pod_shares, *self._share(resource, result, need.per_pod)),
            (*present.container_shares, *self._share(resource, result, need.per_container)),
        )

    def _share(
        self, resource: str, result: DeviceRequestAllocationResult, quantity: Quantity | None
    ) -> tuple[DeviceShare, ...]:
        if quantity is None:
            return ()
        if quantity.nanos < 0:
            raise NegativeAmount(
                f"claim {self.allocated.key}, device {result.device}: {resource} {quantity} is below zero"
            )
        return (DeviceShare(result.driver, result.pool, result.device, quantity.nanos),)

    def _refuse_overflow(self, resource: str, quantity: Quantity) -> None:
        if ledger_amount(resource, quantity.nanos) > MAX_AMOUNT:
            raise AmountOverflow(f"claim {self.allocated.key}: {resource} {quantity} is more than 64 bits can count")

    def _class_policy(self, need: DeviceNeed, result: DeviceRequestAllocationResult, classes: Classes) -> Policy:
        class_name = _class_of_request(self.allocated.claim, result.request)
        device_class = classes.get(class_name)
        policies = device_class.spec.node_allocatable_resource_accounting_policies if device_class else {}
        if not policies:
            return Policy.ADD_PER_CLAIM
        if need.resource not in policies:
            raise PolicyMissing(
                f"claim {self.allocated.key}, device {result.device}: no accounting policy for {need.resource}, "
                f"neither on the device nor in device class {class_name}"
            )
        return Policy.named(policies[need.resource])

    def refuse_missing(self) -> None:
        if not self.missing:
            return
        first = self.missing[0]
        text = (
            f"claim {self.allocated.key}, device {first.device}, driver {first.driver}: "
            f"device {first.device} not found in pool {first.pool} for driver {first.driver}"
        )
        raise DeviceNotFound(text) if self.found else ClaimNotPublished(text)


def _mapped_quantity(
    need: DeviceNeed, result: DeviceRequestAllocationResult, published: IndexedDevice
) -> Quantity | None:
    if need.multiplier is None or need.capacity_key is None:
        return need.multiplier
    # A device of its own has no consumed capacity: the claim holds all of it.
    if result.consumed_capacity:
        base = result.consumed_capacity.get(need.capacity_key)
    else:
        base = published.device.capacity[need.capacity_key].value
    if base is None or need.multiplier.nanos == NANOS:
        return base
    return base * need.multiplier


def _class_of_request(claim: ResourceClaim, result_request: str) -> str:
    name, _, subrequest = result_request.partition("/")
    for request in claim.spec.devices.requests:
        if request.name != name:
            continue
        if request.exactly is not None:
            return request.exactly.device_class_name
        for alternative in request.first_available:
            if alternative.name == subrequest:
                return alternative.device_class_name
    return ""


def _sum(present: Quantity | None, added: Quantity | None) -> Quantity | None:
    if present is None or added is None:
        return added if present is None else present
    return present + added


ClaimsByName = Mapping[tuple[str, str], ResourceClaim]
"""Claims by namespace and name."""


def charges_of_placed(pod: Pod, claims: ClaimsByName, inventory: DeviceLookup) -> tuple[Sequence[ClaimCharge], str]:
    """The amounts that the claims of a bound pod take from its node, and a warning (empty if there is none)."""
    written = pod.status.node_allocatable_resource_claim_statuses
    try:
        found = claim_charges_of_published(pod, _allocated(pod, claims), inventory)
    except AccountingError as problem:
        return charges_in_status(written), str(problem)
    if not written:
        return found, (
            "claims take from the node, but the pod's status does not say so; "
            "a scheduler overlooks them until the pod is created again"
            if found
            else ""
        )
    # The same amounts with the devices behind them tell more than the status alone.
    if claim_statuses(found) == tuple(sorted(written, key=lambda status: status.resource_claim_name)):
        return found, ""
    odd = "its status and the devices of its claims differ; the status counts" if found else ""
    return charges_in_status(written), odd


def _allocated(pod: Pod, claims: ClaimsByName) -> dict[str, AllocatedClaim]:
    allocated = {}
    for name, claim_name in claim_names_by_entry(pod).items():
        claim = claims.get((pod.metadata.namespace, claim_name))
        if claim is not None and claim.status.allocation is not None:
            allocated[name] = AllocatedClaim(claim, claim.status.allocation)
    return allocated
