"""Policies that administrators write: every binding that looks at a request is asked, and one "no" is enough."""

from collections.abc import AsyncIterator

from dray.api.safe_get import (
    labels_of,
    mapping,
    text,
)
from dray.api.scheme import RESOURCES
from dray.apiserver.errors import ApiError
from dray.apiserver.read.selectors import selects
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.apiserver.write.admission.admission_log import remember
from dray.apiserver.write.admission.chain import (
    Admission,
    AdmissionPlugin,
    forbidden,
    namespace_of_request,
)
from dray.apiserver.write.policies.authorizer_library import Decide
from dray.apiserver.write.policies.compiled_policies import POLICY_GROUP, CompiledPolicy, PolicyBinding, PolicyIndex
from dray.apiserver.write.policies.evaluation import (
    Denial,
    PolicyError,
    Scene,
    applies,
    judge,
)
from dray.apiserver.write.policies.request_matching import matches_request

CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}


class ValidatingAdmissionPolicy(AdmissionPlugin):
    name = "ValidatingAdmissionPolicy"

    def __init__(self, index: PolicyIndex, objects: ObjectLookup, decide: Decide) -> None:
        self._index = index
        self._objects = objects
        self._decide = decide

    @property
    def has_work(self) -> bool:
        return bool(self._index.bindings)

    async def validate(self, admission: Admission) -> None:
        if admission.attributes.group == POLICY_GROUP:
            # Policies do not judge policies: a bad one could not be taken back otherwise.
            return
        namespace = await namespace_of_request(admission, self._objects)
        scene = Scene.of(admission, namespace, self._decide)
        for binding in list(self._index.bindings.values()):
            policy = self._index.policies.get(binding.policy)
            if policy is not None and self._looks_at(policy, binding, admission, namespace):
                await self._ask(policy, binding, admission, scene)

    def _looks_at(
        self, policy: CompiledPolicy, binding: PolicyBinding, admission: Admission, namespace: Document | None
    ) -> bool:
        constraints = mapping(policy.document, "spec", "matchConstraints")
        narrower = mapping(binding.document, "spec", "matchResources")
        return matches_request(constraints, admission, namespace) and (
            not narrower or matches_request(narrower, admission, namespace)
        )

    async def _ask(self, policy: CompiledPolicy, binding: PolicyBinding, admission: Admission, scene: Scene) -> None:
        try:
            async for params in self._params(policy, binding, admission):
                if applies(policy, scene, params):
                    judgement = judge(policy, scene, params)
                    for name, value in judgement.annotations.items():
                        remember(admission, f"{name}={value}")
                    for denial in judgement.denials:
                        self._act(policy, binding, admission, denial)
        except PolicyError as error:
            if policy.fails_closed:
                self._act(policy, binding, admission, Denial(str(error)))

    def _act(self, policy: CompiledPolicy, binding: PolicyBinding, admission: Admission, denial: Denial) -> None:
        names = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
        if "Audit" in binding.actions:
            remember(admission, f"{names}: {denial.message}")
        if "Warn" in binding.actions:
            admission.warnings.append(f"Validation failed for {names}: {denial.message}")
        if "Deny" in binding.actions:
            raise _refusal(admission, f"{names} denied request: {denial.message}", denial.reason)

    # --- params ------------------------------------------------------------------------------------------------------

    async def _params(
        self, policy: CompiledPolicy, binding: PolicyBinding, admission: Admission
    ) -> AsyncIterator[Document | None]:
        """Every parameter object the binding names; one None if the policy has no parameters."""
        reference = mapping(binding.document, "spec", "paramRef")
        if not policy.has_params or not reference:
            yield None
            return
        found = await self._find_params(policy, reference, admission)
        if not found and text(reference, "parameterNotFoundAction") != "Allow":
            raise PolicyError("no params found for policy binding with `Deny` parameterNotFoundAction")
        for params in found:
            yield params

    async def _find_params(self, policy: CompiledPolicy, reference: Document, admission: Admission) -> list[Document]:
        kind = mapping(policy.document, "spec", "paramKind")
        group = text(kind, "apiVersion").rpartition("/")[0]
        row = next((row for row in RESOURCES if (row.group, row.kind) == (group, text(kind, "kind"))), None)
        if row is None or not row.is_stored:
            raise PolicyError(f"failed to find resource referenced by paramKind: '{group}, Kind={text(kind, 'kind')}'")
        namespace = (text(reference, "namespace") or admission.attributes.namespace) if row.namespaced else ""
        if row.namespaced and not namespace:
            raise PolicyError("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
        if name := text(reference, "name"):
            found = await self._objects.get(row.group, row.plural, namespace, name)
            return [found] if found else []
        everything = await self._objects.list(row.group, row.plural, namespace)
        return [found for found in everything if selects(mapping(reference, "selector"), labels_of(found))]


def _refusal(admission: Admission, message: str, reason: str) -> ApiError:
    """Forbidden in words; code and reason as the policy wants them."""
    reason = reason or "Invalid"
    error = forbidden(admission, message)
    details = {**(error.details or {}), "causes": [{"message": message}]}
    return ApiError(CODES.get(reason, 422), reason, error.message, details)
