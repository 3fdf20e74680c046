"""`/scale`: the number of replicas of a workload, seen as an object of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dray.api.scheme import Resource
from dray.apiserver import errors
from dray.apiserver.core import QUICK, Core, in_thread_if_large
from dray.apiserver.read.workload_cells import age, selector_query
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.request.request_options import (
    MERGE_PATCH,
    STRATEGIC_PATCH,
    body_type,
    patch_type,
    write_options,
)
from dray.apiserver.watch.stored_object import Stored, encode
from dray.apiserver.write import managed_fields
from dray.apiserver.write.decoding import defaulted, parse
from dray.apiserver.write.managed_fields import Manager, owned_update
from dray.apiserver.write.object_writer import (
    ObjectChange,
    ObjectWriter,
)
from dray.apiserver.write.patching import json_patch
from dray.apiserver.write.patching.json_patch import apply_merge

if TYPE_CHECKING:
    from dray.apiserver.custom_resources.custom_kind import CustomKind

Document = dict[str, Any]


COLUMNS = [
    {"name": name, "type": kind, "format": "", "description": text, "priority": 0}
    for name, kind, text in (
        ("Name", "string", "The name of the scaled object."),
        ("Desired", "integer", "How many replicas there should be."),
        ("Available", "integer", "How many replicas there are."),
        ("Age", "string", "How long ago the scaled object was created."),
    )
]


class Scales:
    def __init__(self, core: Core, writer: ObjectWriter) -> None:
        self._core = core
        self._writer = writer

    async def show(self, call: ApiCall, stored: Stored) -> bytes:
        def shown() -> bytes:
            scale = scale_of(call.row, stored.document())
            return encode(self._table(call, scale) if call.response_format.kind == "Table" else scale)

        return await in_thread_if_large(stored.size // QUICK, shown)

    def _table(self, call: ApiCall, scale: Document) -> Document:
        metadata = scale["metadata"]
        cells = [
            metadata["name"],
            scale["spec"]["replicas"],
            scale["status"]["replicas"],
            age(metadata.get("creationTimestamp"), self._core.clock.now()),
        ]
        api_version = f"meta.k8s.io/{call.response_format.version}"
        shown = {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": metadata}
        return {
            "kind": "Table",
            "apiVersion": api_version,
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "columnDefinitions": COLUMNS,
            "rows": [{"cells": cells, "object": shown}],
        }

    async def replace(self, call: ApiCall) -> Stored:
        options = write_options(call.query, "UpdateOptions")
        tree, _ = await in_thread_if_large(
            len(call.request.body), lambda: parse(call.request.body, body_type(call.content_type))
        )
        return await self._set(call, lambda _: tree, options.dry_run, options.field_manager)

    async def patch(self, call: ApiCall) -> Stored:
        options = write_options(call.query, "PatchOptions")
        media_type = patch_type(call.content_type)
        body, _ = await in_thread_if_large(len(call.request.body), lambda: parse(call.request.body, "application/json"))

        def patched(scale: Document) -> Any:
            if media_type in (MERGE_PATCH, STRATEGIC_PATCH):
                return apply_merge(scale, body)
            try:
                return json_patch.apply(scale, body)
            except json_patch.PatchFailed:
                raise errors.unprocessable() from None

        return await self._set(call, patched, options.dry_run, options.field_manager)

    async def _set(self, call: ApiCall, wished: Any, dry_run: bool, field_manager: str) -> Stored:
        manager = Manager(
            call.field_manager(field_manager), managed_fields.UPDATE, call.row.api_version(call.version), "scale"
        )

        def build(old: Document) -> Document:
            scale = wished(scale_of(call.row, old))
            replicas = _replicas(scale)
            named = (scale.get("metadata") or {}).get("resourceVersion")
            document = with_replicas(call.row, {**old, "metadata": dict(old["metadata"])}, replicas)
            if named and named != old["metadata"]["resourceVersion"]:
                raise errors.conflict(call.row, call.name)
            del document["metadata"]["resourceVersion"]
            document = defaulted(call.row, document, self._core.now())
            return owned_update(call.row, old, document, manager, self._core.now())

        main = replace(call, info=replace(call.info, subresource=""))
        return (await self._writer.change(main, ObjectChange(build, "scale", dry_run, endpoint=""))).stored


def _replicas(scale: Any) -> int:
    spec = scale.get("spec") if isinstance(scale, dict) else None
    replicas = (spec or {}).get("replicas", 0) if isinstance(spec, dict) or spec is None else None
    if type(replicas) is not int:
        raise errors.bad_request('Scale in version "v1" cannot be handled as a Scale: spec.replicas must be a number')
    if replicas < 0:
        problem = errors.OptionError(
            "Invalid", "spec.replicas", f"Invalid value: {replicas}: must be greater than or equal to 0"
        )
        name = (scale.get("metadata") or {}).get("name", "")
        raise errors.invalid("autoscaling", "Scale", name, [problem])
    return replicas


def with_replicas(row: Resource, document: Document, replicas: int) -> Document:
    kind: CustomKind | None = row.custom
    if kind is not None:
        return kind.with_replicas(document, replicas)
    return {**document, "spec": {**(document.get("spec") or {}), "replicas": replicas}}


def scale_of(row: Resource, document: Document) -> Document:
    kind: CustomKind | None = row.custom
    metadata = document["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        **(_scale_fields(document) if kind is None else kind.scale_fields(document)),
    }


def _scale_fields(document: Document) -> Document:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    selector = spec.get("selector") or {}
    if document.get("kind") == "ReplicationController":
        selector = {"matchLabels": selector}
    query = selector_query(selector)
    return {
        "spec": {"replicas": spec.get("replicas") or 0},
        "status": {"replicas": status.get("replicas") or 0, **({"selector": query} if query else {})},
    }
