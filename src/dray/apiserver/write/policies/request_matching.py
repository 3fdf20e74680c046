"""Which requests do rules and selectors mean? The same fields stand in policies, in their bindings and in webhooks.

A rule names API versions. With `matchPolicy: Equivalent`, the default, it also means requests in the other versions of the
kind: a client must not slip through in another version. The caller then shows the object in the version that the rule names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dray.api.safe_get import mapping, mappings, strings, text
from dray.api.scheme import RESOURCES, Resource, by_plural
from dray.apiserver.read.selectors import selects
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.stored_object import storage_row
from dray.apiserver.write.admission.chain import Admission

ALL = "*"
EXACT = "Exact"


class MatchedResource(NamedTuple):
    """The group and version in which a rule means the resource of a request."""

    group: str
    version: str


def matches_request(resources: Document, admission: Admission, namespace: Document | None) -> bool:
    return matched_by(resources, admission, namespace) is not None


def matched_by(resources: Document, admission: Admission, namespace: Document | None) -> MatchedResource | None:
    """`namespace` is the request's namespace (or the Namespace being written); None for cluster-scoped objects."""
    if not selects_request(resources, admission, namespace):
        return None
    exact = text(resources, "matchPolicy") == EXACT
    if matched_resource(mappings(resources, "excludeResourceRules"), admission, exact=exact):
        return None
    rules = mappings(resources, "resourceRules")
    if not rules:
        return MatchedResource(admission.attributes.group, admission.attributes.version)
    return matched_resource(rules, admission, exact=exact)


def selects_request(resources: Document, admission: Admission, namespace: Document | None) -> bool:
    """Whether `namespaceSelector` and `objectSelector` select the request."""
    if namespace is not None and not selects(mapping(resources, "namespaceSelector"), _labels(namespace)):
        return False
    selector = mapping(resources, "objectSelector")
    return not selector or any(selects(selector, _labels(found)) for found in _objects_of(admission))


def _labels(document: Document) -> Document:
    """No copy: an object can have as many labels as a request has room for, and each webhook and policy asks for them."""
    return mapping(document, "metadata", "labels")


def _objects_of(admission: Admission) -> list[Document]:
    return [found for found in (admission.document, admission.old) if found is not None]


def matched_resource(rules: Iterable[Document], admission: Admission, *, exact: bool) -> MatchedResource | None:
    """What the first matching rule means; the version of the request comes before equivalent ones."""
    concerned = [rule for rule in rules if _concerns(rule, admission)]
    if not concerned:
        return None
    asked = MatchedResource(admission.attributes.group, admission.attributes.version)
    if any(_means(rule, asked) for rule in concerned):
        return asked
    if exact:
        return None
    return next((found for rule in concerned for found in _equivalents(admission) if _means(rule, found)), None)


def _concerns(rule: Document, admission: Admission) -> bool:
    """All of a rule but groups and versions."""
    names = strings(rule, "resourceNames")
    return (
        _has(strings(rule, "operations"), admission.operation)
        and any(_resource_matches(pattern, admission) for pattern in strings(rule, "resources"))
        and _scope_matches(text(rule, "scope"), admission)
        and (not names or admission.name in names)
    )


def _means(rule: Document, resource: MatchedResource) -> bool:
    return _has(strings(rule, "apiGroups"), resource.group) and _has(strings(rule, "apiVersions"), resource.version)


def _has(values: list[str], wanted: str) -> bool:
    return ALL in values or wanted in values


def _equivalents(admission: Admission) -> Iterator[MatchedResource]:
    """The kind's other versions, and for events also the other group."""
    row = admission.row or by_plural(admission.attributes.group, admission.attributes.resource)
    if row is None:
        return
    for other in _same_objects(row):
        yield from (MatchedResource(other.group, version.name) for version in other.versions)


def _same_objects(row: Resource) -> list[Resource]:
    if row.plural != "events" or row.custom is not None:
        return [row]
    return [other for other in RESOURCES if storage_row(other) is storage_row(row)]


def _resource_matches(pattern: str, admission: Admission) -> bool:
    resource, subresource = admission.attributes.resource, admission.attributes.subresource
    wanted, slash, wanted_sub = pattern.partition("/")
    if wanted not in (ALL, resource):
        return False
    if not slash:
        return not subresource
    return wanted_sub in (ALL, subresource)


def _scope_matches(scope: str, admission: Admission) -> bool:
    if scope in ("", ALL):
        return True
    is_namespaced = bool(admission.attributes.namespace) and admission.attributes.resource != "namespaces"
    return is_namespaced == (scope == "Namespaced")
