"""What is asked: a request as authorization and admission see it, once its path is understood."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from dray.apiserver.request.user import User

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One term of a field selector, such as `spec.nodeName=n1`."""

    field: str
    operator: str  # "=" or "!="
    value: str


class Attributes(msgspec.Struct, frozen=True):
    """A resource request, or (no resource) a request for a plain path.

    `verb` is Kubernetes' word: get, list, watch, create, update, patch, delete, deletecollection; for a plain path the
    HTTP method in lower case. `name` is empty for collections, and for creations with generateName.
    """

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    dry_run: bool = False
    field_requirements: tuple[FieldRequirement, ...] = ()

    @property
    def is_resource(self) -> bool:
        return bool(self.resource)

    @property
    def full_resource(self) -> str:
        """As RBAC rules spell it: `pods`, or `pods/status`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class Decision:
    """`allowed` False with an empty reason means that nobody had an opinion."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    async def authorize(self, attributes: Attributes) -> Decision: ...


# The operations of admission, as policies and plugins name them.
CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"
CONNECT = "CONNECT"


@dataclass(slots=True)
class Admission:
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
    options: Document = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

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


class Plugin(Protocol):
    """One rule set of admission. A plugin refuses by raising ApiError; it implements one round or both."""

    name: str

    async def mutate(self, admission: Admission) -> None:
        """Before validation; may change `admission.document`."""
        ...

    async def validate(self, admission: Admission) -> None:
        """After validation, right before the store; sees the final object."""
        ...


class AdmissionChain(Protocol):
    """What handlers call, in the order of a write: mutate, then validation, then validate."""

    async def mutate(self, admission: Admission) -> None: ...

    async def validate(self, admission: Admission) -> None: ...
