"""Policies and webhooks that administrators register, as two plugins of the chain: one checks these objects, the other one asks them.

The code behind them is a fifth of the server's, and most clusters have none of these objects. So it is loaded when the first one is
written or found in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dray.apiserver import errors
from dray.apiserver.core import in_thread_if_large
from dray.apiserver.watch.kind_cache import ApplyValue, ObjectLookup, StoreFollower
from dray.apiserver.watch.stored_object import resource_prefix
from dray.apiserver.write.admission.chain import CREATE, UPDATE, Admission, AdmissionPlugin, row_of
from dray.apiserver.write.webhooks.calling import WebhookCaller
from dray.telemetry import Registry

if TYPE_CHECKING:
    from dray.apiserver.write.policies.authorizer_library import Decide

POLICY_GROUP = "admissionregistration.k8s.io"
POLICY_PREFIX = resource_prefix(POLICY_GROUP, "")[:-1]
MUTATING_POLICIES, MUTATING_BINDINGS = "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"
VALIDATING_POLICIES, VALIDATING_BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
PLURALS = (
    MUTATING_POLICIES,
    MUTATING_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_BINDINGS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
)


class PolicyChecks(AdmissionPlugin):
    """Refuses policies, bindings and webhooks with mistakes, above all with expressions that do not compile."""

    name = "PolicyChecks"
    resources = frozenset((POLICY_GROUP, plural) for plural in PLURALS)

    async def validate(self, admission: Admission) -> None:
        from dray.apiserver.write.policies.compiled_policies import expressions_in
        from dray.apiserver.write.policies.policy_validation import problems_of

        if admission.operation not in (CREATE, UPDATE) or admission.attributes.subresource:
            return
        plural, document = admission.attributes.resource, admission.document or {}
        found = await in_thread_if_large(expressions_in(document), lambda: problems_of(plural, document, admission.old))
        if found:
            raise errors.invalid_object(row_of(admission), admission.name, found)


@dataclass(frozen=True, slots=True)
class PolicySurroundings:
    """The parts of the server that policies and webhooks use."""

    caller: WebhookCaller
    objects: ObjectLookup
    decide: Decide
    new_uid: Callable[[], str]
    now: Callable[[], str]
    registry: Registry


class PoliciesAndWebhooks(AdmissionPlugin):
    """Kubernetes' four plugins that ask policies and webhooks, in its order; there are none before the first of these objects."""

    name = "PoliciesAndWebhooks"
    rewrites = True

    def __init__(self, surroundings: PolicySurroundings) -> None:
        self._surroundings = surroundings
        self._plugins: tuple[AdmissionPlugin, ...] = ()
        self._indexes: dict[str, ApplyValue] = {}
        self._on_change: list[Callable[[], None]] = []

    def follow(self, follower: StoreFollower) -> None:
        follower.subscribe_index([resource_prefix(POLICY_GROUP, plural) for plural in PLURALS], self.apply)

    def on_change(self, action: Callable[[], None]) -> None:
        self._on_change.append(action)

    def apply(self, key: str, value: bytes | None) -> None:
        if not self._indexes:
            self._load()
        plural = key.removeprefix(POLICY_PREFIX).partition("/")[0]
        self._indexes[plural](key, value)
        for action in self._on_change:
            action()

    def _load(self) -> None:
        from dray.apiserver.write.admission.mutating_admission_policy import MutatingAdmissionPolicy
        from dray.apiserver.write.admission.validating_admission_policy import ValidatingAdmissionPolicy
        from dray.apiserver.write.admission.webhook_plugins import (
            MutatingAdmissionWebhook,
            ValidatingAdmissionWebhook,
            WebhookMetrics,
            WebhookParts,
        )
        from dray.apiserver.write.policies.compiled_policies import PolicyIndex
        from dray.apiserver.write.policies.mutating_policies import MutatingPolicyIndex
        from dray.apiserver.write.webhooks.configurations import WebhookIndex

        mutating, validating, webhooks = MutatingPolicyIndex(), PolicyIndex(), WebhookIndex()
        self._indexes = {
            **dict.fromkeys((MUTATING_POLICIES, MUTATING_BINDINGS), mutating.apply),
            **dict.fromkeys((VALIDATING_POLICIES, VALIDATING_BINDINGS), validating.apply),
            **dict.fromkeys((MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS), webhooks.apply),
        }
        given = self._surroundings
        metrics = WebhookMetrics(given.registry)
        parts = WebhookParts(webhooks, given.caller, given.objects, given.decide, given.new_uid, given.now, metrics)
        self._plugins = (
            MutatingAdmissionPolicy(mutating, parts),
            MutatingAdmissionWebhook(parts),
            ValidatingAdmissionPolicy(validating, given.objects, given.decide),
            ValidatingAdmissionWebhook(parts),
        )

    # --- the rounds

    @property
    def has_work(self) -> bool:
        return any(self._working())

    def _working(self) -> Iterable[AdmissionPlugin]:
        return (plugin for plugin in self._plugins if plugin.has_work)

    async def mutate(self, admission: Admission) -> None:
        for plugin in self._working():
            await plugin.mutate(admission)

    async def validate(self, admission: Admission) -> None:
        for plugin in self._working():
            await plugin.validate(admission)
