"""Rules for the smaller core kinds: Node, Namespace, Lease and PriorityClass."""

from __future__ import annotations

from dray.api import names
from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE
from dray.validation.quotas import check_amount

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def check_node(document: Document, old: Document | None, errors: Errors) -> None:
    spec = document.get("spec") or {}
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(spec.get("taints") or ()):
        # Kubernetes says metadata here, although taints are in the spec.
        path = f"metadata.taints[{i}]"
        key, value, effect = (taint.get(field) or "" for field in ("key", "value", "effect"))
        errors.each_invalid(f"{path}.key", key, names.qualified_name_problems(key))
        errors.each_invalid(f"{path}.value", value, names.label_value_problems(value))
        if not effect:
            errors.required(f"{path}.effect")
        elif effect not in TAINT_EFFECTS:
            errors.not_supported(f"{path}.effect", effect, TAINT_EFFECTS)
        if (key, effect) in seen:
            # Printed as Go prints it.
            taint = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            errors.duplicate(path, taint, "taints must be unique by key and effect pair")
        seen.add((key, effect))
    check_node_status(document, old, errors)
    if old is not None:
        _check_node_addresses(spec, old.get("spec") or {}, errors)


def check_node_status(document: Document, old: Document | None, errors: Errors) -> None:
    """Amounts that are stored already may stay, so that such a node can still be changed."""
    status, before = document.get("status") or {}, (old or {}).get("status") or {}
    for field in ("allocatable", "capacity"):
        for name, amount in (status.get(field) or {}).items():
            if (before.get(field) or {}).get(name) != amount:
                check_amount(name, amount, f"status.{field}.{name}", errors)


def _check_node_addresses(spec: Document, before: Document, errors: Errors) -> None:
    if before.get("podCIDRs") and (spec.get("podCIDRs") or []) != before["podCIDRs"]:
        errors.forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')
    if before.get("providerID") and (spec.get("providerID") or "") != before["providerID"]:
        errors.forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')


def check_namespace(document: Document, errors: Errors) -> None:
    for finalizer in (document.get("spec") or {}).get("finalizers") or ():
        problems = names.qualified_name_problems(finalizer)
        errors.each_invalid("spec.finalizers", finalizer, problems)
        if not problems and "/" not in finalizer and finalizer != "kubernetes":
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            errors.invalid("spec.finalizers", finalizer, detail)


def check_lease(document: Document, errors: Errors) -> None:
    spec = document.get("spec") or {}
    if (duration := spec.get("leaseDurationSeconds")) is not None and duration <= 0:
        errors.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if (transitions := spec.get("leaseTransitions")) is not None and transitions < 0:
        errors.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
    strategy = spec.get("strategy")
    if strategy is not None and strategy not in LEASE_STRATEGIES:
        errors.not_supported("spec.strategy.strategy", strategy, LEASE_STRATEGIES)
    if spec.get("preferredHolder") and not strategy:
        errors.forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined")


LEASE_STRATEGIES = ("OldestEmulationVersion",)
HIGHEST_PRIORITY = 1_000_000_000
SYSTEM_PRIORITIES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


def check_priority_class(new: Document, old: Document | None, errors: Errors) -> None:
    if old is not None:
        if (new.get("value") or 0) != (old.get("value") or 0):
            errors.forbidden("value", "may not be changed in an update.")
        if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
            errors.invalid("preemptionPolicy", new.get("preemptionPolicy"), IMMUTABLE)
        return
    name, value = (new.get("metadata") or {}).get("name") or "", new.get("value") or 0
    if name.startswith("system-"):
        if why := _system_priority_problem(name, value, is_default=bool(new.get("globalDefault"))):
            detail = f"priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            errors.forbidden("metadata.name", detail)
    elif value > HIGHEST_PRIORITY:
        errors.forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}")
    policy = new.get("preemptionPolicy")
    if policy and policy not in PREEMPTION_POLICIES:
        errors.not_supported("preemptionPolicy", policy, PREEMPTION_POLICIES)


def _system_priority_problem(name: str, value: int, *, is_default: bool) -> str:
    if name not in SYSTEM_PRIORITIES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_PRIORITIES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""
