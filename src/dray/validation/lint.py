"""Checks one manifest without a server: field names, types, rules, feature gates and versions."""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dray.api.codec import shape_document
from dray.api.defaults import apply_defaults
from dray.api.errors import DecodeError
from dray.api.gated_fields import dropped_features
from dray.api.kep_field_names import (
    OLD_NAMES,
    canonical_spelling,
)
from dray.api.manifests import Manifest
from dray.api.prepare_for_write import prepared_create
from dray.api.resource import ADMIN_ACCESS_LABEL
from dray.api.scalars import UnknownField
from dray.api.schemas import StructSchema, known_kinds, schema_for, struct
from dray.api.strategies import Setting
from dray.api.versions import to_storage
from dray.features import FeatureGates
from dray.validation.dispatch import validate_create
from dray.validation.errors import ValidationContext
from dray.validation.shorthand_hints import repair
from dray.validation.warnings import ignored_fields

Severity = Literal["error", "warning", "hint"]
Document = dict[str, Any]

_NOW = "2026-01-01T00:00:00Z"
_DEPRECATED = {
    "resource.k8s.io/v1beta1": "deprecated in v1.35+, unavailable in v1.38+",
    "resource.k8s.io/v1beta2": "deprecated in v1.36+, unavailable in v1.39+",
    "resource.k8s.io/v1alpha3": "",
}


@dataclass(frozen=True, slots=True)
class LintFinding:
    line: int
    severity: Severity
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.line}: {self.severity}: {self.path + ': ' if self.path else ''}{self.message}"


def lint(
    manifest: Manifest, gates: FeatureGates, namespaces: Mapping[str, Mapping[str, str]] | None = None
) -> list[LintFinding]:
    """All findings about one object; `namespaces` holds the labels of the known namespaces."""
    found = [_finding(manifest, *said) for said in _judge(manifest, gates, namespaces or {})]
    return sorted(dict.fromkeys(found), key=lambda finding: finding.line)


def _finding(manifest: Manifest, severity: Severity, path: str, message: str) -> LintFinding:
    return LintFinding(manifest.lines.at(path), severity, path, message)


Said = tuple[Severity, str, str]


def _judge(manifest: Manifest, gates: FeatureGates, namespaces: Mapping[str, Mapping[str, str]]) -> Iterator[Said]:
    for path in manifest.duplicate_fields:
        yield "error", path, f'duplicate field "{path}"'
    api_version = manifest.api_version
    if not api_version and (likely := _likely_version(manifest)):
        yield "error", "apiVersion", f"apiVersion is missing: write apiVersion: {likely}"
        api_version = likely
    schema = schema_for(api_version, manifest.kind)
    if schema is None:
        yield from _unknown_kind(manifest)
        return
    yield from _old_version(manifest)
    try:
        shaped = yield from _shape({**manifest.document, "apiVersion": api_version}, schema)
        yield from _rules(shaped, api_version, gates, namespaces)
    except DecodeError as error:
        yield "error", error.path, error.message


def _shape(document: Document, schema: StructSchema) -> Generator[Said, None, Document]:
    """Yields what was wrong with the document, and returns it in shape."""
    canonical = canonical_spelling(document)
    if canonical is not document:
        yield from _old_spelling(document)
    repaired, hints = repair(canonical, schema)
    for hint in hints:
        yield "error", hint.path, hint.message
    shaped = shape_document(repaired)
    for field in shaped.unknown:
        yield "error", field.path, f"{field}{_suggestion(field)}"
    return shaped.document


def _rules(
    shaped: Document, api_version: str, gates: FeatureGates, namespaces: Mapping[str, Mapping[str, str]]
) -> Iterator[Said]:
    stored = to_storage(apply_defaults(shaped, _NOW))
    for names, fields in dropped_features(stored, gates):
        place = next((path for path in _paths_of(shaped, fields[0])), "")
        yield "warning", place, f"the server drops {', '.join(fields)}: feature gate {' and '.join(names)} is off"
    namespace = (shaped.get("metadata") or {}).get("namespace") or "default"
    # Only a known namespace can lack the label; an unknown one may have it.
    labels = namespaces.get(namespace, {ADMIN_ACCESS_LABEL: "true"})
    context = ValidationContext(gates, labels, api_version)
    prepared = prepared_create(stored, Setting(gates, _NOW))
    for error in validate_create(prepared, context):
        yield "error", error.field, error.body
    for path, message in ignored_fields(prepared):
        yield "error", path, message
    yield from _driver_case(stored)


