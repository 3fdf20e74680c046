"""`/scale`: the number of replicas of a workload, seen as an object of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dray.api.safe_get import mapping, text
from dray.api.scheme import Resource, by_kind
from dray.apiserver import errors
from dray.apiserver.core import QUICK, Core, in_thread_if_large
from dray.apiserver.read.workload_cells import age, selector_query
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.request.request_options import APPLY_PATCH, WriteOptions, patch_type, write_options
from dray.apiserver.watch.stored_object import Stored, encode
from dray.apiserver.write import managed_fields
from dray.apiserver.write.decoding import defaulted
from dray.apiserver.write.managed_fields import Manager, owned_update
from dray.apiserver.write.object_writer import ObjectChange, ObjectWriter, name_problem
from dray.apiserver.write.patch_requests import Patcher

if TYPE_CHECKING:
    from dray.apiserver.custom_resources.custom_kind import CustomKind

Document = dict[str, Any]

SUBRESOURCE = "scale"
# What an applied Scale says of the object that it belongs to.
IDENTITY = ("name", "namespace", "uid", "resourceVersion")

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
    def __init__(self, core: Core, writer: ObjectWriter, patcher: Patcher) -> None:
        self._core = core
        self._writer = writer
        self._patcher = patcher

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
        decoded = await self._writer.decode(_about_scale(call), options)
        problem = name_problem(decoded.document["metadata"], call.name)
        if problem:
            raise errors.bad_request(problem)
        return await self._set(call, lambda _: decoded.document, options)

    async def patch(self, call: ApiCall) -> Stored:
        media_type = patch_type(call.content_type)
        options = write_options(call.query, "PatchOptions", is_apply=media_type == APPLY_PATCH)
        if media_type == APPLY_PATCH:
            return await self._apply(call, options)
        return await self._set(call, await self._patcher.patched_view(_about_scale(call), media_type, options), options)

    async def _set(self, call: ApiCall, wished: Callable[[Document], Document], options: WriteOptions) -> Stored:
        manager = Manager(
            call.field_manager(options.field_manager),
            managed_fields.UPDATE,
            call.row.api_version(call.version),
            SUBRESOURCE,
        )

        def build(old: Document) -> Document:
            scale = wished(scale_of(call.row, old))
            replicas = _replicas(scale)
            _check_identity(call, scale["metadata"], old["metadata"])
            document = with_replicas(call.row, {**old, "metadata": dict(old["metadata"])}, replicas)
            del document["metadata"]["resourceVersion"]
            document = defaulted(call.row, document, self._core.now())
            return owned_update(call.row, old, document, manager, self._core.now())

        change = ObjectChange(build, SUBRESOURCE, options.dry_run, endpoint="")
        return (await self._writer.change(_about_object(call), change)).stored

    async def _apply(self, call: ApiCall, options: WriteOptions) -> Stored:
        def meant(scale: Document) -> Document:
            identity = {key: value for key, value in mapping(scale, "metadata").items() if key in IDENTITY}
            config = {"apiVersion": call.row.api_version(call.version), "kind": call.row.kind, "metadata": identity}
            replicas = _replicas(scale)
            return with_replicas(call.row, config, replicas) if "replicas" in mapping(scale, "spec") else config

        main = _about_object(call)
        return (await self._patcher.apply_view(main, _about_scale(call), SUBRESOURCE, options, meant)).stored


def _about_object(call: ApiCall) -> ApiCall:
    return replace(call, info=replace(call.info, subresource=""))


def _about_scale(call: ApiCall) -> ApiCall:
    """The same request, as one about an object of the kind Scale."""
    row = dataclasses.replace(by_kind("HorizontalPodAutoscaler"), kind="Scale", plural="scales")
    return replace(call, row=row, version="v1")


def _check_identity(call: ApiCall, named: Document, metadata: Document) -> None:
    """Raises 409 where the scale is that of an older state, or of another object."""
    if named.get("resourceVersion") and named["resourceVersion"] != metadata["resourceVersion"]:
        raise errors.conflict(call.row, call.name)
    if named.get("uid") and named["uid"] != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {named['uid']}, UID in object meta: {metadata['uid']}"
        raise errors.conflict(call.row, call.name, why, subresource=SUBRESOURCE)


def _replicas(scale: Document) -> int:
    replicas: int = mapping(scale, "spec").get("replicas") or 0
    if replicas < 0:
        problem = errors.OptionError(
            "Invalid", "spec.replicas", f"Invalid value: {replicas}: must be greater than or equal to 0"
        )
        raise errors.invalid("autoscaling", "Scale", text(scale, "metadata", "name"), [problem])
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
