"""Which fields of each kind a field selector may name, and their values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dray.api.scheme import Resource, group_version
from dray.apiserver.errors import bad_request
from dray.apiserver.read.selectors import FieldSelector
from dray.apiserver.request.request_info import FieldRequirement

Document = dict[str, Any]
FieldsOf = Callable[[Document], dict[str, str]]

# How a kind refuses a field it does not know: each group of kinds has its own words.
PLAIN = "plain"  # field label not supported: spec.x
WITH_KIND = "with kind"  # field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.x
META_ONLY = "metadata only"  # "spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"


def _section(document: Document, *names: str) -> Document:
    for name in names:
        document = document.get(name) or {}
    return document


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _meta(document: Document) -> dict[str, str]:
    metadata = document["metadata"]
    return {"metadata.name": metadata.get("name", ""), "metadata.namespace": metadata.get("namespace", "")}


def _pod(document: Document) -> dict[str, str]:
    spec, status = _section(document, "spec"), _section(document, "status")
    fields = _meta(document)
    for name in ("nodeName", "restartPolicy", "schedulerName", "serviceAccountName"):
        fields[f"spec.{name}"] = _text(spec.get(name))
    fields["spec.hostNetwork"] = _text(bool(spec.get("hostNetwork")))
    for name in ("phase", "nominatedNodeName"):
        fields[f"status.{name}"] = _text(status.get(name))
    ips = [_text(entry.get("ip")) for entry in status.get("podIPs") or () if isinstance(entry, dict)]
    fields["status.podIP"] = fields["status.podIPs"] = ips[0] if ips else _text(status.get("podIP"))
    return fields


def _slice(document: Document) -> dict[str, str]:
    spec = _section(document, "spec")
    return {
        **_meta(document),
        "spec.nodeName": _text(spec.get("nodeName")),
        "spec.driver": _text(spec.get("driver")),
        "spec.pool.name": _text(_section(spec, "pool").get("name")),
    }


EVENT_OBJECT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _event(document: Document) -> dict[str, str]:
    involved, source = _section(document, "involvedObject"), _section(document, "source")
    return {
        **_meta(document),
        **{f"involvedObject.{name}": _text(involved.get(name)) for name in EVENT_OBJECT},
        "reason": _text(document.get("reason")),
        "reportingComponent": _text(document.get("reportingComponent")),
        "source": _text(source.get("component")) or _text(document.get("reportingComponent")),
        "type": _text(document.get("type")),
    }


def _namespace(document: Document) -> dict[str, str]:
    return {
        **_meta(document),
        "status.phase": _text(_section(document, "status").get("phase")),
        "name": document["metadata"]["name"],
    }


def _secret(document: Document) -> dict[str, str]:
    return {**_meta(document), "type": _text(document.get("type"))}


def _service(document: Document) -> dict[str, str]:
    spec = _section(document, "spec")
    return {**_meta(document), "spec.clusterIP": _text(spec.get("clusterIP")), "spec.type": _text(spec.get("type"))}


def _node(document: Document) -> dict[str, str]:
    return {
        **_meta(document),
        "spec.unschedulable": _text(bool(_section(document, "spec").get("unschedulable"))),
    }


def _replica_set(document: Document) -> dict[str, str]:
    return {**_meta(document), "status.replicas": _text(_section(document, "status").get("replicas") or 0)}


def _job(document: Document) -> dict[str, str]:
    return {**_meta(document), "status.successful": _text(_section(document, "status").get("succeeded") or 0)}


def _of_spec(*names: str) -> FieldsOf:
    def fields(document: Document) -> dict[str, str]:
        spec = _section(document, "spec")
        return {**_meta(document), **{f"spec.{name}": _text(spec.get(name)) for name in names}}

    return fields


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a kind that may be selected, the words that refuse an unknown field, and other names for fields."""

    of: FieldsOf = _meta
    refusal: str = META_ONLY
    aliases: tuple[tuple[str, str], ...] = ()


META = Fields()
FIELDS: dict[tuple[str, str], Fields] = {
    ("", "pods"): Fields(_pod, PLAIN, (("spec.host", "spec.nodeName"),)),
    ("", "nodes"): Fields(_node, PLAIN),
    ("", "namespaces"): Fields(_namespace, PLAIN),
    ("", "secrets"): Fields(_secret, PLAIN),
    ("", "services"): Fields(_service, PLAIN),
    ("", "events"): Fields(_event, PLAIN),
    ("events.k8s.io", "events"): Fields(
        _event,
        PLAIN,
        (
            *((f"regarding.{name}", f"involvedObject.{name}") for name in EVENT_OBJECT),
            ("reportingController", "reportingComponent"),
        ),
    ),
    ("resource.k8s.io", "resourceslices"): Fields(_slice, WITH_KIND),
    ("apps", "replicasets"): Fields(_replica_set, PLAIN),
    ("batch", "jobs"): Fields(_job, PLAIN),
    ("certificates.k8s.io", "certificatesigningrequests"): Fields(_of_spec("signerName"), PLAIN),
    ("certificates.k8s.io", "clustertrustbundles"): Fields(_of_spec("signerName"), PLAIN),
    ("certificates.k8s.io", "podcertificaterequests"): Fields(_of_spec("signerName", "podName", "nodeName"), PLAIN),
}


def fields_of(row: Resource) -> FieldsOf:
    return FIELDS.get((row.group, row.plural), META).of


def _known(fields: Fields) -> frozenset[str]:
    return frozenset(fields.of({"metadata": {"name": ""}}))


KNOWN = {key: _known(fields) for key, fields in FIELDS.items()}
META_FIELDS = _known(META)


def checked(row: Resource, version: str, selector: FieldSelector) -> FieldSelector:
    """The selector with other names resolved; raises 400 if the kind cannot be selected by one of its fields."""
    if not selector:
        return selector
    key = (row.group, row.plural)
    fields, known = FIELDS.get(key, META), KNOWN.get(key, META_FIELDS)
    aliases = dict(fields.aliases)
    terms = []
    for term in selector.requirements:
        field = aliases.get(term.field, term.field)
        if field not in known or (not row.namespaced and field == "metadata.namespace" and fields.refusal != META_ONLY):
            raise bad_request(_refusal(row, version, fields.refusal, term.field))
        terms.append(FieldRequirement(field, term.operator, term.value))
    return FieldSelector(tuple(terms))


def _refusal(row: Resource, version: str, style: str, field: str) -> str:
    if style == PLAIN:
        return f"field label not supported: {field}"
    if style == WITH_KIND:
        return f"field label not supported for {group_version(row.group, version)}, Kind={row.kind}: {field}"
    return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
