"""What the server asks about a kind that comes from a CustomResourceDefinition: `Resource.custom` of its row.

Everything is made once, when the definition changes. Objects are documents; a version's schema prunes, fills in and judges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from dray.api.jsontext import go_json
from dray.api.safe_get import mapping, mappings, part, strings, text
from dray.api.scalars import Shaping
from dray.api.schemas import struct
from dray.api.scheme import ALL_VERBS, Resource, Subresource, Version, group_version
from dray.api.served_versions import version_order
from dray.api.shaping import shape_of
from dray.api.strategies import SPEC_AND_METADATA, STATUS_FIELDS, Setting, Strategy
from dray.apiserver.custom_resources import json_paths
from dray.apiserver.custom_resources.cel_rules import LazyRules, rule_problems
from dray.apiserver.custom_resources.conversions import PreparedConversions
from dray.apiserver.custom_resources.pruning_and_defaults import TooManyDefaults, pruned, with_defaults
from dray.apiserver.custom_resources.schema_nodes import SchemaNode, read_schema
from dray.apiserver.custom_resources.value_validation import typed_problems, value_problems
from dray.apiserver.errors import FieldErrorLike, OptionError, too_large
from dray.apiserver.read.workload_cells import age
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.field_sets import DEDUCED, LEAF, Field, OwnedFields, fields_of_struct
from dray.http.connection import MAX_BODY
from dray.validation.errors import Errors
from dray.validation.metadata import check_metadata, check_metadata_update

OBJECT_META = "meta.v1.ObjectMeta"
BLOCKING = frozenset({"Required", "TooLong", "TooMany", "TypeInvalid"})
RULES_NOT_CHECKED = OptionError(
    "Invalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to "
    "complete validation",
)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True, eq=False)
class CustomVersion:
    name: str
    schema: Document
    node: SchemaNode
    steps_for_a_value: int
    rules: LazyRules
    owned: OwnedFields
    columns: tuple[Document, ...]
    selectable: tuple[str, ...]
    has_status: bool
    scale: Document
    warning: str


@dataclass(frozen=True, slots=True, eq=False)
class CustomKind:
    group: str
    kind: str
    namespaced: bool
    storage: str
    versions: dict[str, CustomVersion]
    is_terminating: bool
    strategy: Strategy
    # For a definition with a conversion webhook; without one, versions have the same fields.
    conversions: PreparedConversions | None

    # --- reading what clients send

    def shaped(self, version: str, tree: Document) -> tuple[Document, tuple[str, ...]]:
        """The object without unknown fields, with its defaults, and what is wrong with its fields in strict reading."""
        found = self.versions[version]
        unknown: list[str] = []
        run = Shaping()
        metadata = tree.get("metadata")
        known = {**tree, "kind": self.kind, "apiVersion": group_version(self.group, version)}
        document: Document = pruned(known, found.node, unknown, is_resource=True)
        document["metadata"] = shape_of(OBJECT_META)(
            {} if metadata is None else metadata, "ObjectMeta", (None, "metadata"), run
        )
        problems = (*map(str, run.unknown), *(f'unknown field "{path}"' for path in sorted(unknown)))
        try:
            return with_defaults(document, found.node, MAX_BODY), problems
        except TooManyDefaults:
            raise too_large(MAX_BODY) from None

    def defaulted(self, document: Document) -> Document:
        found = self.versions.get(str(document.get("apiVersion")).rpartition("/")[2])
        filled: Document = with_defaults(document, found.node) if found else document
        return filled

    # --- versions

    def converted(self, document: Document, version: str) -> Document:
        """Another version of the same object: by the webhook, or its fields as they are without those that the version lacks.

        Raises NotPrepared if the webhook has to be asked first.
        """
        api_version = group_version(self.group, version)
        found = self.versions.get(version)
        if document.get("apiVersion") == api_version or found is None:
            return document
        if self.conversions is not None:
            made = self.conversions.find(document, api_version)
        else:
            made = {**document, "apiVersion": api_version}
        converted: Document = with_defaults(pruned(made, found.node, [], is_resource=True), found.node)
        return converted

    def as_stored(self, value: bytes) -> bytes | None:
        """The bytes of an object that was stored under an older definition, if they differ now."""
        storage = self.versions[self.storage]
        head = b'{"kind":"%b","apiVersion":"%b","metadata":{' % (
            self.kind.encode(), group_version(self.group, self.storage).encode(),
        )  # fmt: skip
        if value.startswith(head) and not storage.node.has_defaults_below:
            return None
        document = _decode(value)
        made = {**document, "kind": self.kind, "apiVersion": group_version(self.group, self.storage)}
        made = with_defaults(made, storage.node)
        return None if made == document and value.startswith(head) else _encode(_ordered(made))

    # --- rules

    def problems(self, new: Document, old: Document | None, version: str, endpoint: str) -> Sequence[FieldErrorLike]:
        found = self.versions[version]
        errors = Errors()
        if old is None:
            check_metadata(new, "metadata", errors, namespaced=self.namespaced)
        else:
            check_metadata_update(
                new, old, "metadata", errors, needs_resource_version=False, only_status=endpoint == "status"
            )
        judged = list(errors.found), value_problems(new, found.node, old)
        wrong: list[FieldErrorLike] = [*judged[0], *judged[1]]
        rules = found.rules.tree()
        if rules is None:
            return wrong
        # A rule may count on the types and sizes that the schema promises.
        if any(problem.type in BLOCKING for problem in judged[1]):
            return [*wrong, RULES_NOT_CHECKED]
        return [*wrong, *rule_problems(rules, new, old)]

    def typed_problems(self, tree: Document, version: str) -> Iterator[str]:
        """Fields of an applied configuration that the version does not have, or that have another type."""
        return typed_problems(tree, self.versions[version].node)

    # --- scale

    def with_replicas(self, document: Document, replicas: int) -> Document:
        path = text(self.versions[self.storage].scale, "specReplicasPath")
        return json_paths.with_value(document, path, replicas)

    def scale_fields(self, document: Document) -> Document:
        """`spec` and `status` of the object's Scale."""
        paths = self.versions[self.storage].scale

        def number(field: str) -> int:
            value = json_paths.first(document, text(paths, field))
            return value if isinstance(value, int) else 0

        status: Document = {"replicas": number("statusReplicasPath")}
        if path := text(paths, "labelSelectorPath"):
            status["selector"] = json_paths.first(document, path) or ""
        return {"spec": {"replicas": number("specReplicasPath")}, "status": status}

    # --- showing

    def column_definitions(self, version: str) -> list[Document]:
        columns = self.versions[version].columns
        return [
            {"name": "Name", "type": "string", "format": "name", "description": NAME_TEXT, "priority": 0},
            *(
                {
                    "name": text(column, "name"),
                    "type": text(column, "type"),
                    "format": text(column, "format"),
                    "description": text(column, "description")
                    or f"Custom resource definition column (in JSONPath format): {text(column, 'jsonPath')}",
                    "priority": part(column, "priority") or 0,
                }
                for column in columns
            ),
        ]

    def cells(self, version: str, document: Document, now: datetime) -> list[Any]:
        shown = self.converted(document, version)
        columns = self.versions[version].columns
        return [shown["metadata"].get("name", ""), *(_cell(shown, column, now) for column in columns)]

    def selectable_fields(self, document: Document) -> dict[str, str]:
        metadata = document["metadata"]
        found = {"metadata.name": metadata.get("name", ""), "metadata.namespace": metadata.get("namespace", "")}
        for path in dict.fromkeys(path for version in self.versions.values() for path in version.selectable):
            value = json_paths.first(document, path)
            found[path.removeprefix(".")] = "" if value is None else value if isinstance(value, str) else go_json(value)
        return found

    def knows_field(self, version: str, field: str) -> bool:
        if field in ("metadata.name", "metadata.namespace"):
            return True
        return f".{field}" in self.versions[version].selectable


