"""OpenAPI documents, made from the schema table: enough for `kubectl explain`, for validation, and for code generators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from dray import __version__
from dray.api.schemas import FieldSchema, StructSchema, TypeRef, schema_for, struct
from dray.api.scheme import Resource, group_version
from dray.api.served_versions import ServedVersions
from dray.apiserver.discovery.field_descriptions import (
    field_text,
    type_text,
)
from dray.apiserver.request.request_info import Request
from dray.apiserver.request.request_options import Query
from dray.apiserver.watch.stored_object import encode
from dray.http.responses import Response

Document = dict[str, Any]

SCALARS: dict[str, Document] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}
NAMED_SCALARS: dict[str, tuple[str, Document]] = {
    "quantity": (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        {"description": "An amount such as 1500m or 40Gi.", "oneOf": [{"type": "string"}, {"type": "number"}]},
    ),
    "time": (
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        {"description": "A time in RFC 3339 form.", "type": "string", "format": "date-time"},
    ),
    "microTime": (
        "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        {"description": "A time with microseconds.", "type": "string", "format": "date-time"},
    ),
    "intOrString": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {
            "description": "A number or a text.",
            "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}],
        },
    ),
}
LIST_META = "meta.v1.ListMeta"
LIST_META_SCHEMA: Document = {
    "description": "Metadata of a list.",
    "type": "object",
    "properties": {
        "continue": {"type": "string"},
        "remainingItemCount": {"type": "integer", "format": "int64"},
        "resourceVersion": {"type": "string"},
        "selfLink": {"type": "string"},
    },
}
PATCH_TYPES = (
    "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)  # fmt: skip
WRITE_PARAMETERS = (
    ("dryRun", "string", "When present, nothing is stored. The only valid value is All."),
    ("fieldManager", "string", "The name under which changed fields are owned."),
    ("fieldValidation", "string", "What to do with unknown or duplicate fields: Ignore, Warn or Strict."),
)
LIST_PARAMETERS = (
    ("allowWatchBookmarks", "boolean", "Whether a watch wants bookmarks."),
    ("continue", "string", "The token of the page before."),
    ("fieldSelector", "string", "Only objects with these field values."),
    ("labelSelector", "string", "Only objects with these labels."),
    ("limit", "integer", "How many objects to return at most."),
    ("resourceVersion", "string", "The moment to read at."),
    ("resourceVersionMatch", "string", "Exact or NotOlderThan."),
    ("sendInitialEvents", "boolean", "Whether a watch starts with what exists."),
    ("timeoutSeconds", "integer", "How long a watch lasts."),
    ("watch", "boolean", "Follow changes instead of listing."),
)


API_VERSION_TEXT = "APIVersion defines the version of the schema that this object has."
KIND_TEXT = "The kind of this object."
METADATA_TEXT = "Standard object's metadata: its name, labels, owners and history."


def type_name(row: Resource, version: str) -> str:
    """What a kind is called in the documents; empty for one without a description."""
    if row.custom is not None:
        return ".".join([*reversed(row.group.split(".")), version, row.kind])
    schema = schema_for(group_version(row.group, version), row.kind)
    return schema.openapi_name if schema else ""


PRESERVES = "x-kubernetes-preserve-unknown-fields"
# What version 2 of OpenAPI cannot say, or kubectl misunderstands there.
_NOT_IN_VERSION_2 = frozenset({"allOf", "anyOf", "oneOf", "not", "nullable"})


def in_version_2(schema: Document) -> Document:
    """The schema of a custom kind as version 2 can tell it: with less detail where the detail would mislead kubectl."""
    shown = {key: value for key, value in schema.items() if key not in _NOT_IN_VERSION_2}
    is_open, is_nullable = bool(schema.get(PRESERVES)), bool(schema.get("nullable"))
    if is_open or is_nullable:
        shown.pop("items", None)
        shown.pop("properties", None)
    if (
        is_nullable
        or (is_open and shown.get("type") == "object")
        or ("items" not in shown and shown.get("type") == "array")
    ):
        shown.pop("type", None)
    _convert_parts(shown)
    return shown


def _convert_parts(shown: Document) -> None:
    properties: dict[str, Document] = shown.get("properties") or {}
    if properties:
        shown["properties"] = {name: in_version_2(inner) for name, inner in properties.items()}
    required = [name for name in shown.get("required") or () if not properties.get(name, {}).get("nullable")]
    if required != (shown.get("required") or []):
        shown.pop("required")
        if required:
            shown["required"] = required
    for part in ("items", "additionalProperties"):
        if isinstance(shown.get(part), dict):
            shown[part] = in_version_2(shown[part])


def ref_name(name: str) -> str:
    if name == LIST_META:
        return "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
    return struct(name).openapi_name


class DocumentWriter:
    """One document being written: `prefix` is where it keeps its definitions."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._is_v3 = prefix.startswith("#/components")
        self.definitions: dict[str, Document] = {}

    def ref(self, name: str) -> Document:
        return {"$ref": self._prefix + name}

    def add_kind(self, row: Resource, version: str) -> None:
        if row.custom is not None:
            self._add_custom(row, version)
            return
        api_version = group_version(row.group, version)
        schema = schema_for(api_version, row.kind)
        if schema is None:
            return
        self.add_struct(schema)
        kind = {"group": row.group, "version": version, "kind": row.kind}
        self.definitions[schema.openapi_name]["x-kubernetes-group-version-kind"] = [kind]
        if row.is_stored:
            self._add_list(row, version, schema.openapi_name)

    def _add_custom(self, row: Resource, version: str) -> None:
        schema: Document = row.custom.versions[version].schema
        meta = struct("meta.v1.ObjectMeta")
        self.add_struct(meta)
        name = type_name(row, version)
        self.definitions[name] = {
            **self._custom_schema(schema, meta),
            "x-kubernetes-group-version-kind": [{"group": row.group, "version": version, "kind": row.kind}],
        }
        self._add_list(row, version, name)

    def _custom_schema(self, schema: Document, meta: StructSchema) -> Document:
        if not self._is_v3:
            if schema.get(PRESERVES):
                # kubectl takes listed properties for the only ones.
                return {"type": "object"}
            schema = in_version_2(schema)
        properties = {
            "apiVersion": {"type": "string", "description": API_VERSION_TEXT},
            "kind": {"type": "string", "description": KIND_TEXT},
            **(schema.get("properties") or {}),
            "metadata": self._described_ref(meta),
        }
        return {**schema, "properties": properties}

    def _described_ref(self, schema: StructSchema) -> Document:
        if self._is_v3:
            return {"description": METADATA_TEXT, "allOf": [self.ref(schema.openapi_name)]}
        return {"description": METADATA_TEXT, **self.ref(schema.openapi_name)}

    def _add_list(self, row: Resource, version: str, name: str) -> None:
        self.definitions[ref_name(LIST_META)] = LIST_META_SCHEMA
        self.definitions[f"{name}List"] = {
            "description": f"{row.kind}List is a list of {row.kind} objects.",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": self.ref(ref_name(LIST_META)),
                "items": {"type": "array", "items": self.ref(name)},
            },
            "x-kubernetes-group-version-kind": [{"group": row.group, "version": version, "kind": row.list_kind}],
        }

    def add_struct(self, schema: StructSchema) -> None:
        if schema.openapi_name in self.definitions:
            return
        definition: Document = {"description": type_text(schema.name), "type": "object"}
        self.definitions[schema.openapi_name] = definition
        required = [name for name, field in schema.fields.items() if field.required]
        if required:
            definition["required"] = required
        definition["properties"] = {name: self._field(schema, name, field) for name, field in schema.fields.items()}
        if schema.atomic:
            definition["x-kubernetes-map-type"] = "atomic"

    def _field(self, owner: StructSchema, name: str, field: FieldSchema) -> Document:
        shown = {"description": field_text(owner.name, name), **self._type(field.type)}
        if "$ref" in shown and self._is_v3:
            shown = {"description": shown["description"], "allOf": [{"$ref": shown["$ref"]}], "default": {}}
        if field.default is not None:
            shown["default"] = field.default
        if field.type.shape == "list":
            shown["x-kubernetes-list-type"] = field.list_type
            if field.list_keys:
                shown["x-kubernetes-list-map-keys"] = list(field.list_keys)
        if field.atomic:
            shown["x-kubernetes-map-type"] = "atomic"
        if field.merge_key is not None:
            shown["x-kubernetes-patch-strategy"] = "merge,retainKeys" if field.retain_keys else "merge"
            if field.merge_key:
                shown["x-kubernetes-patch-merge-key"] = field.merge_key
        return shown

    def _type(self, ref: TypeRef) -> Document:
        if ref.shape == "struct":
            self.add_struct(struct(ref.name))
            return self.ref(ref_name(ref.name))
        if ref.shape == "list":
            assert ref.item is not None
            return {"type": "array", "items": self._type(ref.item)}
        if ref.shape == "map":
            assert ref.item is not None
            return {"type": "object", "additionalProperties": self._type(ref.item)}
        if ref.name in NAMED_SCALARS:
            name, definition = NAMED_SCALARS[ref.name]
            self.definitions[name] = definition
            return self.ref(name)
        return dict(SCALARS[ref.name])


