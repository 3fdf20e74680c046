"""Which pods a quota looks at."""

from dray.accounting import qos_class
from dray.api.codec import to_object
from dray.api.core import Pod
from dray.apiserver.request.request_info import Document
from dray.apiserver.safe_get import (
    mappings,
    part,
    strings,
    text,
)


def matches(quota: Document, pod: Document | None) -> bool:
    """A quota without scopes looks at everything; with scopes only at pods that fit all of them."""
    plain = strings(quota, "spec", "scopes")
    selected = mappings(quota, "spec", "scopeSelector", "matchExpressions")
    if not plain and not selected:
        return True
    if pod is None:
        return False
    terms = [{"scopeName": scope, "operator": "Exists"} for scope in plain] + selected
    return all(_term_matches(term, pod) for term in terms)


def _term_matches(term: Document, pod: Document) -> bool:
    scope = text(term, "scopeName")
    if scope == "PriorityClass":
        return _priority_matches(term, text(pod, "spec", "priorityClassName"))
    answers = {
        "Terminating": _is_terminating(pod),
        "NotTerminating": not _is_terminating(pod),
        "BestEffort": _is_best_effort(pod),
        "NotBestEffort": not _is_best_effort(pod),
        "CrossNamespacePodAffinity": _crosses_namespaces(pod),
    }
    return answers.get(scope, False)


def _priority_matches(term: Document, name: str) -> bool:
    operator, values = text(term, "operator"), strings(term, "values")
    if operator == "In":
        return name in values
    if operator == "NotIn":
        return name not in values
    return bool(name) if operator == "Exists" else operator == "DoesNotExist" and not name


def _is_terminating(pod: Document) -> bool:
    return part(pod, "spec", "activeDeadlineSeconds") is not None


def _is_best_effort(pod: Document) -> bool:
    return str(qos_class(to_object(pod, Pod))) == "BestEffort"


def _crosses_namespaces(pod: Document) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        required = mappings(pod, "spec", "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution")
        preferred = mappings(pod, "spec", "affinity", kind, "preferredDuringSchedulingIgnoredDuringExecution")
        terms = [*required, *(part(entry, "podAffinityTerm") for entry in preferred)]
        if any(part(term, "namespaces") or part(term, "namespaceSelector") is not None for term in terms):
            return True
    return False
