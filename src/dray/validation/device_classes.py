"""Rules for DeviceClass: selectors, configuration, and the extended resource it stands for."""

from __future__ import annotations

from dray.api import names
from dray.api.names import is_node_allocatable
from dray.validation.claims import check_selectors
from dray.validation.equality import same
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import check_opaque
from dray.validation.node_allocatable import check_policy

MAX_CONFIGS = 32


def check_class(document: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec = document.get("spec") or {}
    before = (old.get("spec") or {}) if old is not None else None
    selectors, configs = spec.get("selectors") or [], spec.get("config") or []
    unchanged = before is not None and same(selectors, before.get("selectors") or [])
    check_selectors(selectors, "spec.selectors", context, errors, unchanged=unchanged)
    if len(configs) > MAX_CONFIGS:
        errors.too_many("spec.config", len(configs), MAX_CONFIGS, declarative=True)
    else:
        stored = before is not None and same(configs, before.get("config") or [])
        for i, config in enumerate(configs):
            check_opaque(config.get("opaque"), f"spec.config[{i}].opaque", errors, skip_size=stored)
    if (name := spec.get("extendedResourceName")) is not None:
        _check_extended_resource(name, "spec.extendedResourceName", errors)
    _check_policies(
        spec.get("nodeAllocatableResourceAccountingPolicies") or {}, "nodeAllocatableResourceAccountingPolicies", errors
    )


def _check_extended_resource(name: str, path: str, errors: Errors) -> None:
    if "/" not in name:
        detail = "a name must be a domain-prefixed path, such as 'example.com/my-prop'"
        errors.invalid(path, name, detail, declarative=True)
        return
    if "kubernetes.io/" in name:
        errors.invalid(path, name, 'must not have "kubernetes.io/" domain', declarative=True)
    if name.startswith("requests."):
        errors.invalid(path, name, 'must not have "requests." prefix', declarative=True)
    # Quota counts it as requests.<name>, so that has to be a valid name as well.
    errors.each_invalid(path, name, names.qualified_name_problems(f"requests.{name}"), declarative=True)


def _check_policies(policies: Document, field: str, errors: Errors) -> None:
    for resource, policy in policies.items():
        path = f"spec.{field}[{resource}]"
        if not is_node_allocatable(resource):
            errors.invalid(path, resource, "must be a node allocatable resource name")
        check_policy(policy, path, errors)
