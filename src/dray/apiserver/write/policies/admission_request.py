"""A write as policies and webhooks see it: the `request` of their expressions and reviews."""

from __future__ import annotations

from dray.api.scheme import Resource, by_plural
from dray.apiserver.request.authorization.reviews import user_document
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.admission.chain import Admission
from dray.apiserver.write.policies.request_matching import MatchedResource


def request_document(admission: Admission, matched: MatchedResource | None = None) -> Document:
    """`matched` is the group and version that the rule names, if that is not what the client asked for."""
    attributes = admission.attributes
    asked = MatchedResource(attributes.group, attributes.version)
    shown = matched or asked
    return {
        "kind": kind_in(admission, shown),
        "resource": _resource(admission, shown),
        "subResource": attributes.subresource,
        "requestKind": kind_in(admission, asked),
        "requestResource": _resource(admission, asked),
        "requestSubResource": attributes.subresource,
        "name": admission.name,
        "namespace": _namespace(admission),
        "operation": admission.operation,
        "userInfo": {"username": "", "uid": "", "groups": [], "extra": {}, **user_document(admission.user)},
        "dryRun": attributes.dry_run,
        "options": admission.options,
    }


def kind_in(admission: Admission, resource: MatchedResource) -> dict[str, str]:
    """Group, version and kind of the object; subresources such as `binding` take another kind than their resource."""
    row = row_in(admission, resource)
    subresource = row.subresource(admission.attributes.subresource) if row else None
    if row is None:
        return {"group": resource.group, "version": resource.version, "kind": admission.kind}
    if subresource is None or not subresource.kind:
        return {"group": resource.group, "version": resource.version, "kind": row.kind}
    group = resource.group if subresource.group is None else subresource.group
    return {"group": group, "version": subresource.version or resource.version, "kind": subresource.kind}


def row_in(admission: Admission, resource: MatchedResource) -> Resource | None:
    """The kind under the group of a rule; only events are in two groups."""
    if admission.row is not None and admission.row.group == resource.group:
        return admission.row
    return by_plural(resource.group, admission.attributes.resource)


def _resource(admission: Admission, resource: MatchedResource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "resource": admission.attributes.resource}


def _namespace(admission: Admission) -> str:
    """A Namespace is in itself, also while it is being created."""
    attributes = admission.attributes
    if attributes.resource == "namespaces" and not attributes.group:
        return admission.name
    return attributes.namespace
