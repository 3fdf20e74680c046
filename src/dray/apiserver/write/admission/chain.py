"""The base class of admission plugins, and the chain that asks them in order.

Every write passes the chain twice: the mutating round comes before validation, the validating round after it. When a webhook or a
policy has changed the object, the mutating round is repeated once, as in Kubernetes.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from dray.api.jsontext import go_json
from dray.api.scheme import Resource, by_plural
from dray.apiserver import errors
from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import Attributes, Document, User
from dray.apiserver.watch.kind_cache import ObjectLookup

# The operations of admission, as policies and plugins name them.
CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"
CONNECT = "CONNECT"

audit = logging.getLogger("dray.audit")


class Admission(msgspec.Struct):
    """One write on its way to the store.

    `document` is the object as it would be stored (None for a deletion), in the storage version and defaulted; plugins
    of the mutating round may change it in place. `old` is what is stored now (None for a creation) and stays untouched.
    For a subresource that takes another kind (binding, eviction, token) `document` is that kind.
    `options` is CreateOptions, UpdateOptions or DeleteOptions as sent.
    """

    attributes: Attributes
    operation: str
    kind: str
    document: Document | None
    old: Document | None = None
    options: Document = msgspec.field(default_factory=dict)
    warnings: list[str] = msgspec.field(default_factory=list)
    # A plugin that runs code from outside changed the object: the mutating plugins see it once more.
    wants_second_round: bool = False
    is_second_round: bool = False
    # What such plugins remember from the first round for the second, by plugin.
    memory: dict[str, Any] = msgspec.field(default_factory=dict)
    # The kind of the resource; found by its names where nobody says it.
    row: Resource | None = None

    @property
    def user(self) -> User:
        return self.attributes.user

    @property
    def name(self) -> str:
        """The object's name; empty only while generateName has not been resolved."""
        if self.attributes.name:
            return self.attributes.name
        meta = (self.document or self.old or {}).get("metadata") or {}
        return str(meta.get("name") or "")


class AdmissionChain(Protocol):
    """What handlers call, in the order of a write: mutate, then validation, then validate."""

    @property
    def may_rewrite(self) -> bool:
        """Whether a webhook or a policy may change any object."""
        ...

    async def mutate(self, admission: Admission) -> None: ...

    async def validate(self, admission: Admission) -> None: ...


class KindOfWrite(msgspec.Struct, frozen=True, gc=False):
    """What all creations of pods, or all changes of the status of claims, have in common."""

    operation: str
    group: str
    resource: str
    subresource: str = ""


MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


class AdmissionPlugin:
    """Does nothing in either round; a plugin overrides the rounds it takes part in and refuses a write by raising ApiError."""

    name = ""
    # Group and plural of the resources it looks at; None: of all.
    resources: frozenset[tuple[str, str]] | None = None
    # Whether it changes objects as its users like: a webhook, a policy.
    rewrites = False

    def looks_at(self, write: KindOfWrite) -> bool:
        """Whether it has anything to say about such writes; asked once for each kind of write."""
        return self.resources is None or (write.group, write.resource) in self.resources

    @property
    def has_work(self) -> bool:
        """False while there is nothing to ask it; whoever changes that calls `PluginChain.reconsider`."""
        return True

    async def mutate(self, admission: Admission) -> None:
        """Before validation; may change `admission.document`."""
        return

    async def validate(self, admission: Admission) -> None:
        """After validation, right before the store; sees the final object."""
        return


def row_of(admission: Admission) -> Resource:
    if admission.row is not None:
        return admission.row
    attributes = admission.attributes
    row = by_plural(attributes.group, attributes.resource)
    if row is None:
        raise LookupError(f"{attributes.group}/{attributes.resource} is not served")
    return row


def log_for_audit(admission: Admission, what: str) -> None:
    """In place of an audit event: one line of the log, whatever a user put into names and values."""
    asked = admission.attributes
    place = "/".join(part for part in (asked.resource, asked.subresource, asked.namespace, admission.name) if part)
    audit.info("%s %s %s: %s", admission.user.name, admission.operation.lower(), place, go_json(what))


def forbidden(admission: Admission, why: str) -> ApiError:
    """403 about the object being written."""
    return errors.forbidden(row_of(admission), admission.name, why)


def concerns(admission: Admission, group: str, resource: str, subresource: str = "") -> bool:
    attributes = admission.attributes
    return (attributes.group, attributes.resource, attributes.subresource) == (group, resource, subresource)


async def namespace_of_request(admission: Admission, objects: ObjectLookup) -> Document | None:
    """The Namespace a write is in, or which it writes; None for cluster-scoped objects."""
    attributes = admission.attributes
    if attributes.resource == "namespaces" and not attributes.group:
        return admission.document or admission.old
    if not attributes.namespace:
        return None
    return await objects.get("", "namespaces", "", attributes.namespace)


@dataclass(frozen=True, slots=True)
class AdmissionRounds:
    mutating: tuple[AdmissionPlugin, ...]
    validating: tuple[AdmissionPlugin, ...]


class PluginChain:
    """Asks each plugin that looks at the resource, in the order of the plugins."""

    def __init__(self, plugins: Sequence[AdmissionPlugin]) -> None:
        self._plugins = tuple(plugins)
        self._concerned: dict[tuple[str, ...], AdmissionRounds] = {}
        self.reconsider()

    def reconsider(self) -> None:
        """To be called when a plugin's `has_work` may have changed."""
        self._working = tuple(plugin for plugin in self._plugins if plugin.has_work)
        self.may_rewrite = any(plugin.rewrites for plugin in self._working)
        self._concerned.clear()

    async def mutate(self, admission: Admission) -> None:
        plugins = self._rounds(admission).mutating
        for plugin in plugins:
            await plugin.mutate(admission)
        if admission.wants_second_round:
            admission.is_second_round = True
            for plugin in plugins:
                await plugin.mutate(admission)

    async def validate(self, admission: Admission) -> None:
        for plugin in self._rounds(admission).validating:
            await plugin.validate(admission)

    def _rounds(self, admission: Admission) -> AdmissionRounds:
        """Found once for each kind of write; there are a few for each kind of object."""
        attributes = admission.attributes
        kind = (admission.operation, attributes.group, attributes.resource, attributes.subresource)
        found = self._concerned.get(kind)
        if found is None:
            write = KindOfWrite(*kind)
            concerned = [plugin for plugin in self._working if plugin.looks_at(write)]
            found = self._concerned[kind] = AdmissionRounds(
                tuple(plugin for plugin in concerned if _overrides(plugin, "mutate")),
                tuple(plugin for plugin in concerned if _overrides(plugin, "validate")),
            )
        return found


def _overrides(plugin: AdmissionPlugin, round_name: str) -> bool:
    return getattr(type(plugin), round_name) is not getattr(AdmissionPlugin, round_name)
