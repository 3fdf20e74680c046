"""Policies that administrators write: every binding that looks at a request is asked, and one "no" is enough."""

from dray.api.safe_get import (
    mapping,
)
from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.apiserver.write.admission.chain import (
    Admission,
    AdmissionPlugin,
    forbidden,
    log_for_audit,
    namespace_of_request,
)
from dray.apiserver.write.admission.policies_and_webhooks import POLICY_GROUP
from dray.apiserver.write.policies.authorizer_library import Decide
from dray.apiserver.write.policies.compiled_policies import (
    CompiledPolicy,
    PolicyBinding,
    PolicyIndex,
)
from dray.apiserver.write.policies.evaluation import (
    Denial,
    PolicyError,
    Scene,
    applies,
    judge,
)
from dray.apiserver.write.policies.parameters import parameters
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
            policy = await self._index.policies.get(binding.policy)
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
            for params in await parameters(policy.document, binding.document, admission, self._objects):
                if applies(policy, scene, params):
                    judgement = await judge(policy, scene, params)
                    for name, value in judgement.annotations.items():
                        log_for_audit(admission, f"{name}={value}")
                    for denial in judgement.denials:
                        self._act(policy, binding, admission, denial)
        except PolicyError as error:
            if policy.fails_closed:
                self._act(policy, binding, admission, Denial(str(error)))

    def _act(self, policy: CompiledPolicy, binding: PolicyBinding, admission: Admission, denial: Denial) -> None:
        names = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
        if "Audit" in binding.actions:
            log_for_audit(admission, f"{names}: {denial.message}")
        if "Warn" in binding.actions:
            admission.warnings.append(f"Validation failed for {names}: {denial.message}")
        if "Deny" in binding.actions:
            raise _refusal(admission, f"{names} denied request: {denial.message}", denial.reason)


def _refusal(admission: Admission, message: str, reason: str) -> ApiError:
    """Forbidden in words; code and reason as the policy wants them."""
    reason = reason or "Invalid"
    error = forbidden(admission, message)
    details = {**(error.details or {}), "causes": [{"message": message}]}
    return ApiError(CODES.get(reason, 422), reason, error.message, details)
