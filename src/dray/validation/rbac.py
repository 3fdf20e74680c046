"""Rules for roles and their bindings: verbs and resources of a rule, role references, subjects."""

from __future__ import annotations

from typing import Any

from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE
from dray.validation.label_selectors import check_label_selector

GROUP = "rbac.authorization.k8s.io"
SUBJECT_KINDS = ("ServiceAccount", "User", "Group")


def check_role(document: Document, old: Document | None, errors: Errors) -> None:
    """A Role or a ClusterRole; only a ClusterRole may name URLs."""
    namespaced = document.get("kind") == "Role"
    for index, rule in enumerate(document.get("rules") or ()):
        _check_rule(rule or {}, f"rules[{index}]", errors, namespaced=namespaced)
    aggregation = document.get("aggregationRule")
    if not namespaced and aggregation is not None and (old is None or aggregation != old.get("aggregationRule")):
        _check_aggregation(aggregation.get("clusterRoleSelectors") or [], errors)


def _check_aggregation(selectors: list[Document], errors: Errors) -> None:
    path = "aggregationRule.clusterRoleSelectors"
    if not selectors:
        errors.required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
    for i, selector in enumerate(selectors):
        before = len(errors)
        check_label_selector(selector, f"{path}[{i}]", errors)
        if len(errors) > before:
            errors.invalid(f"{path}[{i}]", None, "invalid label selector.")


def _check_rule(rule: Document, path: str, errors: Errors, *, namespaced: bool) -> None:
    if not rule.get("verbs"):
        errors.required(f"{path}.verbs", declarative=True)
    urls = rule.get("nonResourceURLs")
    if urls:
        field = f"{path}.nonResourceURLs"
        if namespaced:
            errors.invalid(field, urls, "namespaced rules cannot apply to non-resource URLs")
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            errors.invalid(field, urls, "rules cannot apply to both regular resources and non-resource URLs")
        return
    if not rule.get("apiGroups"):
        errors.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        errors.required(f"{path}.resources", "resource rules must supply at least one resource")


def check_binding(new: Document, old: Document | None, errors: Errors) -> None:
    """A RoleBinding or a ClusterRoleBinding. What it refers to cannot be changed: make another one."""
    reference: dict[str, Any] = new.get("roleRef") or {}
    if old is not None and reference != (old.get("roleRef") or {}):
        errors.invalid("roleRef", _as_go(reference), IMMUTABLE)
    namespaced = new.get("kind") == "RoleBinding"
    if reference.get("apiGroup") != GROUP:
        errors.not_supported("roleRef.apiGroup", reference.get("apiGroup") or "", (GROUP,))
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    if reference.get("kind") not in kinds:
        errors.not_supported("roleRef.kind", reference.get("kind") or "", kinds)
    if not reference.get("name"):
        errors.required("roleRef.name", declarative=True)
    for index, subject in enumerate(new.get("subjects") or ()):
        _check_subject(subject or {}, f"subjects[{index}]", errors, namespaced=namespaced)


def _as_go(reference: Document) -> Document:
    """The reference with the names that Kubernetes' own type has; its message shows them."""
    return {"APIGroup": reference.get("apiGroup"), "Kind": reference.get("kind"), "Name": reference.get("name")}


def _check_subject(subject: Document, path: str, errors: Errors, *, namespaced: bool) -> None:
    if not subject.get("name"):
        errors.required(f"{path}.name")
    kind, group = subject.get("kind") or "", subject.get("apiGroup") or ""
    if kind not in SUBJECT_KINDS:
        errors.not_supported(f"{path}.kind", kind, SUBJECT_KINDS)
        return
    expected = "" if kind == "ServiceAccount" else GROUP
    if group != expected:
        errors.not_supported(f"{path}.apiGroup", group, (expected,))
    if kind == "ServiceAccount" and not namespaced and not subject.get("namespace"):
        errors.required(f"{path}.namespace")
