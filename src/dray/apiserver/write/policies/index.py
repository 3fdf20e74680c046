"""The policies and bindings there are, compiled once when they change."""

from dataclasses import dataclass

import msgspec

from dray.apiserver.request.request_info import Document
from dray.apiserver.safe_get import (
    strings,
    text,
)
from dray.apiserver.watch.store_mirror import Mirror
from dray.apiserver.watch.stored_object import resource_prefix
from dray.apiserver.write.policies.programs import (
    CompiledPolicy,
    compile_policy,
)
from dray.store.interface import Store

GROUP = "admissionregistration.k8s.io"
PREFIX = resource_prefix(GROUP, "")[:-1]


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

    @staticmethod
    async def start(store: Store) -> "tuple[PolicyIndex, Mirror]":
        index = PolicyIndex()
        mirror = Mirror(store, PREFIX, index.apply)
        await mirror.start()
        return index, mirror

    def apply(self, key: str, value: bytes | None) -> None:
        plural, _, name = key.removeprefix(PREFIX).partition("/")
        if plural == "validatingadmissionpolicies":
            self.policies.pop(name, None)
            if value is not None:
                self.policies[name] = compile_policy(msgspec.json.decode(value))
        elif plural == "validatingadmissionpolicybindings":
            self.bindings.pop(name, None)
            if value is not None:
                document = msgspec.json.decode(value)
                self.bindings[name] = Binding(name, text(document, "spec", "policyName"), document)