def _paths(row: Resource, version: str) -> Iterator[tuple[str, list[str], bool]]:
    """Every path of a kind with its methods; the last says whether it is a collection."""
    namespace = "{namespace}" if row.namespaced else ""
    collection = [
        method
        for method, verb in (("get", "list"), ("post", "create"), ("delete", "deletecollection"))
        if verb in row.verbs
    ]
    if row.namespaced and row.is_stored:
        yield row.path("", version=version), ["get"], True
    yield row.path(namespace, version=version), collection, True
    if row.is_stored:
        yield row.path(namespace, "{name}", version=version), ["get", "put", "patch", "delete"], False
    methods = {"get": "get", "update": "put", "patch": "patch", "create": "post", "delete": "delete"}
    for subresource in row.subresources:
        used = [methods[verb] for verb in subresource.verbs]
        yield row.path(namespace, "{name}", subresource.name, version=version), used, False


VERSION_INFO = "io.k8s.apimachinery.pkg.version.Info"
VERSION_REQUIRED = (
    "major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform",
)  # fmt: skip
VERSION_OPTIONAL = ("emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor")
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


class OpenApi:
    def __init__(self, served: ServedVersions) -> None:
        self._served = served
        self._documents: dict[str, bytes] = {}
        self._built_in = {path for _, _, path in self._group_versions()}
        self._generation = served.generation

    def answer(self, parts: list[str], request: Request, query: Query) -> Response | None:
        self._forget_changed()
        if parts[1:] == ["v2"] and "proto-openapi.spec.v2" in request.headers.get("accept", ""):
            return Response(200, _bare_v2(), PROTOBUF_V2, headers=(("Vary", "Accept"),))
        if parts[1:] == ["v2"]:
            return self._tagged(request, self._cached("v2", self._v2))
        if parts[1:] == ["v3"]:
            return self._tagged(request, self._cached("v3", self._v3_index))
        if parts[1:2] != ["v3"]:
            return None
        name = "/".join(parts[2:])
        if name == "version":
            return self._tagged(request, self._cached(name, _version_document))
        for group, version, path in self._group_versions():
            if path == name:
                return self._tagged(
                    request, self._cached(path, lambda group=group, version=version: self._v3(group, version))
                )
        return None

    def _forget_changed(self) -> None:
        """Documents of built-in groups stay: nothing but those of definitions changes."""
        if self._generation != self._served.generation:
            self._generation = self._served.generation
            self._documents = {name: body for name, body in self._documents.items() if name in self._built_in}

    def _tagged(self, request: Request, body: bytes) -> Response:
        tag = f'"{_digest(body)}"'
        headers = (("ETag", tag), ("Vary", "Accept"))
        if request.headers.get("if-none-match") == tag:
            return Response(304, b"", headers=headers)
        return Response(200, body, headers=headers)

    def _cached(self, name: str, make: Any) -> bytes:
        if name not in self._documents:
            self._documents[name] = encode(make())
        return self._documents[name]

    def _group_versions(self) -> Iterator[tuple[str, str, str]]:
        for group in ("", *self._served.groups()):
            for version in self._served.versions(group):
                yield group, version, f"apis/{group}/{version}" if group else f"api/{version}"

    def _v3_index(self) -> Document:
        paths = {}
        for group, version, path in self._group_versions():
            body = self._cached(path, lambda group=group, version=version: self._v3(group, version))
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_digest(body)}"}
        digest = _digest(self._cached("version", _version_document))
        paths["version"] = {"serverRelativeURL": f"/openapi/v3/version?hash={digest}"}
        return {"paths": paths}

    def _v3(self, group: str, version: str) -> Document:
        writer = DocumentWriter("#/components/schemas/")
        paths: Document = {}
        for row in self._served.rows(group, version):
            writer.add_kind(row, version)
            paths |= _path_items(row, version, writer, is_v3=True)
        info = {"title": "Dray", "version": __version__}
        return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": writer.definitions}}

    def _v2(self) -> Document:
        writer = DocumentWriter("#/definitions/")
        paths: Document = {}
        for group, version, _ in self._group_versions():
            for row in self._served.rows(group, version):
                writer.add_kind(row, version)
                paths |= _path_items(row, version, writer, is_v3=False)
        writer.definitions[VERSION_INFO] = _version_info()
        paths["/version/"] = {"get": _version_operation(writer.ref(VERSION_INFO), is_v3=False)}
        info = {"title": "Dray", "version": __version__}
        return {"swagger": "2.0", "info": info, "paths": paths, "definitions": writer.definitions}


