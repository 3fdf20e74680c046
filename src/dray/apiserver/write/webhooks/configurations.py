"""The admission webhooks that exist: read from their configurations when these change, their conditions compiled once."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from dray.api.safe_get import mapping, mappings, part, strings, text, uid_of
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.admission.policies_and_webhooks import MUTATING_WEBHOOKS, POLICY_PREFIX, VALIDATING_WEBHOOKS
from dray.apiserver.write.policies.compiled_policies import environment
from dray.apiserver.write.policies.request_matching import EXACT
from dray.apiserver.write.webhooks.calling import ClientConfig
from dray.cel import CompileFailure, Program, compile_expression

DEFAULT_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class MatchCondition:
    expression: str
    program: Program | CompileFailure


@dataclass(frozen=True, slots=True)
class Webhook:
    name: str
    configuration: str
    # Tells webhooks apart that have the same name.
    identity: str
    document: Document
    client: ClientConfig
    conditions: tuple[MatchCondition, ...]

    @property
    def rules(self) -> list[Document]:
        return mappings(self.document, "rules")

    @property
    def is_exact(self) -> bool:
        return text(self.document, "matchPolicy") == EXACT

    @property
    def fails_closed(self) -> bool:
        return text(self.document, "failurePolicy") != "Ignore"

    @property
    def allows_dry_run(self) -> bool:
        return text(self.document, "sideEffects") in ("None", "NoneOnDryRun")

    @property
    def is_reinvoked(self) -> bool:
        return text(self.document, "reinvocationPolicy") == "IfNeeded"

    @property
    def timeout_s(self) -> int:
        found = part(self.document, "timeoutSeconds")
        return found if isinstance(found, int) else DEFAULT_TIMEOUT_S

    @property
    def review_versions(self) -> list[str]:
        return strings(self.document, "admissionReviewVersions")


def webhooks_of(configuration: Document) -> tuple[Webhook, ...]:
    name = text(configuration, "metadata", "name")
    found = []
    for position, document in enumerate(mappings(configuration, "webhooks")):
        webhook_name = text(document, "name")
        found.append(
            Webhook(
                webhook_name,
                name,
                f"{uid_of(configuration)}/{position}/{webhook_name}",
                document,
                ClientConfig.of(mapping(document, "clientConfig")),
                match_conditions_of(document),
            )
        )
    return tuple(found)


def match_conditions_of(webhook: Document) -> tuple[MatchCondition, ...]:
    seen = environment(with_params=False, with_variables=False)
    expressions = [text(entry, "expression") for entry in mappings(webhook, "matchConditions")]
    return tuple(MatchCondition(source, compile_expression(source, seen, "bool")) for source in expressions)


class WebhookIndex:
    """All webhooks, in the order of the names of their configurations, as Kubernetes calls them."""

    def __init__(self) -> None:
        self.mutating: tuple[Webhook, ...] = ()
        self.validating: tuple[Webhook, ...] = ()
        self._by_configuration: dict[str, dict[str, tuple[Webhook, ...]]] = {
            MUTATING_WEBHOOKS: {},
            VALIDATING_WEBHOOKS: {},
        }

    def apply(self, key: str, value: bytes | None) -> None:
        plural, _, name = key.removeprefix(POLICY_PREFIX).partition("/")
        by_name = self._by_configuration[plural]
        by_name.pop(name, None)
        if value is not None:
            by_name[name] = webhooks_of(msgspec.json.decode(value))
        ordered = tuple(webhook for _, webhooks in sorted(by_name.items()) for webhook in webhooks)
        if plural == MUTATING_WEBHOOKS:
            self.mutating = ordered
        else:
            self.validating = ordered
