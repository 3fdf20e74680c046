"""The address families of a Service, in a cluster that has IPv4 only."""

from __future__ import annotations

from collections.abc import Iterator

from dray.apiserver.errors import OptionError
from dray.apiserver.request.request_info import Document

FAMILIES = ("IPv4", "IPv6")
SINGLE, PREFERRED, REQUIRED = POLICIES = ("SingleStack", "PreferDualStack", "RequireDualStack")


def fill_families(spec: Document, before: Document) -> list[OptionError]:
    """Fills in policy and families where they are missing; answers what this cluster cannot do of what is new in them."""
    is_open = spec.get("clusterIP") == "None" and not spec.get("selector")
    fallback = REQUIRED if is_open else SINGLE
    policy = spec.get("ipFamilyPolicy") or before.get("ipFamilyPolicy") or fallback
    had = before.get("ipFamilies") or []
    families = spec.get("ipFamilies") or had
    if policy == SINGLE and families == had:
        families = families[:1]
    spec["ipFamilyPolicy"], spec["ipFamilies"] = policy, families or ["IPv4"]
    if before.get("ipFamilyPolicy") == policy and families == had:
        return []
    # Validation refuses words that nobody knows, and repeated ones.
    if policy not in POLICIES or len(set(families)) < len(families) or not set(families) <= set(FAMILIES):
        return []
    if found := list(_contradictions(policy, families, had)):
        return found
    if is_open:
        # Whoever makes its endpoints may have both families, whatever the cluster has.
        if policy != SINGLE:
            spec["ipFamilies"] = [*spec["ipFamilies"], *(name for name in FAMILIES if name not in spec["ipFamilies"])]
        return []
    return list(_beyond_the_cluster(policy, families))


def _contradictions(policy: str, families: list[str], had: list[str]) -> Iterator[OptionError]:
    if policy != SINGLE and 0 < len(families) < len(had):
        yield _invalid("spec.ipFamilyPolicy", policy, "must be 'SingleStack' to release the secondary IP family")
    if policy == SINGLE and len(families) == 2:
        rule = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
        yield _invalid("spec.ipFamilyPolicy", policy, rule)


def _beyond_the_cluster(policy: str, families: list[str]) -> Iterator[OptionError]:
    if policy == REQUIRED:
        yield _invalid("spec.ipFamilyPolicy", policy, "this cluster is not configured for dual-stack services")
    for i, family in enumerate(families):
        if family != "IPv4":
            yield _invalid(f"spec.ipFamilies[{i}]", family, "not configured on this cluster")


def _invalid(path: str, value: str, why: str) -> OptionError:
    return OptionError("Invalid", path, f'Invalid value: "{value}": {why}')
