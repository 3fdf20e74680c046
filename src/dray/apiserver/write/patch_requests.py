"""PATCH: the four kinds of patch, each turned into a wish to change an object, or (apply) to create it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from dray.api.errors import DecodeError
from dray.api.jsontext import go_json, go_map
from dray.api.prepare_for_write import drop_duplicate_owners
from dray.api.scalars import Shaping
from dray.api.schemas import StructSchema, TypeRef
from dray.api.scheme import group_version
from dray.api.shaping import empty_of, shape_of
from dray.api.yamltext import read_yaml
from dray.apiserver import errors
from dray.apiserver.core import Core, in_thread_if_large
from dray.apiserver.errors import ApiError, OptionError
from dray.apiserver.request.request_info import ApiCall, Attributes
from dray.apiserver.request.request_options import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    WriteOptions,
    patch_type,
    write_options,
)
from dray.apiserver.watch.stored_object import from_storage, is_stored_form, to_storage
from dray.apiserver.write import managed_fields
from dray.apiserver.write.decoding import (
    Decoded,
    check_type,
    defaulted,
    parse,
    shaped_object,
    unregistered,
)
from dray.apiserver.write.field_sets import OwnershipSchema
from dray.apiserver.write.managed_fields import Manager, managed_kind, owned_update
from dray.apiserver.write.object_writer import (
    ObjectChange,
    ObjectWriter,
    WriteOutcome,
    name_problem,
)
from dray.apiserver.write.patching import json_patch
from dray.apiserver.write.patching.json_patch import apply_merge
from dray.apiserver.write.patching.schema_patches import (
    MOST_PROBLEMS,
    merge_applied,
    remove_fields,
    typed_problems,
)
from dray.apiserver.write.patching.strategic_merge import BadPatch, ListOfLists, restore_problem, strategic_merge
from dray.store.errors import AlreadyExists

if TYPE_CHECKING:
    from dray.apiserver.custom_resources.custom_kind import CustomKind

Document = dict[str, Any]
MAX_ATTEMPTS = 5


def _answer(tree: Any, error: DecodeError) -> str:
    return error.answer


@dataclass(frozen=True, slots=True)
class Wording:
    """How a message shows what came out of a patch, and what is wrong with it."""

    shown: Callable[[Any], str] = go_json
    problem: Callable[[Any, DecodeError], str] = _answer


AS_JSON = Wording()


class Patcher:
    def __init__(self, core: Core, writer: ObjectWriter, may_create: Callable[[Attributes], Any]) -> None:
        self._core = core
        self._writer = writer
        self._may_create = may_create

    async def patch(self, call: ApiCall, subresource: str = "") -> WriteOutcome:
        media_type = patch_type(call.content_type, strategic=call.row.custom is None)
        is_apply = media_type == APPLY_PATCH
        options = write_options(call.query, "PatchOptions", is_apply=is_apply)
        if is_apply:
            return await self._apply(call, options, subresource)
        apply_to = await in_thread_if_large(
            len(call.request.body), lambda: self._patch_function(call, media_type, options)
        )
        manager = Manager(
            call.field_manager(options.field_manager), managed_fields.UPDATE, self._api_version(call), subresource
        )

        def build(old: Document) -> Document:
            before = from_storage(call.row, call.version, old)
            tree, wording = apply_to(before)
            decoded = self._read_result(call, tree, wording, options, before)
            document, now = decoded.document, self._core.now()
            self._match(call, document, old)
            document = defaulted(call.row, document, now, has_stored_spec=decoded.has_stored_spec)
            document = to_storage(call.row, document)
            return owned_update(call.row, old, document, manager, now, resets=decoded.resets_managers)

        return await self._writer.change(call, ObjectChange(build, subresource, options.dry_run))

    # --- objects that a subresource shows as another kind -------------------------------------------------------------

    async def patched_view(
        self, call: ApiCall, media_type: str, options: WriteOptions
    ) -> Callable[[Document], Document]:
        """How to patch an object of the kind that `call` is about, which is not stored as such."""
        size = len(call.request.body)
        apply_to = await in_thread_if_large(size, lambda: self._patch_function(call, media_type, options))

        def patched(document: Document) -> Document:
            tree, wording = apply_to(document)
            return self._read_result(call, tree, wording, options).document

        return patched

    async def apply_view(
        self,
        call: ApiCall,
        shown: ApiCall,
        subresource: str,
        options: WriteOptions,
        meant: Callable[[Document], Document],
    ) -> WriteOutcome:
        """Applies a configuration of the kind that `shown` is about; `meant` says it in fields of the stored object."""
        size = len(call.request.body)
        config = meant(await in_thread_if_large(size, lambda: self._configuration(shown, options)))
        manager = Manager(options.field_manager, managed_fields.APPLY, self._api_version(call), subresource)

        def build(old: Document) -> Document:
            return self._applied(call, config, old, manager, options)

        return await self._writer.change(call, ObjectChange(build, subresource, options.dry_run, endpoint=""))

    def _api_version(self, call: ApiCall) -> str:
        return group_version(call.row.group, call.version)

    def _schema(self, call: ApiCall) -> OwnershipSchema:
        schema = managed_fields.ownership_schema(call.row, self._api_version(call))
        assert schema is not None
        return schema

    # --- the three that change what is there --------------------------------------------------------------------------

    def _patch_function(
        self, call: ApiCall, media_type: str, options: WriteOptions
    ) -> Callable[[Document], tuple[Any, Wording]]:
        """How to turn a document into the patched one, and the words for what came out."""
        lead = "" if media_type == STRATEGIC_PATCH else "error decoding patch: "
        body, problems = self._parsed(call, lead)
        if media_type == JSON_PATCH:
            return self._json_patch(call, body, problems, options)
        if not isinstance(body, dict):
            raise errors.bad_request(
                f"{lead}json: cannot unmarshal {_kind(body)} into Go value of type map[string]interface {{}}"
            )
        if problems:
            self._report(call, problems, options, go_map(body))
        if media_type == MERGE_PATCH:
            return lambda document: (apply_merge(document, body), AS_JSON)
        schema = self._schema(call)
        assert isinstance(schema, StructSchema)
        return self._strategic_patch(call, body, schema)

    def _strategic_patch(
        self, call: ApiCall, body: Document, schema: StructSchema
    ) -> Callable[[Document], tuple[Any, Wording]]:
        def problem(tree: Any, error: DecodeError) -> str:
            found = restore_problem(tree, TypeRef("struct", schema.name))
            return found or re.sub(r"Go struct field \S+ of", "Go value of", error.answer)

        wording = Wording(lambda _: go_map(body), problem)
        # What the patch says that the object is has no effect.
        identity = {"apiVersion": self._api_version(call), "kind": call.row.kind}

        def apply(document: Document) -> tuple[Any, Wording]:
            try:
                return {**strategic_merge(document, body, schema), **identity}, wording
            except ListOfLists:
                raise errors.unprocessable() from None
            except BadPatch as bad:
                raise errors.bad_request(str(bad)) from None

        return apply

    def _parsed(self, call: ApiCall, lead: str) -> tuple[Any, tuple[str, ...]]:
        try:
            body, duplicates = parse(call.request.body, "application/json")
        except DecodeError as error:
            raise errors.bad_request(f"{lead}{error}") from None
        return body, tuple(f'duplicate field "{path}"' for path in duplicates)

    def _json_patch(
        self, call: ApiCall, body: Any, problems: tuple[str, ...], options: WriteOptions
    ) -> Callable[[Document], tuple[Any, Wording]]:
        if not isinstance(body, list):
            raise _undecodable(body, "value of type []handlers.jsonPatchOp")
        if len(body) > json_patch.MAX_OPERATIONS:
            raise ApiError(
                413,
                "RequestEntityTooLarge",
                f"Request entity too large: The allowed maximum operations in a JSON patch is "
                f"{json_patch.MAX_OPERATIONS}, got {len(body)}",
            )
        operations = [_operation(entry) for entry in body]
        strange = (*problems, *json_patch.unknown_members(operations))

        def apply(document: Document) -> tuple[Any, Wording]:
            try:
                result = json_patch.apply(document, operations)
            except json_patch.PatchFailed:
                raise errors.unprocessable() from None
            if strange:
                self._report(call, strange, options, go_json(result))
            return result, AS_JSON

        return apply

    def _report(self, call: ApiCall, problems: tuple[str, ...], options: WriteOptions, shown: str) -> None:
        if not problems or options.field_validation == "Ignore":
            return
        if options.field_validation == "Strict":
            raise _invalid_patch(shown, f"strict decoding error: {', '.join(problems[:100])}")
        for problem in problems[:100]:
            call.warn(problem)

    def _read_result(
        self,
        call: ApiCall,
        tree: Any,
        wording: Wording,
        options: WriteOptions,
        before: Document | None = None,
    ) -> Decoded:
        """The patched tree as an object of the kind; raises 422 where it is none. `before` is in shape already."""
        if not isinstance(tree, dict):
            raise _invalid_patch(
                wording.shown(tree), f"json: cannot unmarshal {_kind(tree)} into Go value of type {call.row.kind}"
            )
        for name, expected in (("apiVersion", self._api_version(call)), ("kind", call.row.kind)):
            if tree.get(name) != expected:
                self._check_registered(call, tree, wording)
                check_type(tree, self._api_version(call), call.row.kind)
                tree = {**tree, name: expected}
        try:
            in_shape = before if is_stored_form(call.row, call.version) else None
            decoded = shaped_object(call.row, call.version, tree, (), in_shape)
        except DecodeError as error:
            raise _invalid_patch(wording.shown(tree), wording.problem(tree, error)) from None
        if decoded.problems:
            self._report(call, decoded.problems, options, wording.shown(tree))
        drop_duplicate_owners(decoded.document["metadata"], call.warn)
        return decoded

    def _check_registered(self, call: ApiCall, tree: Document, wording: Wording) -> None:
        version, kind = tree.get("apiVersion") or self._api_version(call), tree.get("kind") or call.row.kind
        if isinstance(version, str) and isinstance(kind, str) and (why := unregistered(version, kind)):
            raise _invalid_patch(wording.shown(tree), why)

    def _match(self, call: ApiCall, document: Document, old: Document) -> None:
        """A patch does not rename; and it insists on a resourceVersion only if it names one."""
        metadata = document["metadata"]
        problem = name_problem(metadata, call.name)
        if problem:
            raise errors.bad_request(problem)
        if call.row.namespaced and metadata.setdefault("namespace", call.namespace) != call.namespace:
            raise errors.other_namespace()
        if metadata.get("resourceVersion") == old["metadata"]["resourceVersion"]:
            del metadata["resourceVersion"]

    # --- apply --------------------------------------------------------------------------------------------------------

    async def _apply(self, call: ApiCall, options: WriteOptions, subresource: str) -> WriteOutcome:
        config = await in_thread_if_large(len(call.request.body), lambda: self._configuration(call, options))
        manager = Manager(options.field_manager, managed_fields.APPLY, self._api_version(call), subresource)

        def build(old: Document) -> Document:
            return self._applied(call, config, old, manager, options)

        cache = self._core.cache(call.row)
        for _ in range(MAX_ATTEMPTS):
            if subresource or await self._writer.current(cache, call.namespace, call.name):
                return await self._writer.change(call, ObjectChange(build, subresource, options.dry_run))
            await self._may_create(call.attributes)
            try:
                return await self._create_applied(call, config, manager, options)
            except AlreadyExists:
                continue
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
        raise errors.conflict(call.row, call.name)

    def _configuration(self, call: ApiCall, options: WriteOptions) -> Document:
        """The applied body, checked but not shaped: what it does not name it does not own."""
        row = call.row
        try:
            tree, duplicates = parse(call.request.body, APPLY_PATCH)
        except DecodeError as error:
            raise errors.bad_request(f"error decoding YAML: {error}") from None
        if not isinstance(tree, dict):
            raise errors.bad_request(
                f"error decoding YAML: json: cannot unmarshal {_kind(tree)} into Go value of type map[string]interface {{}}"
            )
        if duplicates:
            text = f"error strict decoding YAML: {_duplicate_keys(call.request.body)}"
            if options.field_validation == "Strict":
                raise errors.bad_request(text)
            if options.field_validation == "Warn":
                call.warn(text)
        metadata = tree.get("metadata") or {}
        if isinstance(metadata, dict) and metadata.get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        if not tree.get("apiVersion") or not tree.get("kind"):
            missing = "Kind" if not tree.get("kind") else "apiVersion"
            raise errors.bad_request(f"invalid object type: Object '{missing}' is missing in the applied configuration")
        check_type(tree, self._api_version(call), row.kind)
        found = self._typed_problems(call, tree)
        if found:
            shown = found[0] if len(found) == 1 else "errors:\n  " + "\n  ".join(found)
            raise errors.bad_request(f"failed to create typed patch object ({self._place(call)}): {shown}")
        try:
            schema = self._schema(call)
            if isinstance(schema, StructSchema):
                shape_of(schema.name)(tree, row.kind, None, Shaping())
            else:
                shaped_object(row, call.version, tree)
        except DecodeError as error:
            raise errors.bad_request(
                f"failed to create typed patch object ({self._place(call)}): {error.answer}"
            ) from None
        return _without_nulls(tree)

    def _typed_problems(self, call: ApiCall, tree: Document) -> list[str]:
        custom: CustomKind | None = call.row.custom
        schema = self._schema(call)
        if custom is None:
            assert isinstance(schema, StructSchema)
            return typed_problems(tree, schema)
        return list(islice(custom.typed_problems(tree, call.version), MOST_PROBLEMS))

    def _place(self, call: ApiCall) -> str:
        where = f"{call.namespace}/{call.name}"
        return f"{where}; {call.row.group}/{call.version}, Kind={call.row.kind}"

    def _checked(self, call: ApiCall, config: Document) -> None:
        metadata = config.get("metadata") or {}
        if (metadata.get("name") or call.name) != call.name:
            raise errors.bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
            )
        if call.row.namespaced and (metadata.get("namespace") or call.namespace) != call.namespace:
            raise errors.other_namespace()

    def _applied(
        self, call: ApiCall, config: Document, old: Document, manager: Manager, options: WriteOptions
    ) -> Document:
        self._checked(call, config)
        row, schema, now = call.row, self._schema(call), self._core.now()
        kind = managed_kind(row, manager.subresource)
        owners = managed_fields.read(old["metadata"].get("managedFields"))
        if not owners:
            empty = empty_of(row, call.version)
            owners = managed_fields.owned_before_first_apply(old, empty, manager.api_version, kind, now)
        fields = managed_fields.applied_fields({"metadata": {}, **config}, schema, kind)
        live = from_storage(row, call.version, old)
        merged = merge_applied(live, config, schema)
        merged = remove_fields(merged, managed_fields.abandoned(owners, manager, fields), schema)
        decoded = self._read_result(call, merged, AS_JSON, options, live)
        document = decoded.document
        self._match(call, document, old)
        document = to_storage(row, defaulted(row, document, now, has_stored_spec=decoded.has_stored_spec))
        changes = managed_fields.FieldChanges(old, document, kind)
        found = () if options.force else managed_fields.conflicts(owners, changes, manager)
        if found:
            raise managed_fields.conflict_error(list(found))
        owners = managed_fields.after_apply(owners, changes, manager, fields, now)
        document["metadata"]["managedFields"] = managed_fields.write(owners)
        return document

    async def _create_applied(
        self, call: ApiCall, config: Document, manager: Manager, options: WriteOptions
    ) -> WriteOutcome:
        row, now = call.row, self._core.now()
        self._checked(call, config)
        uid = (config.get("metadata") or {}).get("uid")
        if uid:
            raise errors.conflict(
                row,
                call.name,
                f"uid mismatch: the provided object specified uid {uid}, and no existing object was found",
            )
        kind = managed_kind(row, "")
        fields = managed_fields.applied_fields({"metadata": {}, **config}, self._schema(call), kind)
        document = self._read_result(call, config, AS_JSON, options).document
        metadata = document["metadata"]
        metadata["name"] = call.name
        if call.row.namespaced:
            metadata["namespace"] = call.namespace
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
            metadata.pop(name, None)
        metadata["uid"], metadata["creationTimestamp"] = self._core.new_uid(), now
        document = defaulted(row, document, now)
        owned = managed_fields.ManagerFields(manager, fields, now)
        document["metadata"]["managedFields"] = managed_fields.write({manager.identity: owned})
        return await self._writer.insert(call, to_storage(row, document), dry_run=options.dry_run)


def _without_nulls(tree: Document) -> Document:
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in tree.items()
        if value is not None
    }


def _invalid_patch(shown: str, why: str) -> ApiError:
    problem = OptionError("Invalid", "patch", f"Invalid value: {go_json(shown)}: {why}")
    return errors.invalid("", "", "", [problem])


def _operation(entry: Any) -> Document:
    if entry is None:
        return {}
    if not isinstance(entry, dict):
        raise _undecodable(entry, "value of type handlers.jsonPatchOp")
    for name in ("op", "from", "path"):
        if not isinstance(entry.get(name, ""), str | None):
            raise _undecodable(entry[name], f"struct field jsonPatchOp.{name} of type string")
    return entry


def _undecodable(value: Any, target: str) -> ApiError:
    return errors.bad_request(f"error decoding patch: json: cannot unmarshal {_kind(value)} into Go {target}")


def _duplicate_keys(body: bytes) -> str:
    """What a strict reader of YAML says about keys that occur twice in one map."""
    found = next(iter(read_yaml(body))).duplicate_keys
    lines = "\n".join(f'  line {line}: key "{key}" already set in map' for line, key in found)
    return f"error converting YAML to JSON: yaml: unmarshal errors:\n{lines}"


def _kind(value: Any) -> str:
    return {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(value), "number")
