"""Deleting: preconditions, finalizers, propagation, grace; one object or a whole selection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from dray.api.dra.pod_phase import is_finished_document
from dray.api.errors import DecodeError
from dray.api.jsontext import go_json
from dray.api.scalars import Shaping
from dray.api.schemas import schema_for
from dray.api.shaping import shape_of
from dray.api.strategies import strategy_of
from dray.apiserver import errors
from dray.apiserver.core import Core, in_thread_if_large
from dray.apiserver.custom_resources.definition_controller import mark_terminating
from dray.apiserver.errors import ApiError, OptionError
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.request.request_options import (
    META_GROUP,
    Query,
    body_type,
    dry_run_problems,
)
from dray.apiserver.watch.stored_object import (
    Stored,
    to_value,
)
from dray.apiserver.write.admission.chain import DELETE, Admission
from dray.apiserver.write.decoding import parse
from dray.apiserver.write.object_writer import MAX_ATTEMPTS
from dray.clock import rfc3339
from dray.store.errors import Conflict
from dray.store.interface import Precondition, Put

Document = dict[str, Any]

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
POLICIES = ("Foreground", "Background", "Orphan")

KEEPS_PODS = (
    "child pods are preserved by default when jobs are deleted; "
    "set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    uid: str = ""
    resource_version: str = ""
    grace_period_s: int | None = None
    propagation: str = ""
    orphan_dependents: bool | None = None
    dry_run: bool = False


async def delete_options(call: ApiCall) -> DeleteOptions:
    """From the body, or without one from the query; raises 400 and 422."""
    if call.request.body:
        return options_of(await in_thread_if_large(len(call.request.body), lambda: _decoded(call)))
    query = call.query
    document: Document = {}
    if (grace := query.number("gracePeriodSeconds")) is not None:
        document["gracePeriodSeconds"] = grace
    if query.get("propagationPolicy"):
        document["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        document["orphanDependents"] = query.flag("orphanDependents")
    if query.get("dryRun"):
        document["dryRun"] = query.all("dryRun")
    preconditions = _query_preconditions(query)
    if preconditions:
        document["preconditions"] = preconditions
    return options_of(document)


def _query_preconditions(query: Query) -> Document:
    names = {"preconditions.uid": "uid", "preconditions.resourceVersion": "resourceVersion"}
    return {short: query[name] for name, short in names.items() if query.get(name)}


def _decoded(call: ApiCall) -> Document:
    schema = schema_for("v1", "DeleteOptions")
    assert schema is not None
    try:
        tree, _ = parse(call.request.body, body_type(call.content_type))
    except DecodeError as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    try:
        if not isinstance(tree, dict):
            raise DecodeError("json: cannot unmarshal the body into Go value of type v1.DeleteOptions")
        kind = tree.get("kind") or "DeleteOptions"
        if kind != "DeleteOptions":
            raise errors.bad_request("decoded object cannot be converted to DeleteOptions")
        return shape_of(schema.name)(tree, "DeleteOptions", None, Shaping())
    except DecodeError as error:
        raise errors.bad_request(error.answer) from None


def options_of(document: Document) -> DeleteOptions:
    """Raises 422."""
    problems = list(_problems(document))
    if problems:
        raise errors.invalid(META_GROUP, "DeleteOptions", "", problems)
    preconditions = document.get("preconditions") or {}
    return DeleteOptions(
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        grace_period_s=document.get("gracePeriodSeconds"),
        propagation=document.get("propagationPolicy") or "",
        orphan_dependents=document.get("orphanDependents"),
        dry_run=bool(document.get("dryRun")),
    )


def _problems(document: Document) -> Iterator[OptionError]:
    policy, orphan = document.get("propagationPolicy"), document.get("orphanDependents")
    if policy is not None and orphan is not None:
        body = f"Invalid value: {go_json(policy)}: orphanDependents and deletionPropagation cannot be both set"
        yield OptionError("Invalid", "propagationPolicy", body)
    if policy is not None and policy not in POLICIES:
        supported = ", ".join(f'"{name}"' for name in (*POLICIES, "nil"))
        body = f"Unsupported value: {go_json(policy)}: supported values: {supported}"
        yield OptionError("NotSupported", "propagationPolicy", body)
    yield from dry_run_problems(document.get("dryRun") or [])


@dataclass(frozen=True, slots=True)
class Deleted:
    """`stored` is the object as it was last, or as it now waits; `revision` is set if it is gone."""

    stored: Stored
    is_gone: bool


class Deleter:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def delete(self, call: ApiCall, options: DeleteOptions, name: str = "", namespace: str = "") -> Deleted:
        """Delete one object, or mark it so that those who hold it let go."""
        row, core = call.row, self._core
        name, namespace = name or call.name, namespace or call.namespace
        cache = core.cache(row)
        for _ in range(MAX_ATTEMPTS):
            await core.fresh()
            stored = cache.get(namespace, name)
            if stored is None:
                raise errors.not_found(row, name)
            try:
                return await self._delete_once(call, options, stored)
            except Conflict:
                await asyncio.sleep(0)
        raise errors.conflict(row, name)

    async def _delete_once(self, call: ApiCall, options: DeleteOptions, stored: Stored) -> Deleted:
        row = call.row
        before = await self._core.document(stored)
        document = {**before, "metadata": dict(before["metadata"])}
        self.check_preconditions(call, options, document)
        attributes = replace(
            call.attributes, verb="delete", name=stored.name, namespace=stored.namespace, dry_run=options.dry_run
        )
        admission = Admission(
            attributes, DELETE, row.kind, None, document, _as_document(options), call.warnings, row=row
        )
        await self._core.admission.mutate(admission)
        await self._core.admission.validate(admission)
        waits = self._mark(call, options, document)
        if waits:
            return Deleted(await self._keep_waiting(call, options, stored, document, before), is_gone=False)
        revision = stored.revision if options.dry_run else await self._core.remove(stored, document)
        return Deleted(self._shown(call, stored, document, before, revision), is_gone=True)

    def _shown(self, call: ApiCall, stored: Stored, document: Document, before: Document, revision: int) -> Stored:
        if document == before:
            return stored.at(revision)
        cache = self._core.cache(call.row)
        return cache.make(stored.namespace, stored.name, to_value(document), revision, stored.created)

    def check_preconditions(self, call: ApiCall, options: DeleteOptions, document: Document) -> None:
        metadata = document["metadata"]
        uid, revision = metadata.get("uid"), metadata.get("resourceVersion")
        if options.uid and options.uid != uid:
            raise errors.kind_conflict(
                call.row,
                metadata["name"],
                f"the UID in the precondition ({options.uid}) does not match the UID in record ({uid}). "
                "The object might have been deleted and then recreated",
            )
        if options.resource_version and options.resource_version != revision:
            raise errors.kind_conflict(
                call.row,
                metadata["name"],
                f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
                f"ResourceVersion in record ({revision}). The object might have been modified",
            )

    def _mark(self, call: ApiCall, options: DeleteOptions, document: Document) -> bool:
        """Changes the document as a deletion does; answers whether it has to stay for now."""
        if call.row.kind == "Namespace" and not call.row.group:
            return self._mark_namespace(options, document)
        if strategy_of(call.row).is_graceful:
            return self._mark_pod(options, document)
        if call.row.kind == "CustomResourceDefinition" and call.row.custom is None:
            mark_terminating(document, self._core.now())
        metadata = document["metadata"]
        keeps_dependents = strategy_of(call.row).keeps_dependents
        _set_finalizers(options, metadata, keeps_dependents=keeps_dependents)
        if (
            call.row.kind == "Job"
            and keeps_dependents
            and not options.propagation
            and options.orphan_dependents is None
        ):
            call.warn(KEEPS_PODS)
        if not metadata.get("finalizers"):
            return False
        if not metadata.get("deletionTimestamp"):
            self._stamp(metadata, 0)
        return True

    def _stamp(self, metadata: Document, grace_s: int) -> None:
        metadata["deletionTimestamp"] = rfc3339(_later(self._core.clock.now(), grace_s))
        metadata["deletionGracePeriodSeconds"] = grace_s
        if metadata.get("generation"):
            metadata["generation"] += 1

    def _mark_namespace(self, options: DeleteOptions, document: Document) -> bool:
        metadata = document["metadata"]
        if not metadata.get("deletionTimestamp"):
            metadata["deletionTimestamp"] = self._core.now()
            document["status"] = {**(document.get("status") or {}), "phase": "Terminating"}
            _set_finalizers(options, metadata)
        return bool(metadata.get("finalizers") or (document.get("spec") or {}).get("finalizers"))

    def _mark_pod(self, options: DeleteOptions, document: Document) -> bool:
        metadata = document["metadata"]
        wanted = options.grace_period_s
        if metadata.get("deletionTimestamp"):
            left = metadata.get("deletionGracePeriodSeconds")
            if left is not None and (wanted is None or max(wanted, 0) >= left):
                return bool(left or metadata.get("finalizers"))
            if left is not None and wanted is not None:
                self._shorten(metadata, max(wanted, 0))
        else:
            self._stamp(metadata, _grace_of_pod(document, wanted))
        _set_finalizers(options, metadata)
        return bool(metadata.get("deletionGracePeriodSeconds") or metadata.get("finalizers"))

    def _shorten(self, metadata: Document, grace_s: int) -> None:
        metadata["deletionTimestamp"] = rfc3339(_later(self._core.clock.now(), grace_s))
        metadata["deletionGracePeriodSeconds"] = grace_s

    async def _keep_waiting(
        self, call: ApiCall, options: DeleteOptions, stored: Stored, document: Document, before: Document
    ) -> Stored:
        if document == before:
            return stored
        value = to_value(document)
        cache = self._core.cache(call.row)
        if options.dry_run:
            return cache.make(stored.namespace, stored.name, value, stored.revision, stored.created)
        revision = await self._core.store.commit([Put(stored.key, value)], [Precondition(stored.key, stored.revision)])
        return cache.make(stored.namespace, stored.name, value, revision, stored.created)

    async def delete_all(self, call: ApiCall, options: DeleteOptions, chosen: list[Stored]) -> None:
        """Every object of a selection; one that vanished meanwhile is no error."""
        for stored in chosen:
            try:
                await self.delete(call, options, stored.name, stored.namespace)
            except ApiError as error:
                if error.code != 404:
                    raise


def _set_finalizers(options: DeleteOptions, metadata: Document, *, keeps_dependents: bool = False) -> None:
    """The propagation policy, as finalizers that the garbage collector takes away when it is done."""
    if options.orphan_dependents is not None:
        orphan, foreground = options.orphan_dependents, False
    elif options.propagation:
        orphan, foreground = options.propagation == "Orphan", options.propagation == "Foreground"
    elif keeps_dependents and not {ORPHAN, FOREGROUND} & set(metadata.get("finalizers") or ()):
        orphan, foreground = True, False
    else:
        # nothing said: what is already there stands
        return
    kept = [name for name in metadata.get("finalizers") or () if name not in (ORPHAN, FOREGROUND)]
    kept += [ORPHAN] * orphan + [FOREGROUND] * foreground
    if kept:
        metadata["finalizers"] = kept
    else:
        metadata.pop("finalizers", None)


def _later(now: datetime, seconds: int) -> datetime:
    """A pod may have any time to end; a timestamp ends with the year 9999."""
    last = datetime.max.replace(tzinfo=UTC)
    return last if seconds >= (last - now).total_seconds() else now + timedelta(seconds=seconds)


def _grace_of_pod(pod: Document, wanted: int | None) -> int:
    """Nobody waits for a pod that never ran or has ended; a negative wish means one second."""
    spec = pod.get("spec") or {}
    grace = wanted if wanted is not None else spec.get("terminationGracePeriodSeconds")
    grace = 30 if grace is None else int(grace)
    if not spec.get("nodeName") or is_finished_document(pod):
        return 0
    return grace if grace >= 0 else 1


def _as_document(options: DeleteOptions) -> Document:
    document: Document = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    if options.grace_period_s is not None:
        document["gracePeriodSeconds"] = options.grace_period_s
    if options.propagation:
        document["propagationPolicy"] = options.propagation
    if options.dry_run:
        document["dryRun"] = ["All"]
    return document
