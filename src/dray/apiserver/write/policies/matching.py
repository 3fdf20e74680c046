"""Which requests a policy or a binding looks at: `matchConstraints` and `matchResources`."""

from dray.api.scheme import by_plural
from dray.apiserver.read.selectors import selects
from dray.apiserver.request.request_info import Document
from dray.apiserver.safe_get import (
    labels_of,
    mapping,
    mappings,
    strings,
    text,
)
from dray.apiserver.write.admission.chain import Admission

ALL = "*"


def matches(resources: Document, admission: Admission, namespace: Document | None) -> bool:
    """`namespace` is the request's namespace (or the Namespace being written); None for cluster-scoped objects."""
    if namespace is not None and not selects(mapping(resources, "namespaceSelector"), labels_of(namespace)):
        return False
    selector = mapping(resources, "objectSelector")
    if selector and not any(selects(selector, labels_of(found)) for found in _versions(admission)):
        return False
    if any(_rule_matches(rule, admission) for rule in mappings(resources, "excludeResourceRules")):
        return False
    rules = mappings(resources, "resourceRules")
    return not rules or any(_rule_matches(rule, admission) for rule in rules)


def _versions(admission: Admission) -> list[Document]:
    return [found for found in (admission.document, admission.old) if found is not None]


def _rule_matches(rule: Document, admission: Admission) -> bool:
    attributes = admission.attributes
    names = strings(rule, "resourceNames")
    return (
        _has(strings(rule, "operations"), admission.operation)
        and _has(strings(rule, "apiGroups"), attributes.group)
        and _version_matches(strings(rule, "apiVersions"), admission)
        and any(_resource_matches(pattern, admission) for pattern in strings(rule, "resources"))
        and _scope_matches(text(rule, "scope"), admission)
        and (not names or admission.name in names)
    )


def _has(values: list[str], wanted: str) -> bool:
    return ALL in values or wanted in values


def _version_matches(versions: list[str], admission: Admission) -> bool:
    """A rule about one version of a kind means the kind: a client must not slip through in another version."""
    if _has(versions, admission.attributes.version):
        return True
    row = by_plural(admission.attributes.group, admission.attributes.resource)
    return row is not None and any(version.name in versions for version in row.versions)


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
