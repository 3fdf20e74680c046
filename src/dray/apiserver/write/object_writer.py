"""Creates and changes objects: the steps of every write, from the request to the store.

decode and default -> build the new object -> ownership -> mutating admission -> the kind's strategy -> validation -> validating
admission -> store. A write that changes nothing stores nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from dray.api.codec import NEWER_THAN_US
from dray.api.prepare_for_write import (
    drop_duplicate_owners,
    fill_name,
    new_metadata,
    set_namespace,
    with_kept_metadata,
)
from dray.api.scheme import Resource, group_version
from dray.api.shaping import as_written, empty_of
from dray.api.slice_text import QuietLists, split
from dray.api.strategies import Setting, Strategy, certificate_approval, strategy_of
from dray.apiserver import errors
from dray.apiserver.core import LARGE, ContendedWrites, Core, JointCommit, in_thread, in_thread_if_large
from dray.apiserver.custom_resources import definitions
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.request.request_options import (
    APPLY_PATCH,
    JSON,
    STRATEGIC_PATCH,
    WriteOptions,
    body_type,
    plain_type,
    write_options,
)
from dray.apiserver.subresources.pod_resize_and_ephemeral_containers import ephemeral_problems, resize_problems
from dray.apiserver.watch.kind_cache import KindCache
from dray.apiserver.watch.stored_object import (
    SLICE,
    Stored,
    decode,
    encode,
    is_stored_form,
    to_storage,
    to_value,
)
from dray.apiserver.write import managed_fields
from dray.apiserver.write.admission.chain import CREATE, UPDATE, Admission
from dray.apiserver.write.decoding import (
    KINDS_WITH_RAW_VALUES,
    Decoded,
    RawValues,
    canonical,
    change_raw_values,
    decode_object,
    defaulted,
    raw_values_after_write,
    raw_values_sent,
    sorted_raw_values,
    strict_error,
    value_with_raw_values,
)
from dray.apiserver.write.managed_fields import PARTS_OF_PODS, Manager, managed_kind, owned_update
from dray.store.errors import AlreadyExists, Conflict, NotFound
from dray.store.interface import Precondition, Put
from dray.validation import (
    ValidationContext,
    validate_approval,
    validate_create,
    validate_status_update,
    validate_update,
)
from dray.validation.warnings import warnings_about

if TYPE_CHECKING:
    from dray.apiserver.custom_resources.custom_kind import CustomKind

Document = dict[str, Any]

MAX_ATTEMPTS = 12
# Endpoints that decide themselves what they take from the document sent.
PARTIAL_ENDPOINTS: dict[str, Callable[[Document, Document], Document]] = {
    "finalize": lambda new, old: new,
    **PARTS_OF_PODS,
}
GENERATE_ATTEMPTS = 8
# Several components write these objects, one after the other.
WRITTEN_BY_MANY = frozenset({"Pod", "ResourceClaim"})


class WriteOutcome(msgspec.Struct):
    """The object after a write; `created` tells 201 from 200."""

    stored: Stored
    created: bool = False
    # Not stored (a dry run, or the write that let a finished deletion through): what to show instead.
    document: Document | None = None


class ObservedObject(NamedTuple):
    """A stored object and its document, which is read once and shared by all steps of one write."""

    stored: Stored
    document: Document


class ObjectChange(msgspec.Struct, frozen=True):
    """A change of one object.

    `build` turns the stored object (storage version) into the wanted one, with managedFields already right. It is
    called again after a conflict, unless the request names a resourceVersion.
    """

    build: Callable[[Document], Awaitable[Document] | Document]
    subresource: str = ""
    dry_run: bool = False
    options: Document | None = None
    # What validation and strategies take for the endpoint, if that is not the subresource.
    endpoint: str | None = None
    skip_admission: bool = False
    seen: ObservedObject | None = None


class ObjectWriter:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._contended = ContendedWrites()

    # --- what handlers call -------------------------------------------------------------------------------------------

    async def create(self, call: ApiCall) -> WriteOutcome:
        options = write_options(call.query, "CreateOptions")
        decoded = await self.decode(call, options)
        return await self.create_decoded(call, decoded, options)

    async def decode(
        self, call: ApiCall, options: WriteOptions, kind: str = "", *, before: Document | None = None
    ) -> Decoded:
        media_type = body_type(call.content_type)
        body = call.request.body

        def work() -> Decoded:
            decoded = decode_object(body, media_type, call.row, call.version, kind, before)
            drop_duplicate_owners(decoded.document["metadata"], call.warn)
            return decoded

        decoded = work() if _new_bytes(call) < LARGE else await in_thread(work)
        self.report(call, decoded.problems, options)
        return decoded

    def report(self, call: ApiCall, problems: tuple[str, ...], options: WriteOptions) -> None:
        """Unknown and duplicate fields: Strict refuses them, Warn returns warnings, Ignore does nothing."""
        if not problems or options.field_validation == "Ignore":
            return
        if options.field_validation == "Strict":
            raise strict_error(call.row, call.version, problems)
        for problem in problems[:100]:
            call.warn(problem)

    async def create_decoded(self, call: ApiCall, decoded: Decoded, options: WriteOptions) -> WriteOutcome:
        row, core = call.row, self._core
        document = decoded.document
        metadata = document["metadata"]
        self._match_namespace(call, metadata)
        now = core.now()
        sent = {**document, "metadata": new_metadata(metadata)}
        is_small = _new_bytes(call) < LARGE
        document = defaulted(row, sent, now) if is_small else await in_thread(defaulted, row, sent, now)
        metadata = document["metadata"]
        metadata["uid"], metadata["creationTimestamp"] = core.new_uid(), now
        has_revision = metadata.pop("resourceVersion", "")
        if has_revision:
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        manager = Manager(
            call.field_manager(options.field_manager), managed_fields.UPDATE, group_version(row.group, call.version)
        )
        ownership = (row, document, manager, now, decoded.resets_managers)
        self._own_new(*ownership) if is_small else await in_thread(self._own_new, *ownership)
        return await self.insert(call, to_storage(row, document), dry_run=options.dry_run)

    def _match_namespace(self, call: ApiCall, metadata: Document) -> None:
        set_namespace(metadata, call.namespace, namespaced=call.row.namespaced)
        if call.row.namespaced and metadata["namespace"] != call.namespace:
            raise errors.other_namespace()

    def _own_new(self, row: Resource, document: Document, manager: Manager, now: str, reset: bool) -> None:
        kind = managed_kind(row, "")
        empty = empty_of(row, manager.api_version.rpartition("/")[2])
        sent = document["metadata"].pop("managedFields", None)
        if reset:
            return
        entries = managed_fields.owned_by_creator(as_written(document), empty, manager, kind, now)
        if sent:
            owners = managed_fields.read(sent) | managed_fields.read(entries)
            entries = managed_fields.write(owners)
        if entries:
            document["metadata"]["managedFields"] = entries

    async def insert(self, call: ApiCall, document: Document, *, dry_run: bool = False) -> WriteOutcome:
        """A new object (storage version, owned) through admission, strategy and validation into the store."""
        row, core = call.row, self._core
        generated = not document["metadata"].get("name") and bool(document["metadata"].get("generateName"))
        attributes = replace(call.attributes, dry_run=True) if dry_run else call.attributes
        admission = Admission(
            attributes,
            CREATE,
            row.kind,
            document,
            options=sent_options(call, "CreateOptions"),
            warnings=call.warnings,
            row=row,
        )
        await core.admission.mutate(admission)
        # The second half of admission sees the object with its name; another attempt begins without it again.
        unnamed = admission.document
        assert unnamed is not None
        for attempt in range(GENERATE_ATTEMPTS if generated else 1):
            candidate = {**unnamed, "metadata": dict(unnamed["metadata"])}
            fill_name(candidate["metadata"], core.new_name_suffix)
            if row.kind == "LimitRange" and not candidate["metadata"].get("name"):
                # The one kind that Kubernetes names by itself.
                candidate["metadata"]["name"] = core.new_uid()
            try:
                return await self._insert_named(call, candidate, admission, dry_run=dry_run)
            except AlreadyExists as clash:
                if attempt == GENERATE_ATTEMPTS - 1 or not generated:
                    raise await self._exists(call, candidate["metadata"]["name"], clash, generated=generated) from None
        raise AssertionError("unreachable")

    async def _exists(self, call: ApiCall, name: str, clash: AlreadyExists, *, generated: bool) -> errors.ApiError:
        cache = self._core.cache(call.row)
        stored = cache.get(call.namespace, name)
        deleting = False
        if stored is not None:
            deleting = bool((await self._core.document(stored))["metadata"].get("deletionTimestamp"))
        return errors.already_exists(call.row, name, deleting=deleting, generated=generated)

    async def _insert_named(
        self, call: ApiCall, document: Document, admission: Admission, *, dry_run: bool
    ) -> WriteOutcome:
        row, core = call.row, self._core
        strategy = strategy_of(row)
        size = _work_of(call, _new_bytes(call))
        is_small = size < LARGE
        setting = Setting(core.gates, core.now())
        created = (
            strategy.create(document, setting) if is_small else await in_thread(strategy.create, document, setting)
        )
        check = (call, created, self._validation_context(call, created))
        found = _create_problems(*check) if is_small else await in_thread(_create_problems, *check)
        if found:
            name = created["metadata"].get("name", "")
            raise await in_thread_if_large(size, lambda: errors.invalid_object(row, name, found))
        for text in warnings_about(row, created) if is_small else await in_thread(warnings_about, row, created):
            call.warn(text)
        document = admission.document = as_written(created) if is_small else await in_thread(as_written, created)
        cache = core.cache(row)
        namespace, name = document["metadata"].get("namespace", ""), document["metadata"]["name"]
        await core.admission.validate(admission)
        if dry_run:
            if await self.current(cache, namespace, name):
                raise AlreadyExists(name)
            return WriteOutcome(cache.make(namespace, name, to_value(document), 0, 0), True, document)
        raw_values, key = self._raw_values(call, document), cache.key(namespace, name)
        value = value_with_raw_values(document, raw_values)
        try:
            revision = await core.commit(
                [Put(key, value, ttl_s=strategy.ttl_s)], [Precondition(key, 0)], None, document
            )
        except Conflict as conflict:
            if key in conflict.keys:
                raise AlreadyExists(key) from None
            raise errors.conflict(row, name) from None
        if row.kind == SLICE:
            _STORED_LISTS.add(document["spec"].get("devices"))
        stored = cache.written(key, value, revision, revision)
        self._keep(row, stored, document, raw_values)
        return WriteOutcome(stored, True)

    def _keep(self, row: Resource, stored: Stored, document: Document, raw_values: RawValues | None) -> None:
        """For the next write of the object."""
        if row.kind in WRITTEN_BY_MANY and raw_values is None and type(stored) is Stored:
            self._core.documents.keep(stored, document)

    # --- changing -----------------------------------------------------------------------------------------------------

    async def current(
        self, cache: KindCache, namespace: str, name: str, joint: JointCommit | None = None
    ) -> Stored | None:
        changed = joint.current(cache.key(namespace, name)) if joint is not None else None
        if changed is not None:
            return changed
        await self._core.fresh()
        return cache.get(namespace, name)

    async def replace(self, call: ApiCall, subresource: str = "") -> WriteOutcome:
        """PUT."""
        renewal = self._renewal(call)
        if renewal is not None:
            return await self._renew(call, *renewal)
        options = write_options(call.query, "UpdateOptions")
        seen = await self._seen(call)
        decoded = await self.decode(call, options, before=seen.document if seen else None)
        metadata = decoded.document["metadata"]
        self._match_name(call, metadata)
        self._match_namespace(call, metadata)
        manager = Manager(
            call.field_manager(options.field_manager),
            managed_fields.UPDATE,
            group_version(call.row.group, call.version),
            subresource,
        )

        def build(old: Document) -> Document:
            now = self._core.now()
            document = _copied(decoded.document)
            document = defaulted(call.row, document, now, has_stored_spec=decoded.has_stored_spec)
            document = to_storage(call.row, document)
            return owned_update(call.row, old, document, manager, now, resets=decoded.resets_managers)

        return await self.change(call, ObjectChange(build, subresource, options.dry_run, seen=seen))

    # --- leases -------------------------------------------------------------------------------------------------------
    #
    # Every node renews its lease every ten seconds: nine of ten writes of a large cluster. Such a write changes one time, and with it the time
    # of the one owner of all fields; nothing that defaults, strategies and validation look at.

    def _renewal(self, call: ApiCall) -> tuple[Stored, Document, Document] | None:
        """The stored lease, as it is and as the request renews it; None for any other request."""
        row, core = call.row, self._core
        if row.kind != "Lease" or row.custom is not None or call.version != row.storage_version:
            return None
        if call.info.subresource or call.query:
            return None
        if core.admission.may_rewrite or body_type(call.content_type) != JSON:
            return None
        stored = core.cache(row).get(call.namespace, call.name)
        sent = renewed_lease(call.request.body) if stored else None
        if stored is None or sent is None or sent["metadata"].pop("resourceVersion", "") != str(stored.revision):
            return None
        old = stored.document()
        new = {
            **old,
            "metadata": dict(old["metadata"]),
            "spec": {**old["spec"], "renewTime": sent["spec"]["renewTime"]},
        }
        owners: list[Document] = new["metadata"].get("managedFields") or []
        if len(owners) != 1 or not _owns_lease(owners[0], call):
            return None
        sent["metadata"].setdefault("managedFields", owners)
        shown = dict(old["metadata"])
        shown.pop("resourceVersion", None)
        # Compared as JSON: in Python 40 equals 40.0.
        if canonical(sent) != canonical({**new, "metadata": shown}) or new["spec"] == old["spec"]:
            return None
        new["metadata"]["managedFields"] = [{**owners[0], "time": core.now()}]
        return stored, old, new

    async def _renew(self, call: ApiCall, stored: Stored, old: Document, new: Document) -> WriteOutcome:
        options = sent_options(call, "UpdateOptions")
        admission = Admission(call.attributes, UPDATE, call.row.kind, new, old, options, call.warnings, row=call.row)
        await self._core.admission.mutate(admission)
        await self._core.admission.validate(admission)
        revision, value = str(stored.revision), to_value(new)
        return await self._store(call, self._core.cache(call.row), stored, new, old, revision, value, dry_run=False)

    async def _seen(self, call: ApiCall) -> ObservedObject | None:
        """The object in the cache; parts that the write leaves unchanged are not decoded and checked again."""
        if call.row.kind in NEWER_THAN_US or not is_stored_form(call.row, call.version):
            return None  # fields that we do not know must be named each time they are sent
        cache, joint = self._core.cache(call.row), call.request.joint
        stored = joint.current(cache.key(call.namespace, call.name)) if joint is not None else None
        stored = stored or cache.get(call.namespace, call.name)
        return ObservedObject(stored, await self._core.document(stored)) if stored else None

    def _match_name(self, call: ApiCall, metadata: Document) -> None:
        problem = name_problem(metadata, call.name)
        if problem:
            raise errors.bad_request(problem)

    async def change(self, call: ApiCall, change: ObjectChange) -> WriteOutcome:
        """Makes the change; tries again after a conflict, unless the request names a resourceVersion."""
        cache = self._core.cache(call.row)
        key = cache.key(call.namespace, call.name)
        for attempt in range(MAX_ATTEMPTS):
            async with self._contended.alone(key) if attempt else nullcontext():
                stored = await self.current(cache, call.namespace, call.name, call.request.joint)
                if stored is None:
                    raise errors.not_found(call.row, call.name)
                try:
                    return await self._change_once(call, change, cache, stored)
                except (Conflict, NotFound):
                    # The cache may be a step behind another server's write; let it catch up.
                    await asyncio.sleep(0)
        raise errors.conflict(call.row, call.name)

    async def _change_once(self, call: ApiCall, change: ObjectChange, cache: KindCache, stored: Stored) -> WriteOutcome:
        row, core = call.row, self._core
        seen = change.seen
        old = seen.document if seen is not None and seen.stored is stored else await core.document(stored)
        size = _work_of(call, len(call.request.body) + len(stored.value))
        is_small = size < LARGE
        built = change.build(old) if is_small else await in_thread(change.build, old)
        document = built if isinstance(built, dict) else await built
        named_revision = self._check_identity(call, document, old)
        endpoint = change.subresource if change.endpoint is None else change.endpoint
        attributes = replace(call.attributes, dry_run=True) if change.dry_run else call.attributes
        options = sent_options(call, "UpdateOptions")
        admission = Admission(attributes, UPDATE, row.kind, document, old, options, call.warnings, row=row)
        if not change.skip_admission:
            await core.admission.mutate(admission)
        assert admission.document is not None
        document = with_kept_metadata(admission.document, old)
        self._check_revision(call, named_revision, stored, endpoint)
        document = self._prepared(strategy_of(row), endpoint, document, old)
        document["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        check = (call, document, old, self._validation_context(call, document), endpoint, core.resize_with_claims)
        found = _update_problems(*check) if is_small else await in_thread(_update_problems, *check)
        if found:
            raise await in_thread_if_large(size, lambda: errors.invalid_object(row, call.name, found))
        about = (row, document, endpoint)
        for text in warnings_about(*about) if is_small else await in_thread(warnings_about, *about):
            call.warn(text)
        document = admission.document = as_written(document)
        raw_values = self._raw_values(call, document, stored, endpoint)
        raw_changed = raw_values is not None and change_raw_values(document, stored, raw_values)
        if not change.skip_admission:
            await core.admission.validate(admission)
        if ready_to_go(row, document):
            return await self._let_go(call, cache, stored, document, dry_run=change.dry_run)
        if unchanged(document, old) and not raw_changed:
            return WriteOutcome(stored)
        value = value_with_raw_values(document, raw_values)
        outcome = await self._store(call, cache, stored, document, old, named_revision, value, dry_run=change.dry_run)
        if not change.dry_run:
            self._keep(row, outcome.stored, document, raw_values)
        return outcome

    def _raw_values(
        self, call: ApiCall, document: Document, stored: Stored | None = None, endpoint: str = ""
    ) -> RawValues | None:
        """The texts to store for the opaque values of the object; None where plain JSON will do."""
        if call.row.kind not in KINDS_WITH_RAW_VALUES:
            return None
        new = RawValues()
        if call.request.method == "PATCH":
            if plain_type(call.content_type) in (STRATEGIC_PATCH, APPLY_PATCH):
                new = sorted_raw_values(document)
        elif body_type(call.content_type) == JSON:
            new = raw_values_sent(call.request.body)
        return raw_values_after_write(new, stored.value if stored else b"", endpoint)

    def _prepared(self, strategy: Strategy, endpoint: str, document: Document, old: Document) -> Document:
        setting = Setting(self._core.gates, self._core.now())
        if endpoint == "status":
            assert strategy.update_status is not None
            return strategy.update_status(document, old, setting)
        if endpoint == "approval":
            return certificate_approval(document, old, setting)
        if endpoint in PARTIAL_ENDPOINTS:
            return PARTIAL_ENDPOINTS[endpoint](document, old)
        return strategy.update(document, old, setting)

    def _check_identity(self, call: ApiCall, document: Document, old: Document) -> str:
        """Refuses a body that means another object; answers the resourceVersion the body insists on."""
        metadata, row = document["metadata"], call.row
        uid, known = metadata.get("uid"), old["metadata"].get("uid")
        # A patch that changes the UID is told so by validation.
        if uid and uid != known and call.request.method != "PATCH":
            key = f"/registry/{row.storage_prefix or row.plural}/"
            key += f"{call.namespace}/{call.name}" if call.namespace else call.name
            raise errors.conflict(
                row,
                call.name,
                f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known}",
            )
        return str(metadata.get("resourceVersion") or "")

    def _validation_context(self, call: ApiCall, document: Document) -> ValidationContext:
        core = self._core
        return ValidationContext(
            core.gates,
            core.namespace_labels(document),
            group_version(call.row.group, call.version),
            trusts_stored=True,
        )

    def _check_revision(self, call: ApiCall, named: str, stored: Stored, endpoint: str) -> None:
        if named:
            if named != str(stored.revision):
                raise errors.conflict(call.row, call.name)
        elif call.version in strategy_of(call.row).conditional_versions and call.request.method == "PUT":
            problem = errors.OptionError(
                "Invalid",
                "metadata.resourceVersion",
                "Invalid value: 0: must be specified for an update",
            )
            raise errors.invalid(call.row.group, call.row.plural, call.name, [problem])

    async def _store(
        self,
        call: ApiCall,
        cache: KindCache,
        stored: Stored,
        document: Document,
        old: Document,
        named_revision: str,
        value: bytes,
        *,
        dry_run: bool,
    ) -> WriteOutcome:
        if dry_run:
            await self._core.check_commit(old, document)
            return WriteOutcome(cache.make(stored.namespace, stored.name, value, stored.revision, stored.created))
        # A repeated event gets a new expiry time.
        put = Put(stored.key, value, ttl_s=strategy_of(call.row).ttl_s)
        if call.request.joint is not None:
            return WriteOutcome(call.request.joint.add(cache, stored, put, old, document))
        condition = Precondition(stored.key, stored.revision)
        try:
            revision = await self._core.commit([put], [condition], old, document)
        except Conflict:
            if named_revision:
                raise errors.conflict(call.row, call.name) from None
            raise
        except NotFound:
            raise errors.not_found(call.row, call.name) from None
        return WriteOutcome(cache.written(stored.key, value, revision, stored.created))

    async def _let_go(
        self, call: ApiCall, cache: KindCache, stored: Stored, document: Document, *, dry_run: bool
    ) -> WriteOutcome:
        """The last finalizer is gone: the write becomes the deletion, and shows the object as it last was."""
        shown = cache.make(stored.namespace, stored.name, to_value(document), stored.revision, stored.created)
        if not dry_run:
            await self._core.remove(stored, document)
        return WriteOutcome(shown)


# Lists of devices that were stored once: they are read and checked already, or quickly. One that was refused can be as long and as wrong as it likes.
_STORED_LISTS = QuietLists()


def _new_bytes(call: ApiCall) -> int:
    """The length of the body without a list of devices that was stored before."""
    body = call.request.body
    if len(body) < LARGE or call.row.kind != SLICE or (found := split(body)) is None:
        return len(body)
    return len(found.before) + len(found.after) if _STORED_LISTS.has_text(found.devices) else len(body)


# What our servers write; other spellings of a time go the long way.
_MICRO_TIME = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII).fullmatch


def renewed_lease(body: bytes) -> Document | None:
    """The body of a request, if it may renew a lease: compact JSON in the spelling that is stored."""
    try:
        tree = decode(body)
        renewed = tree["spec"]["renewTime"]
        if not _MICRO_TIME(renewed) or encode(tree) != body or not isinstance(tree["metadata"], dict):
            return None
        datetime.fromisoformat(renewed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, ValueError):
        return None
    return cast(Document, tree)


def _owns_lease(owner: Document, call: ApiCall) -> bool:
    """Whether the sender owns the time that it renews."""
    named = (owner.get("manager"), owner.get("operation"), owner.get("apiVersion"), owner.get("subresource"))
    if named != (call.field_manager(""), managed_fields.UPDATE, group_version(call.row.group, call.version), None):
        return False
    return bool((owner.get("fieldsV1") or {}).get("f:spec", {}).get("f:renewTime") == {})


def _work_of(call: ApiCall, size: int) -> int:
    """The bytes of a request; more if the schema of a custom kind makes each of them expensive, or has rules that are yet to be compiled."""
    custom: CustomKind | None = call.row.custom
    if custom is None:
        return size
    version = custom.versions[call.version]
    return size * version.steps_for_a_value if version.rules.is_compiled else max(size, LARGE)


def _create_problems(call: ApiCall, new: Document, context: ValidationContext) -> Sequence[errors.FieldErrorLike]:
    custom: CustomKind | None = call.row.custom
    if custom is not None:
        return custom.problems(new, None, call.version, "")
    return [*_definition_problems(call, new, None), *validate_create(new, context)]


def _definition_problems(call: ApiCall, new: Document, old: Document | None) -> Sequence[errors.FieldErrorLike]:
    if call.row.kind != definitions.KIND:
        return ()
    # Loaded when somebody writes a definition.
    from dray.apiserver.custom_resources.definition_validation import definition_problems

    return definition_problems(new, old)


def _update_problems(
    call: ApiCall, new: Document, old: Document, context: ValidationContext, endpoint: str, resize_with_claims: bool
) -> Sequence[errors.FieldErrorLike]:
    custom: CustomKind | None = call.row.custom
    if custom is not None:
        return custom.problems(new, old, call.version, endpoint)
    if endpoint == "status":
        return validate_status_update(new, old, context)
    if endpoint == "approval":
        return validate_approval(new, old, context)
    if endpoint == "finalize":
        return ()
    if endpoint == "resize":
        return list(resize_problems(new, old, with_claims=resize_with_claims))
    if endpoint == "ephemeralcontainers":
        return ephemeral_problems(new, old)
    return [*_definition_problems(call, new, old), *validate_update(new, old, context)]


def name_problem(metadata: Document, expected: str) -> str:
    """What is wrong if a body means another object than the URL."""
    name = metadata.get("name")
    if not name:
        return f"the name of the object ({expected} based on URL) was undeterminable: name must be provided"
    return (
        "" if name == expected else f"the name of the object ({name}) does not match the name on the URL ({expected})"
    )


def _copied(document: Document) -> Document:
    """Deep enough that defaulting and strategies leave the sender's document alone."""
    return {**document, "metadata": dict(document["metadata"])}


def ready_to_go(row: Resource, document: Document) -> bool:
    """An object that is being deleted and that nothing holds any more."""
    metadata = document["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if row.kind == "Namespace" and not row.group:
        return not (document.get("spec") or {}).get("finalizers")
    return bool(metadata.get("deletionGracePeriodSeconds") == 0)


def unchanged(new: Document, old: Document) -> bool:
    """Equal but for the times in managedFields."""
    if new == old:
        return True
    mine, known = new["metadata"], old["metadata"]
    if {**new, "metadata": None} != {**old, "metadata": None}:
        return False
    return {**mine, "managedFields": _timeless(mine)} == {**known, "managedFields": _timeless(known)}


def _timeless(metadata: Document) -> list[Document]:
    return [{**entry, "time": ""} for entry in metadata.get("managedFields") or ()]


def sent_options(call: ApiCall, kind: str) -> Document:
    """The options of a write as policies and webhooks see them."""
    options: Document = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if not call.query:
        return options
    if call.query.get("dryRun"):
        options["dryRun"] = call.query.all("dryRun")
    options.update((name, call.query[name]) for name in ("fieldManager", "fieldValidation") if call.query.get(name))
    return options
