"""Refuses policies, bindings and webhooks with mistakes, above all with expressions that do not compile."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dray.apiserver import errors
from dray.apiserver.core import in_thread_if_large
from dray.apiserver.errors import OptionError
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.admission.chain import CREATE, UPDATE, Admission, AdmissionPlugin, row_of
from dray.apiserver.write.policies.compiled_policies import POLICY_GROUP, expressions_in
from dray.apiserver.write.policies.policy_validation import (
    binding_problems,
    mutating_binding_problems,
    mutating_policy_problems,
    policy_problems,
    webhook_problems,
)

Check = Callable[[Document, Document | None], Iterable[OptionError]]

CHECKS: dict[str, Check] = {
    "mutatingadmissionpolicies": lambda new, old: mutating_policy_problems(new),
    "mutatingadmissionpolicybindings": lambda new, old: mutating_binding_problems(new),
    "validatingadmissionpolicies": lambda new, old: policy_problems(new),
    "validatingadmissionpolicybindings": lambda new, old: binding_problems(new),
    "mutatingwebhookconfigurations": webhook_problems,
    "validatingwebhookconfigurations": webhook_problems,
}


class PolicyChecks(AdmissionPlugin):
    name = "PolicyChecks"
    resources = frozenset((POLICY_GROUP, plural) for plural in CHECKS)

    async def validate(self, admission: Admission) -> None:
        if admission.operation not in (CREATE, UPDATE) or admission.attributes.subresource:
            return
        check, document = CHECKS[admission.attributes.resource], admission.document or {}
        found = await in_thread_if_large(expressions_in(document), lambda: list(check(document, admission.old)))
        if found:
            raise errors.invalid_object(row_of(admission), admission.name, found)
