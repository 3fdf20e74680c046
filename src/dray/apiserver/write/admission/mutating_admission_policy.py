"""Policies that administrators write in CEL and that change what is written."""

from __future__ import annotations

import copy
from typing import Any

from dray.api.safe_get import mapping, name_of, namespace_of
from dray.api.schemas import schema_for
from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.admission.chain import Admission, AdmissionPlugin, forbidden, namespace_of_request, row_of
from dray.apiserver.write.admission.policies_and_webhooks import POLICY_GROUP
from dray.apiserver.write.admission.webhook_plugins import Reinvocation, WebhookParts
from dray.apiserver.write.field_sets import OwnershipSchema
from dray.apiserver.write.managed_fields import ownership_schema
from dray.apiserver.write.policies.compiled_policies import PolicyBinding
from dray.apiserver.write.policies.evaluation import PolicyError, Scene, applies, fill_variables
from dray.apiserver.write.policies.mutating_policies import CompiledMutatingPolicy, MutatingPolicyIndex, changed
from dray.apiserver.write.policies.parameters import parameters
from dray.apiserver.write.policies.request_matching import MatchedResource, matched_by
from dray.apiserver.write.webhooks.invocation import shown, taken_back


class MutatingAdmissionPolicy(AdmissionPlugin):
    name = "MutatingAdmissionPolicy"

    def __init__(self, index: MutatingPolicyIndex, parts: WebhookParts) -> None:
        self._index = index
        self._parts = parts

    @property
    def has_work(self) -> bool:
        return bool(self._index.bindings)

    async def mutate(self, admission: Admission) -> None:
        if admission.attributes.group == POLICY_GROUP or admission.document is None:
            return
        state: Reinvocation = admission.memory.setdefault(self.name, Reinvocation())
        if admission.is_second_round and admission.document != state.output:
            state.object_changed()
        namespace = await namespace_of_request(admission, self._parts.objects)
        async for policy, binding in self._index.in_order():
            matched = matched_by(mapping(policy.document, "spec", "matchConstraints"), admission, namespace)
            narrower = mapping(binding.document, "spec", "matchResources")
            if matched is None or (narrower and matched_by(narrower, admission, namespace) is None):
                continue
            try:
                await self._run(policy, binding, admission, matched, namespace, state)
            except PolicyError as error:
                if policy.fails_closed:
                    raise _refusal(admission, policy, binding, str(error)) from None
        if not admission.is_second_round and state.called | state.again:
            state.output = copy.deepcopy(admission.document)

    async def _run(
        self,
        policy: CompiledMutatingPolicy,
        binding: PolicyBinding,
        admission: Admission,
        matched: MatchedResource,
        namespace: Document | None,
        state: Reinvocation,
    ) -> None:
        for params in await parameters(policy.document, binding.document, admission, self._parts.objects):
            key = f"{policy.name}/{binding.name}/{namespace_of(params)}/{name_of(params)}"
            if admission.is_second_round and key not in state.again:
                continue
            scene = self._scene(admission, matched, namespace)
            if not applies(policy, scene, params):
                continue
            if await self._change(policy, admission, matched, namespace, params):
                state.object_changed()
                admission.wants_second_round = True
            if policy.is_reinvoked:
                state.called.add(key)

    def _scene(self, admission: Admission, matched: MatchedResource, namespace: Document | None) -> Scene:
        new, old = shown(admission, matched, admission.document), shown(admission, matched, admission.old)
        return Scene.showing(admission, new, old, namespace, self._parts.decide, matched)

    async def _change(
        self,
        policy: CompiledMutatingPolicy,
        admission: Admission,
        matched: MatchedResource,
        namespace: Document | None,
        params: Document | None,
    ) -> bool:
        """Makes the policy's mutations, each of which sees the changes before it; whether something changed."""
        before = admission.document
        for mutation in policy.mutations:
            scene = self._scene(admission, matched, namespace)
            values: dict[str, Any] = {**scene.values, "params": params, "variables": {}}
            await fill_variables(policy.variables, values)
            after = changed(mutation, values["object"], values, _schema(admission, values["object"]))
            if after is not values["object"]:
                admission.document = taken_back(admission, matched, after, self._parts.now())
        return admission.document != before


def _schema(admission: Admission, document: Document) -> OwnershipSchema:
    row = row_of(admission)
    own = ownership_schema(row, document["apiVersion"]) if document["kind"] == row.kind else None
    found = own or schema_for(document["apiVersion"], document["kind"])
    assert found is not None
    return found


def _refusal(admission: Admission, policy: CompiledMutatingPolicy, binding: PolicyBinding, why: str) -> ApiError:
    message = f"policy '{policy.name}' with binding '{binding.name}' denied request: {why}"
    details = {**(forbidden(admission, "").details or {}), "causes": [{"message": message}]}
    return ApiError(403, "Invalid", message, details)
