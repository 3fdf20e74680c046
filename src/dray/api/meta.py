# Made by scripts/generate_api.py from scripts/api_structs.toml: change that file instead of this one.
"""ObjectMeta, owner references, conditions, label selectors, lists, and the API's Status object."""

from typing import Any

import msgspec

from dray.api.base import ApiStruct

# The reason of a cause: another claim holds the devices that this claim's allocation names. Writing again cannot help.
DEVICES_HELD = "DevicesHeld"


class OwnerReference(ApiStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(ApiStruct, frozen=True):
    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: str | None = None
    fields_type: str = ""
    fields_v1: Any = None
    subresource: str = ""


class ObjectMeta(ApiStruct, frozen=True):
    """Times stay text: their spelling is part of the object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class ListMeta(ApiStruct, frozen=True):
    self_link: str = ""
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class Condition(ApiStruct, frozen=True):
    """metav1.Condition: also used for device and taint rule status."""

    type: str = ""
    status: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class LabelSelectorRequirement(ApiStruct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(ApiStruct, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class StatusCause(ApiStruct, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(ApiStruct, frozen=True):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(ApiStruct, frozen=True):
    """The API's answer where there is no object to return: failures, and deletions of some kinds."""

    kind: str = msgspec.field(default_factory=lambda: "Status")
    api_version: str = msgspec.field(default_factory=lambda: "v1")
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0