NAME_TEXT = "The name of the object, unique in its namespace."


def _cell(document: Document, column: Document, now: datetime) -> Any:
    value = json_paths.first(document, text(column, "jsonPath"))
    match text(column, "type"):
        case "integer" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return int(value)
        case "number" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            return age(value, now)
        case "string" if value is not None:
            return value if isinstance(value, str) else go_json(value)
    return None


def _ordered(document: Document) -> Document:
    head = {name: document[name] for name in ("kind", "apiVersion", "metadata")}
    return {**head, **{key: value for key, value in document.items() if key not in head}}


# --- from a definition to a row


def custom_resource(definition: Document) -> Resource:
    """The row of a definition that was found to be valid."""
    spec = mapping(definition, "spec")
    names = mapping(definition, "status", "acceptedNames") or mapping(spec, "names")
    versions = [_version(found) for found in mappings(spec, "versions") if found.get("served") or found.get("storage")]
    storage = next(text(found, "name") for found in mappings(spec, "versions") if found.get("storage"))
    stored_as = next(found for found in versions if found.name == storage)
    served = {text(found, "name") for found in mappings(spec, "versions") if found.get("served")}
    kind = CustomKind(
        group=text(spec, "group"),
        kind=text(names, "kind"),
        namespaced=text(spec, "scope") == "Namespaced",
        storage=storage,
        versions={found.name: found for found in versions},
        is_terminating=bool(part(definition, "metadata", "deletionTimestamp")),
        strategy=_strategy([found.name for found in versions], has_status=stored_as.has_status),
        conversions=_conversions(text(names, "kind"), mapping(spec, "conversion")),
    )
    # The storage version comes first in a row; which versions are served is told by the registry.
    ordered = sorted(versions, key=lambda found: (found.name != storage, version_order(found.name)))
    return Resource(
        group=kind.group,
        kind=kind.kind,
        plural=text(names, "plural"),
        namespaced=kind.namespaced,
        versions=tuple(Version(found.name, default=found.name in served) for found in ordered),
        verbs=ALL_VERBS,
        short_names=tuple(strings(names, "shortNames")),
        categories=tuple(strings(names, "categories")),
        subresources=_subresources(stored_as),
        singular_name=text(names, "singular"),
        list_kind_name=text(names, "listKind"),
        custom=kind,
    )