def _version_document() -> Document:
    writer = DocumentWriter("#/components/schemas/")
    writer.definitions[VERSION_INFO] = _version_info()
    paths = {"/version/": {"get": _version_operation(writer.ref(VERSION_INFO), is_v3=True)}}
    info = {"title": "Dray", "version": __version__}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": writer.definitions}}


def _version_info() -> Document:
    """What `/version` answers."""
    properties = {name: {"type": "string"} for name in (*VERSION_REQUIRED, *VERSION_OPTIONAL)}
    return {"type": "object", "properties": properties, "required": list(VERSION_REQUIRED)}


def _version_operation(body: Document, *, is_v3: bool) -> Document:
    return {
        "tags": ["version"],
        "description": "get the version of this server",
        "operationId": "getCodeVersion",
        "responses": _responses(body, is_v3=is_v3),
    }


def _bare_v2() -> bytes:
    """The second version's document in protobuf, without definitions.

    kubectl asks for it before it sends a List, such as `kubectl get -o yaml` writes. Kinds that are not defined there are
    left to the server's own, strict validation.
    """

    def text(number: int, value: str) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value.encode()

    info = text(1, "Dray") + text(2, __version__)
    paths, definitions = b"\x42\x00", b"\x4a\x00"
    return text(1, "2.0") + b"\x12" + bytes([len(info)]) + info + paths + definitions


