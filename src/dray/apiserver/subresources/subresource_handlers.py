"""The paths below an object that do more than read or write it: binding, eviction, tokens, scale, finalize."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from msgspec.structs import replace

from dray.api.jsontext import go_json
from dray.api.names import subdomain_problems
from dray.api.scheme import Resource, by_kind
from dray.api.shaping import empty_object
from dray.apiserver import errors
from dray.apiserver.core import Core, in_thread_if_large
from dray.apiserver.request.authentication.token_requests import TokenRequests
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.request.request_options import (
    JSON,
    WriteOptions,
    body_type,
    write_options,
)
from dray.apiserver.write import managed_fields
from dray.apiserver.write.admission.chain import CREATE, Admission
from dray.apiserver.write.decoding import Decoded, decode_object
from dray.apiserver.write.deletion import Deleter, options_of
from dray.apiserver.write.managed_fields import Manager, managed_kind
from dray.apiserver.write.object_writer import (
    ObjectChange,
    ObjectWriter,
    sent_options,
)

Document = dict[str, Any]


def success(code: int) -> Document:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


class Subresources:
    def __init__(self, core: Core, writer: ObjectWriter, deleter: Deleter, tokens: TokenRequests | None) -> None:
        self._core = core
        self._writer = writer
        self._deleter = deleter
        self._tokens = tokens

    async def _decoded(self, call: ApiCall, row: Resource, kind: str = "") -> Decoded:
        body, media_type = call.request.body, body_type(call.content_type)
        return await in_thread_if_large(len(body), lambda: decode_object(body, media_type, row, "v1", kind))

    # --- pods/binding -------------------------------------------------------------------------------------------------

    async def bind(self, call: ApiCall) -> None:
        options = write_options(call.query, "CreateOptions")
        binding = await self._binding(call, options)
        pods = by_kind("Pod")
        name = call.name if call.row.kind == "Pod" else binding["metadata"].get("name", "")
        call = replace(call, row=pods, info=replace(call.info, name=name))
        binding = await self._admit(call, binding, "Binding", options)
        self._check_target(binding.get("target") or {})

        def build(old: Document) -> Document:
            return _bound(old, binding, name, self._core.now())

        # The scheduler's word is final: no strategy or validation of a pod update applies.
        await self._writer.change(
            call, ObjectChange(build, "binding", options.dry_run, endpoint="finalize", skip_admission=True)
        )

    async def _binding(self, call: ApiCall, options: WriteOptions) -> Document:
        decoded = await self._decoded(call, by_kind("Pod"), "Binding")
        self._writer.report(call, decoded.problems, options)
        metadata = decoded.document["metadata"]
        _check_namespace(metadata, call)
        if call.row.kind == "Pod" and (metadata.get("name") or call.name) != call.name:
            raise errors.bad_request("name in URL does not match name in Binding object")
        return decoded.document

    def _check_target(self, target: Document) -> None:
        """Kubernetes answers 500 here; it is the client's mistake."""
        problems = []
        if target.get("kind") not in (None, "", "Node"):
            supported = '"", "Node"'
            problems.append(f"target.kind: Unsupported value: {go_json(target['kind'])}: supported values: {supported}")
        if not target.get("name"):
            problems.append("target.name: Required value")
        else:
            problems += [
                f"target.name: Invalid value: {go_json(target['name'])}: {why}"
                for why in subdomain_problems(target["name"])
            ]
        if problems:
            raise errors.bad_request(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")

    async def _admit(self, call: ApiCall, document: Document, kind: str, options: WriteOptions) -> Document:
        """The document as admission leaves it."""
        attributes = replace(call.attributes, dry_run=options.dry_run)
        sent = sent_options(call, "CreateOptions")
        admission = Admission(attributes, CREATE, kind, document, options=sent, warnings=call.warnings, row=call.row)
        await self._core.admission.mutate(admission)
        await self._core.admission.validate(admission)
        assert admission.document is not None
        return admission.document

    # --- pods/eviction ------------------------------------------------------------------------------------------------

    async def evict(self, call: ApiCall) -> Document:
        options = write_options(call.query, "CreateOptions")
        eviction_row = dataclasses.replace(by_kind("PodDisruptionBudget"), kind="Eviction")
        body, media_type = call.request.body, body_type(call.content_type)

        def decode() -> Decoded:
            current = _in_current_version(body) if media_type == JSON and OLD_POLICY in body else body
            return decode_object(current, media_type, eviction_row, "v1")

        decoded = await in_thread_if_large(len(body), decode)
        self._writer.report(call, decoded.problems, options)
        metadata = decoded.document["metadata"]
        _check_namespace(metadata, call)
        if metadata.get("name") != call.name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        _check_ignores_nothing(decoded.document.get("deleteOptions") or {}, call.name, eviction_row)
        eviction = await self._admit(call, decoded.document, "Eviction", options)
        deletion = options_of(eviction.get("deleteOptions") or {})
        deletion = dataclasses.replace(deletion, dry_run=options.dry_run or deletion.dry_run)
        from dray.apiserver.subresources.evictions import Evictions

        await Evictions(self._core, self._writer, self._deleter).evict(call, deletion)
        return success(201)

    # --- serviceaccounts/token ----------------------------------------------------------------------------------------

    async def issue_token(self, call: ApiCall) -> Document:
        options = write_options(call.query, "CreateOptions")
        token_row = dataclasses.replace(by_kind("TokenReview"), kind="TokenRequest")
        decoded = await self._decoded(call, token_row)
        self._writer.report(call, decoded.problems, options)
        request = decoded.document
        request = await self._admit(call, request, "TokenRequest", options)
        self._own(call, request, token_row.kind, options)
        assert self._tokens is not None
        return await self._tokens.answer(call.namespace, call.name, request)

    def _own(self, call: ApiCall, request: Document, kind: str, options: WriteOptions) -> None:
        manager = Manager(
            call.field_manager(options.field_manager), managed_fields.UPDATE, "authentication.k8s.io/v1", "token"
        )
        empty = empty_object(manager.api_version, kind)
        owned = managed_kind(dataclasses.replace(by_kind("TokenReview"), kind=kind), "")
        entries = managed_fields.owned_by_creator(request, empty, manager, owned, self._core.now())
        if entries:
            request["metadata"]["managedFields"] = entries


def _check_namespace(metadata: Document, call: ApiCall) -> None:
    if (metadata.get("namespace") or call.namespace) != call.namespace:
        raise errors.other_namespace()


OLD_POLICY = b"policy/v1beta1"
UNREADABLE = "ignoreStoreReadErrorWithClusterBreakingPotential"


def _in_current_version(body: bytes) -> bytes:
    """An Eviction of policy/v1beta1 says the same as one of policy/v1."""
    try:
        tree = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return body
    if not isinstance(tree, dict) or tree.get("apiVersion") != OLD_POLICY.decode():
        return body
    return msgspec.json.encode({**tree, "apiVersion": "policy/v1"})


def _check_ignores_nothing(wish: Document, name: str, row: Resource) -> None:
    if wish.get(UNREADABLE):
        problem = errors.OptionError(
            "FieldValueInvalid",
            f"deleteOptions.{UNREADABLE}",
            "Invalid value: true: can not be set for pod eviction, try after removing the option",
        )
        raise errors.invalid(row.group, row.kind, name, [problem])


def _bound(pod: Document, binding: Document, name: str, now: str) -> Document:
    """The pod on its node; raises 409 where it cannot go there."""
    row = by_kind("Pod")
    metadata, spec, status = dict(pod["metadata"]), dict(pod.get("spec") or {}), dict(pod.get("status") or {})
    wanted = binding["metadata"]
    if wanted.get("uid") and wanted["uid"] != metadata["uid"]:
        raise errors.conflict(
            row,
            name,
            f"Precondition failed: UID in precondition: {wanted['uid']}, UID in object meta: {metadata['uid']}",
        )
    if wanted.get("resourceVersion") and wanted["resourceVersion"] != metadata["resourceVersion"]:
        raise errors.conflict(row, name)
    if metadata.get("deletionTimestamp"):
        raise errors.conflict(
            row, name, f"pod {name} is being deleted, cannot be assigned to a host", subresource="binding"
        )
    if spec.get("nodeName"):
        why = f"pod {name} is already assigned to node {go_json(spec['nodeName'])}"
        raise errors.conflict(row, name, why, subresource="binding")
    if spec.get("schedulingGates"):
        raise errors.conflict(row, name, f"pod {name} has non-empty .spec.schedulingGates", subresource="binding")
    spec["nodeName"] = binding["target"]["name"]
    for field in ("annotations", "labels"):
        if wanted.get(field):
            metadata[field] = {**(metadata.get(field) or {}), **wanted[field]}
    status.pop("nominatedNodeName", None)
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions = [entry for entry in status.get("conditions") or () if entry.get("type") != "PodScheduled"]
    status["conditions"] = [*conditions, scheduled]
    return {**pod, "metadata": metadata, "spec": spec, "status": status}