def _paths_of(value: Any, name: str, path: str = "") -> Iterator[str]:
    """Where a field of this name is, in order."""
    if isinstance(value, dict):
        for key, inner in value.items():
            here = f"{path}.{key}" if path else key
            if key == name:
                yield here
            yield from _paths_of(inner, name, here)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _paths_of(inner, name, f"{path}[{i}]")


def _old_spelling(document: Document) -> Iterator[Said]:
    for old in ("nativeResourceMappings", "nativeResourceAccountingPolicies", "managesNativeResources"):
        for path in _paths_of(document, old):
            yield "hint", path, f"{old} is read as {OLD_NAMES[old]}, its name of today"
    for path in _paths_of(document, "nativeResourceClaimStatus"):
        yield "hint", path, "nativeResourceClaimStatus is read as nodeAllocatableResourceClaimStatuses"


def _suggestion(field: UnknownField) -> str:
    return _nearest(field.name, list(struct(field.struct).fields))


def _likely_version(manifest: Manifest) -> str:
    """The version that knows most of the object's fields; the newest one of these."""
    versions = [version for version, kind in known_kinds() if kind == manifest.kind]
    return min(
        versions, key=lambda version: (_unknown_field_count(manifest, version), len(version), version), default=""
    )


def _unknown_field_count(manifest: Manifest, api_version: str) -> int:
    schema = schema_for(api_version, manifest.kind)
    assert schema is not None
    try:
        repaired, _ = repair(canonical_spelling(manifest.document), schema)
        return len(shape_document(repaired, api_version=api_version).unknown)
    except DecodeError:
        return len(manifest.document)


def _unknown_kind(manifest: Manifest) -> Iterator[Said]:
    if not manifest.kind or not manifest.api_version:
        missing = " and ".join(n for n, v in (("apiVersion", manifest.api_version), ("kind", manifest.kind)) if not v)
        yield "error", "", f"{missing} is missing: what is this?"
        return
    versions = [version for version, kind in known_kinds() if kind == manifest.kind]
    group = manifest.api_version.rpartition("/")[0]
    if any(version.rpartition("/")[0] == group for version in versions):
        others = ", ".join(version for version in versions if version.rpartition("/")[0] == group)
        yield "error", "apiVersion", f'no kind "{manifest.kind}" in version "{manifest.api_version}", but in {others}'
        return
    yield from _misspelt_kind(manifest.api_version, manifest.kind, group)


def _misspelt_kind(api_version: str, kind: str, group: str) -> Iterator[Said]:
    """A kind that no Kubernetes has in one of its own groups is an error; in a group of others it may be a custom resource."""
    groups = dict.fromkeys(version.rpartition("/")[0] for version, _ in known_kinds())
    if group in groups:
        # The kinds of lists are not among the known ones.
        if not kind.endswith("List"):
            known = [name for version, name in known_kinds() if version.rpartition("/")[0] == group]
            yield "error", "kind", f'no kind "{kind}" in version "{api_version}"{_nearest(kind, known)}'
        return
    near = difflib.get_close_matches(group, list(groups), n=1, cutoff=0.85)
    if near and any(name == kind for version, name in known_kinds() if version.rpartition("/")[0] == near[0]):
        yield "error", "apiVersion", f'no group "{group}" has a {kind}, did you mean {near[0]}?'
    else:
        yield "hint", "kind", f"{api_version} {kind} is not a kind we know, so it was not checked"


def _nearest(name: str, known: list[str]) -> str:
    lowered = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.7)
    return f", did you mean {lowered[near[0]]}?" if near else ""


def _old_version(manifest: Manifest) -> Iterator[Said]:
    if since := _DEPRECATED.get(manifest.api_version):
        yield "warning", "apiVersion", f"{manifest.api_version} {manifest.kind} is {since}"


def _driver_case(document: Document) -> Iterator[Said]:
    driver = (document.get("spec") or {}).get("driver") if document.get("kind") == "ResourceSlice" else None
    if isinstance(driver, str) and driver != driver.lower():
        message = f'driver names should be lowercase; "{driver}" contains uppercase characters'
        yield "warning", "spec.driver", message