def _path_items(row: Resource, version: str, writer: DocumentWriter, *, is_v3: bool) -> Document:
    name = type_name(row, version)
    items: Document = {}
    for path, methods, is_collection in _paths(row, version):
        item: Document = {}
        names = [name for name in ("namespace", "name") if f"{{{name}}}" in path]
        if names:
            item["parameters"] = [_parameter(name, "string", "", is_v3=is_v3, place="path") for name in names]
        for method in methods:
            item[method] = _operation(
                row, version, method, path, name, writer, is_collection=is_collection, is_v3=is_v3
            )
        items[path] = item
    return items


ACTIONS = {"get": "get", "list": "list", "post": "post", "put": "put", "patch": "patch", "delete": "delete"}


def _operation(
    row: Resource, version: str, method: str, path: str, of_type: str, writer: DocumentWriter,
    *, is_collection: bool, is_v3: bool,
) -> Document:  # fmt: skip
    action = "list" if method == "get" and is_collection else ACTIONS[method]
    parameters = [_parameter("pretty", "string", "Indent the answer.", is_v3=is_v3)]
    if method in ("post", "put", "patch"):
        parameters += [_parameter(*row_, is_v3=is_v3) for row_ in WRITE_PARAMETERS]
    if method == "patch":
        parameters.append(_parameter("force", "boolean", "Take fields over from their owners (apply).", is_v3=is_v3))
    if is_collection and method in ("get", "delete"):
        parameters += [_parameter(*row_, is_v3=is_v3) for row_ in LIST_PARAMETERS]
    name = f"{of_type}List" if of_type and action == "list" else of_type
    body = writer.ref(name) if name else {"type": "object"}
    operation: Document = {
        "description": f"{action} {row.kind}",
        "operationId": "".join(part.strip("{}").title() for part in [action, *path.split("/")]),
        "tags": [f"{row.group or 'core'}_{version}"],
        "parameters": parameters,
        "responses": _responses(body, is_v3=is_v3),
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": row.group, "version": version, "kind": row.kind},
    }
    if method in ("post", "put", "patch"):
        _add_body(operation, writer.ref(of_type) if of_type else {"type": "object"}, method, is_v3=is_v3)
    elif not is_v3:
        operation["consumes"] = ["*/*"]
    if not is_v3:
        operation["produces"] = ["application/json", "application/yaml"]
    return operation


def _responses(body: Document, *, is_v3: bool) -> Document:
    if is_v3:
        return {"200": {"description": "OK", "content": {"application/json": {"schema": body}}}}
    return {"200": {"description": "OK", "schema": body}}


def _add_body(operation: Document, body: Document, method: str, *, is_v3: bool) -> None:
    types = PATCH_TYPES if method == "patch" else ("application/json", "application/yaml")
    shown = {"type": "object"} if method == "patch" else body
    if is_v3:
        operation["requestBody"] = {
            "content": {media_type: {"schema": shown} for media_type in types},
            "required": True,
        }
    else:
        operation["consumes"] = list(types)
        operation["parameters"].append({"name": "body", "in": "body", "required": True, "schema": shown})


def _parameter(name: str, kind: str, text: str, *, is_v3: bool, place: str = "query") -> Document:
    shown: Document = {"name": name, "in": place, "description": text}
    if place == "path":
        shown["required"] = True
    if is_v3:
        return {**shown, "schema": {"type": kind, "uniqueItems": True}}
    return {**shown, "type": kind, "uniqueItems": True}


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest().upper()