def _conversions(kind: str, conversion: Document) -> PreparedConversions | None:
    return PreparedConversions(kind, conversion) if text(conversion, "strategy") == "Webhook" else None


def _version(found: Document) -> CustomVersion:
    schema = mapping(found, "schema", "openAPIV3Schema")
    node = read_schema(schema)
    columns = mappings(found, "additionalPrinterColumns") or [DEFAULT_COLUMN]
    warning = ""
    if found.get("deprecated"):
        warning = text(found, "deprecationWarning") or "deprecated"
    return CustomVersion(
        name=text(found, "name"),
        schema=schema,
        node=node,
        steps_for_a_value=node.steps_for_a_value(),
        rules=LazyRules(node),
        owned=OwnedFields({**_owned_root(), **_owned_properties(node)}),
        columns=tuple(columns),
        selectable=tuple(text(entry, "jsonPath") for entry in mappings(found, "selectableFields")),
        has_status=part(found, "subresources", "status") is not None,
        scale=mapping(found, "subresources", "scale"),
        warning=warning,
    )


DEFAULT_COLUMN: Document = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
    "description": "When the object was created.",
}


def _subresources(version: CustomVersion) -> tuple[Subresource, ...]:
    found = []
    if version.has_status:
        found.append(Subresource("status"))
    if version.scale:
        found.append(Subresource("scale", kind="Scale", group="autoscaling", version="v1"))
    return tuple(found)


def _strategy(versions: Iterable[str], *, has_status: bool) -> Strategy:
    """Objects count their generations; with a status endpoint, each endpoint keeps to its part. A PUT names the resourceVersion."""

    def create(document: Document, setting: Setting) -> Document:
        if has_status:
            document.pop("status", None)
        document["metadata"]["generation"] = 1
        return document

    def update(new: Document, old: Document, setting: Setting) -> Document:
        if has_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        ignored = {"metadata", "kind", "apiVersion"} | ({"status"} if has_status else set())
        changed = any(new.get(key) != old.get(key) for key in (new.keys() | old.keys()) - ignored)
        new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + changed
        return new

    def update_status(new: Document, old: Document, setting: Setting) -> Document:
        metadata = {**old["metadata"], "managedFields": new["metadata"].get("managedFields")}
        made = {**old, "metadata": {key: value for key, value in metadata.items() if value is not None}}
        made.pop("status", None)
        return {**made, "status": new["status"]} if "status" in new else made

    return Strategy(
        create,
        update,
        update_status if has_status else None,
        reset_main=STATUS_FIELDS if has_status else None,
        reset_status=SPEC_AND_METADATA if has_status else None,
        conditional_versions=frozenset(versions),
        returns_deleted=frozenset(),
    )


# --- ownership


def _owned_root() -> dict[str, Field]:
    meta = Field.of_struct(fields_of_struct(struct(OBJECT_META)))
    return {"apiVersion": LEAF, "kind": LEAF, "metadata": meta}


def _owned_properties(node: SchemaNode) -> dict[str, Field]:
    return {name: _owned(inner) for name, inner in node.properties.items() if name != "metadata"}


def _owned(node: SchemaNode) -> Field:
    if node.type == "array" and node.items is not None and node.list_type != "atomic":
        return Field.of_list("map-list" if node.list_type == "map" else "set", _owned(node.items), node.list_keys)
    if node.type != "object":
        return DEDUCED if node.preserves and not node.type else LEAF
    if node.map_type == "atomic":
        return LEAF
    if isinstance(node.additional, SchemaNode):
        return Field.of_map(_owned(node.additional))
    if node.properties or node.embedded:
        root = _owned_root() if node.embedded else {}
        return Field.of_struct({**root, **_owned_properties(node)})
    return DEDUCED if node.preserves or node.additional is True else LEAF
