"""Rules for PodDisruptionBudget."""

from __future__ import annotations

from dray.validation.errors import Document, Errors
from dray.validation.label_selectors import check_label_selector
from dray.validation.shares import check_at_most_all, check_share

EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def check_budget(document: Document, errors: Errors) -> None:
    spec = document.get("spec") or {}
    least, most, policy = (spec.get(name) for name in ("minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy"))
    if least is not None and most is not None:
        # Printed as Go prints it.
        shown = {"MinAvailable": least, "Selector": spec.get("selector"), "MaxUnavailable": most}
        shown["UnhealthyPodEvictionPolicy"] = policy
        errors.invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for name, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            check_share(value, f"spec.{name}", errors)
            check_at_most_all(value, f"spec.{name}", errors)
    if (selector := spec.get("selector")) is not None:
        check_label_selector(selector, "spec.selector", errors)
    if policy is not None and policy not in EVICTION_POLICIES:
        errors.not_supported("spec.unhealthyPodEvictionPolicy", policy, EVICTION_POLICIES)
