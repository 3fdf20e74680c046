"""What is wrong with a CustomResourceDefinition, in the words of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from dray.api.names import dns_1035_label_problems, subdomain_problems
from dray.api.safe_get import mapping, mappings, part, strings, text
from dray.apiserver.custom_resources import json_paths
from dray.apiserver.custom_resources.structural_schemas import (
    forbidden,
    invalid,
    required,
    schema_problems,
    unsupported,
)
from dray.apiserver.errors import OptionError
from dray.apiserver.request.request_info import Document
from dray.validation.errors import Errors
from dray.validation.webhooks import check_client_config

COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("", "binary", "byte", "date", "date-time", "double", "float", "int32", "int64", "password")
MAX_SELECTABLE_FIELDS = 8
PER_VERSION = ("additionalPrinterColumns", "selectableFields", "subresources")
UNCHANGEABLE = ("group", "scope")


def definition_problems(document: Document, old: Document | None) -> list[OptionError]:
    found = list(_problems(document))
    if old is not None:
        found += _change_problems(document, old)
    return found


def _problems(document: Document) -> Iterator[OptionError]:
    spec = mapping(document, "spec")
    names = mapping(spec, "names")
    expected = f"{text(names, 'plural')}.{text(spec, 'group')}"
    if text(document, "metadata", "name") != expected:
        yield invalid("metadata.name", text(document, "metadata", "name"), 'must be spec.names.plural+"."+spec.group')
    yield from _group_problems(text(spec, "group"))
    if text(spec, "scope") not in ("Cluster", "Namespaced"):
        scope = text(spec, "scope")
        yield unsupported("spec.scope", scope, ("Cluster", "Namespaced")) if scope else required("spec.scope")
    if spec.get("preserveUnknownFields"):
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield invalid("spec.preserveUnknownFields", True, why)
    yield from _versions_problems(mappings(spec, "versions"))
    yield from _names_problems(names)
    yield from _conversion_problems(mapping(spec, "conversion"))


def _group_problems(group: str) -> Iterator[OptionError]:
    if not group:
        yield required("spec.group")
    elif problems := subdomain_problems(group):
        yield invalid("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")


def _versions_problems(versions: list[Document]) -> Iterator[OptionError]:
    names = [text(version, "name") for version in versions]
    for at, version in enumerate(versions):
        yield from _version_problems(version, f"spec.versions[{at}]", versions)
    if len(set(names)) != len(names):
        yield invalid("spec.versions", names, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid("spec.versions", names, "must have exactly one version marked as storage version")


def _shared(versions: list[Document], field: str) -> bool:
    """Kubernetes keeps what all versions have in common once, and names that place."""
    return all(version.get(field) == versions[0].get(field) for version in versions)


def _version_problems(version: Document, path: str, versions: list[Document]) -> Iterator[OptionError]:
    def where(field: str, shared: str) -> str:
        return f"spec.{shared}" if _shared(versions, field) else f"{path}.{field}"

    if version is not versions[0] and all(map(partial(_shared, versions), ("schema", *PER_VERSION))):
        return
    if problems := dns_1035_label_problems(text(version, "name")):
        yield invalid(f"{path}.name", text(version, "name"), ",".join(problems))
    schema = part(version, "schema", "openAPIV3Schema")
    if not isinstance(schema, dict):
        yield required(f"{path}.schema.openAPIV3Schema")
        return
    schema_path = where("schema", "validation") + ".openAPIV3Schema"
    yield from schema_problems(schema, schema_path)
    if schema.get("nullable"):
        yield forbidden(f"{schema_path}.nullable", "nullable cannot be true at the root")
    columns, fields, parts = (where(field, field) for field in PER_VERSION)
    for at, column in enumerate(mappings(version, "additionalPrinterColumns")):
        yield from _column_problems(column, f"{columns}[{at}]")
    yield from _selectable_problems(mappings(version, "selectableFields"), schema, fields)
    if scale := mapping(version, "subresources", "scale"):
        yield from _scale_problems(scale, f"{parts}.scale")


def _column_problems(column: Document, path: str) -> Iterator[OptionError]:
    kind, form = text(column, "type"), text(column, "format")
    if not text(column, "name"):
        yield required(f"{path}.name")
    if kind not in COLUMN_TYPES:
        why = f"must be one of {','.join(COLUMN_TYPES)}"
        yield invalid(f"{path}.type", kind, why) if kind else required(f"{path}.type", why)
    if form not in COLUMN_FORMATS:
        yield invalid(f"{path}.format", form, f"must be one of {','.join(COLUMN_FORMATS[1:])}")
    json_path = text(column, "jsonPath")
    if not json_path:
        yield required(f"{path}.JSONPath")
    elif problem := _path_problem(json_path):
        yield invalid(f"{path}.JSONPath", json_path, problem)


def _path_problem(path: str) -> str:
    try:
        json_paths.parsed(path)
    except json_paths.BadPath as error:
        return str(error)
    return ""


def _selectable_problems(fields: list[Document], schema: Document, path: str) -> Iterator[OptionError]:
    seen: set[str] = set()
    for at, entry in enumerate(fields):
        json_path, where = text(entry, "jsonPath"), f"{path}[{at}].jsonPath"
        if not json_path:
            yield required(where)
            continue
        if problem := _selected_problem(json_path, schema):
            yield invalid(where, json_path, problem)
        if json_path in seen:
            yield OptionError("Duplicate", where, f'Duplicate value: "{json_path}"')
        seen.add(json_path)
    if len(seen) > MAX_SELECTABLE_FIELDS:
        yield OptionError("TooMany", path, f"Too many: {len(seen)}: must have at most {MAX_SELECTABLE_FIELDS} items")


def _selected_problem(path: str, schema: Document) -> str:
    if problem := _path_problem(path):
        return f"is an invalid path: {problem}"
    steps = json_paths.parsed(path)
    if steps[0].field == "metadata":
        return "must not point to fields in metadata"
    found: Any = schema
    for step in steps:
        found = part(found, "properties", step.field) if step.field else None
        if not isinstance(found, dict):
            return "is an invalid path: does not refer to a valid field"
    if found.get("type") not in ("string", "boolean", "integer"):
        return "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
    return ""


def _scale_problems(scale: Document, path: str) -> Iterator[OptionError]:
    for field, roots in (
        ("specReplicasPath", (".spec.",)),
        ("statusReplicasPath", (".status.",)),
        ("labelSelectorPath", (".spec.", ".status.")),
    ):
        value = text(scale, field)
        if not value:
            if field != "labelSelectorPath":
                yield required(f"{path}.{field}")
        elif _path_problem(value) or any(not step.field for step in json_paths.parsed(value)):
            yield invalid(f"{path}.{field}", value, "must be a json path in the dot notation")
        elif not value.startswith(roots):
            where = "either .spec or .status" if len(roots) > 1 else roots[0].rstrip(".")
            yield invalid(f"{path}.{field}", value, f"should be a json path under {where}")


def _names_problems(names: Document) -> Iterator[OptionError]:
    for field in ("plural", "singular", "kind", "listKind"):
        name = text(names, field)
        if not name:
            yield required(f"spec.names.{field}")
            continue
        is_kind = field in ("kind", "listKind")
        if problems := dns_1035_label_problems(name.lower() if is_kind else name):
            prefix = "may have mixed case, but should otherwise match: " if is_kind else ""
            yield invalid(f"spec.names.{field}", name, prefix + ",".join(problems))
    if text(names, "kind") and text(names, "kind") == text(names, "listKind"):
        yield invalid("spec.names.listKind", text(names, "listKind"), "kind and listKind may not be the same")
    for field in ("shortNames", "categories"):
        for at, name in enumerate(strings(names, field)):
            if problems := dns_1035_label_problems(name):
                yield invalid(f"spec.names.{field}[{at}]", name, ",".join(problems))


def _conversion_problems(conversion: Document) -> Iterator[OptionError]:
    strategy, webhook = text(conversion, "strategy"), part(conversion, "webhook")
    if strategy not in ("None", "Webhook"):
        yield unsupported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook":
        if not isinstance(webhook, dict) or part(webhook, "clientConfig") is None:
            yield required("spec.conversion.webhookClientConfig", "required when strategy is set to Webhook")
            return
        errors = Errors()
        check_client_config(mapping(webhook, "clientConfig"), "spec.conversion.webhookClientConfig", errors)
        yield from (
            OptionError(error.type.removeprefix("FieldValue"), error.field, error.body) for error in errors.found
        )
        if not {"v1", "v1beta1"} & set(strings(webhook, "conversionReviewVersions")):
            why = "must include at least one of v1, v1beta1"
            yield invalid("spec.conversion.conversionReviewVersions", strings(webhook, "conversionReviewVersions"), why)
    elif webhook is not None:
        why = "should not be set when strategy is not set to Webhook"
        yield forbidden("spec.conversion.webhookClientConfig", why)


def _storage(spec: Document) -> str:
    return next((text(version, "name") for version in mappings(spec, "versions") if version.get("storage")), "")


def _change_problems(document: Document, old: Document) -> Iterator[OptionError]:
    """What may not change once the kind has been served."""
    spec, before = mapping(document, "spec"), mapping(old, "spec")
    if any(
        condition.get("type") == "Established" and condition.get("status") == "True"
        for condition in mappings(old, "status", "conditions")
    ):
        for field in UNCHANGEABLE:
            if text(spec, field) != text(before, field):
                yield invalid(f"spec.{field}", text(spec, field), "field is immutable")
        for field in ("plural", "kind"):
            if text(spec, "names", field) != text(before, "names", field):
                yield invalid(f"spec.names.{field}", text(spec, "names", field), "field is immutable")
    was, now = (_storage(each) for each in (before, spec))
    if was != now and text(spec, "conversion", "strategy") == "Webhook":
        yield forbidden("spec.versions", "the storage version cannot change while a webhook converts between versions")
    served = {text(version, "name") for version in mappings(spec, "versions")}
    stored = strings(document, "status", "storedVersions")
    for at, version in enumerate(stored):
        if version not in served:
            why = (
                f"missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until "
                f"a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
            )
            yield invalid(f"status.storedVersions[{at}]", version, why)
