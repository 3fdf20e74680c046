"""Rules for ResourceQuota: which resources can be limited, and which scopes select pods."""

from __future__ import annotations

from dray.api import names
from dray.api.quantity import Quantity
from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE

# Numbers of objects.
COUNTS = frozenset(
    [
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ]
)
QUOTA_NAMES = COUNTS | frozenset(
    [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    ]
)
STANDARD_NAMES = QUOTA_NAMES | {"storage"}
_POD_AMOUNTS = frozenset(["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"])
# Scope to the names that make sense with it.
SCOPES = {
    "Terminating": _POD_AMOUNTS,
    "NotTerminating": _POD_AMOUNTS,
    "BestEffort": frozenset(["pods"]),
    "NotBestEffort": _POD_AMOUNTS,
    "PriorityClass": _POD_AMOUNTS,
    "CrossNamespacePodAffinity": _POD_AMOUNTS,
    "VolumeAttributesClass": frozenset(["persistentvolumeclaims", "requests.storage"]),
}
# Scopes that a pod has or has not.
_PLAIN_SCOPES = frozenset(["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity"])
_PLAIN_RULE = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
OPPOSITES = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_MOST_SCOPES = 100
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def check_quota(document: Document, old: Document | None, errors: Errors) -> None:
    spec = document.get("spec") or {}
    _check_hard(spec.get("hard") or {}, errors)
    _check_scopes(spec, errors)
    _check_selector(spec.get("scopeSelector") or {}, errors)
    if old is not None:
        _check_scopes_kept(spec, old.get("spec") or {}, errors)


def _check_hard(hard: Document, errors: Errors) -> None:
    for name, amount in hard.items():
        path, problems = f"spec.hard[{name}]", names.qualified_name_problems(name)
        errors.each_invalid(path, name, problems)
        if "/" not in name:
            _check_standard(name, path, errors, is_name=not problems)
        check_amount(name, amount, path, errors)


def _check_standard(name: str, path: str, errors: Errors, *, is_name: bool) -> None:
    is_huge = name.startswith(("hugepages-", "requests.hugepages-"))
    if is_name and not is_huge and name not in STANDARD_NAMES:
        errors.invalid(path, name, "must be a standard resource type or fully qualified")
    if not is_huge and name not in QUOTA_NAMES:
        errors.invalid(path, name, "must be a standard resource for quota")


def is_standard(name: str) -> bool:
    """A resource that Kubernetes knows without a domain."""
    return name in STANDARD_NAMES or name.startswith("hugepages-")


def is_extended(name: str) -> bool:
    """Of a device plugin or the like: no resource of Kubernetes' own, and no request for one."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def check_amount(name: str, amount: str, path: str, errors: Errors) -> None:
    """Never negative; objects and extended resources are counted in whole numbers."""
    nanos = Quantity.parse(amount).nanos
    if nanos < 0:
        errors.invalid(path, amount, "must be greater than or equal to 0")
    if nanos % 10**9 and (name in COUNTS or is_extended(name)):
        errors.invalid(path, amount, "must be an integer")


def _check_scopes(spec: Document, errors: Errors) -> None:
    scopes = spec.get("scopes") or []
    limited = sorted(name for name in spec.get("hard") or {} if name in QUOTA_NAMES)
    # Each error prints the whole list.
    for scope in scopes[:_MOST_SCOPES]:
        if scope not in SCOPES:
            errors.invalid("spec.scopes", scopes, "unsupported scope")
            continue
        for name in limited:
            if name not in SCOPES[scope]:
                errors.invalid("spec.scopes", scopes, "unsupported scope applied to resource")
    for pair in OPPOSITES:
        if set(pair) <= set(scopes):
            errors.invalid("spec.scopes", scopes, "conflicting scopes")


def _check_selector(selector: Document, errors: Errors) -> None:
    path = "spec.scopeSelector.matchExpressions"
    for entry in selector.get("matchExpressions") or ():
        scope, operator, values = entry.get("scopeName") or "", entry.get("operator") or "", entry.get("values") or []
        if scope not in SCOPES:
            errors.invalid(f"{path}.scopeName", scope, "unsupported scope")
        if scope in _PLAIN_SCOPES and operator != "Exists":
            errors.invalid(f"{path}.operator", operator, _PLAIN_RULE)
        if operator in ("In", "NotIn") and not values:
            errors.required(
                f"{path}.values", "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            )
        if operator in ("Exists", "DoesNotExist") and values:
            detail = "must be no value when `operator` is 'Exists' or 'DoesNotExist' for scope selector"
            errors.invalid(f"{path}.values", values, detail)
        if operator not in OPERATORS:
            errors.invalid(f"{path}.operator", operator, "not a valid selector operator")


def _check_scopes_kept(spec: Document, before: Document, errors: Errors) -> None:
    for field in ("scopes", "scopeSelector"):
        now, was = spec.get(field) or None, before.get(field) or None
        if (sorted(now or ()) != sorted(was or ())) if field == "scopes" else (now != was):
            errors.invalid(f"spec.{field}", spec.get(field), IMMUTABLE)
