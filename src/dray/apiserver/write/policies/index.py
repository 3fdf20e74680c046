"""The policies and bindings there are, compiled once when they change."""

from dataclasses import dataclass

import msgspec

from dray.apiserver.request.request_info import Document
from dray.apiserver.safe_get import (
    strings,
    text,
)
from dray.apiserver.watch.store_follower import StoreFollower
from dray.apiserver.watch.stored_object import resource_prefix
from dray.apiserver.write.policies.programs import (
    CompiledPolicy,
    compile_policy,
)

GROUP = "admissionregistration.k8s.io"
PREFIX = resource_prefix(GROUP, "")[:-1]
POLICIES, BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"


@dataclass(frozen=True, slots=True)
class Binding:
    name: str
    policy: str
    document: Document

    @property
    def actions(self) -> list[str]:
        return strings(self.document, "spec", "validationActions")


class PolicyIndex:
    def __init__(self) -> None:
        self.policies: dict[str, CompiledPolicy] = {}
        self.bindings: dict[str, Binding] = {}

    @classmethod
    def following(cls, follower: StoreFollower) -> "PolicyIndex":
        index = cls()
        follower.subscribe_index([resource_prefix(GROUP, plural) for plural in (POLICIES, BINDINGS)], index.apply)
        return index

    def apply(self, key: str, value: bytes | None) -> None:
        plural, _, name = key.removeprefix(PREFIX).partition("/")
        if plural == POLICIES:
            self.policies.pop(name, None)
            if value is not None:
                self.policies[name] = compile_policy(msgspec.json.decode(value))
        elif plural == BINDINGS:
            self.bindings.pop(name, None)
            if value is not None:
                document = msgspec.json.decode(value)
                self.bindings[name] = Binding(name, text(document, "spec", "policyName"), document)
