"""The kinds that components use: the API path and the struct of each, and how bytes from the server become structs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import asdict

from dray.api import codec, scheme
from dray.api.base import ApiStruct, struct_like
from dray.api.core import Event, Lease, Namespace, Node, Pod, PriorityClass, ResourceQuota
from dray.api.meta import ListMeta, ObjectMeta, Status
from dray.api.quantity import QuantityError, decoding_hook
from dray.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourcePoolStatusRequest,
    ResourceSlice,
)
from dray.api.safe_get import mapping
from dray.api.slice_text import SliceText, cut_all, device_texts, is_stand_in, split
from dray.api.workloads import (
    ConfigMap,
    DaemonSet,
    Deployment,
    EndpointSlice,
    Job,
    PodDisruptionBudget,
    PodGroup,
    ReplicaSet,
    ReplicationController,
    Service,
    ServiceAccount,
    StatefulSet,
)
from dray.client.errors import ApiError

JSON = "application/json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
METADATA_LIST_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
# Equal lists of devices once, from a server that can do that; see `_slice_page`.
SHARED_DEVICES_LIST = "application/json;as=SharedDevices;v=v1;g=dray,application/json"


class ApiObject(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=ApiObject)


class PartialObject(ApiStruct, frozen=True):
    """Metadata of any kind of object, and nothing else."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A row of the scheme and the struct its objects decode to.

    A view models only some fields of the object, so its structs are never written back whole.
    """

    row: scheme.Resource
    type: type[T]
    version: str
    is_view: bool = False
    accept: str = JSON
    accept_list: str = JSON

    @property
    def name(self) -> str:
        return self.row.kind

    @property
    def plural(self) -> str:
        """As in messages: `resourceclaims.resource.k8s.io`, `pods`."""
        return self.row.qualified_plural

    @property
    def namespaced(self) -> bool:
        return self.row.namespaced

    @property
    def api_version(self) -> str:
        return self.row.api_version(self.version)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        return self.row.path(namespace, name, subresource, self.version)

    def at_version(self, version: str) -> Kind[T]:
        return replace(self, version=version)


def metadata_of(row: scheme.Resource, version: str = "") -> Kind[PartialObject]:
    """A kind whose objects are reduced to metadata, by the server if it can."""
    return Kind(row, PartialObject, version or row.storage_version, True, METADATA_ONLY, METADATA_LIST_ONLY)


def whole(struct: type[T], group: str | None = None) -> Kind[T]:
    row = scheme.by_kind(struct.__name__, group)
    return Kind(row, struct, row.storage_version)


def view(struct: type[T], group: str | None = None) -> Kind[T]:
    return replace(whole(struct, group), is_view=True)


PODS = view(Pod)
NODES = view(Node)
NAMESPACES = view(Namespace)
QUOTAS = view(ResourceQuota)
EVENTS = whole(Event, "")
LEASES = whole(Lease)
PRIORITY_CLASSES = whole(PriorityClass)
SERVICE_ACCOUNTS = view(ServiceAccount)
CONFIG_MAPS = view(ConfigMap)
SERVICES = view(Service)
ENDPOINT_SLICES = view(EndpointSlice)

REPLICA_SETS = view(ReplicaSet)
REPLICATION_CONTROLLERS = view(ReplicationController)
DEPLOYMENTS = view(Deployment)
DAEMON_SETS = view(DaemonSet)
JOBS = view(Job)
STATEFUL_SETS = view(StatefulSet)
POD_GROUPS = view(PodGroup)
DISRUPTION_BUDGETS = whole(PodDisruptionBudget)

CLAIMS = whole(ResourceClaim)
TEMPLATES = whole(ResourceClaimTemplate)
SLICES = replace(whole(ResourceSlice), accept_list=SHARED_DEVICES_LIST)
DEVICE_CLASSES = whole(DeviceClass)
TAINT_RULES = whole(DeviceTaintRule)
POOL_STATUS_REQUESTS = whole(ResourcePoolStatusRequest)


def object_key(obj: ApiObject) -> str:
    """`namespace/name`, or `name` for cluster-scoped objects."""
    metadata = obj.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def split_key(key: str) -> tuple[str, str]:
    namespace, _, name = key.rpartition("/")
    return namespace, name


log = logging.getLogger(__name__)

# The errors of the one-pass decoders: a null where Go has an empty list, a Status in place of an object.
_UNUSUAL = (msgspec.ValidationError, QuantityError)
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class SlicePage(ListPage[SliceText], frozen=True, rename="camel"):
    """A page of slices. Where the server sends equal lists of devices once, `devices` of a slice is a number in `device_lists`."""

    device_lists: list[msgspec.Raw] | None = None


class RawPage(msgspec.Struct, frozen=True, rename="camel"):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None
    device_lists: list[msgspec.Raw] | None = None


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: T

    @property
    def ends_initial_events(self) -> bool:
        return self.type == "BOOKMARK" and self.object.metadata.annotations.get(INITIAL_EVENTS_END) == "true"


class RawEvent(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


@lru_cache(maxsize=256)
def _decoder(decoded_type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(decoded_type, dec_hook=decoding_hook)


def decode_object(kind: Kind[T], body: bytes) -> T:
    return codec.decode(kind.type, body)


def decode_page(kind: Kind[T], body: bytes) -> ListPage[T]:
    """One page of a list. An item that cannot be read is left out with a log line, never the whole list."""
    try:
        if kind.type is ResourceSlice:
            return cast(ListPage[T], _slice_page(body))
        page: ListPage[T] = _decoder(ListPage[kind.type]).decode(body)  # type: ignore[name-defined]
        return page
    except _UNUSUAL:
        raw = _decoder(RawPage).decode(body)
    texts = [_with_devices(item, raw.device_lists) if raw.device_lists else item for item in raw.items or ()]
    return ListPage(raw.metadata, [item for item in map(_tolerant(kind), texts) if item is not None])


def _slice_page(body: bytes) -> ListPage[ResourceSlice]:
    short, texts = cut_all(body)
    found: SlicePage = _decoder(SlicePage).decode(short)
    if sum(is_stand_in(each.spec.devices) for each in found.items or ()) != len(texts):
        found, texts = _decoder(SlicePage).decode(body), []
    cut = iter(texts)
    lists = map(bytes, found.device_lists or ())
    shared = {str(number).encode(): device_texts.remember(text) for number, text in enumerate(lists)}

    def devices_of(item: SliceText) -> bytes | None:
        if texts and is_stand_in(item.spec.devices):
            return next(cut)
        return shared.get(bytes(item.spec.devices)) if shared else None

    return ListPage(found.metadata, [each.whole(devices_of(each)) for each in found.items or ()])


def _with_devices(item: msgspec.Raw, device_lists: list[msgspec.Raw]) -> msgspec.Raw:
    """A slice with its list of devices in place of the list's number."""
    document = msgspec.json.decode(item)
    spec = mapping(document, "spec")
    number = spec.get("devices")
    if isinstance(number, int) and 0 <= number < len(device_lists):
        spec["devices"] = device_lists[number]
    return msgspec.Raw(msgspec.json.encode(document))


def _tolerant(kind: Kind[T]) -> Callable[[msgspec.Raw], T | None]:
    def read(raw: msgspec.Raw) -> T | None:
        try:
            return decode_object(kind, bytes(raw))
        except codec.DecodeError as error:
            log.error("%s: left out an object that cannot be read: %s", kind.plural, error)
            return None

    return read


def event_decoder(kind: Kind[T]) -> Callable[[bytes], WatchEvent[T] | None]:
    """A function from watch frames to events; None for an object that cannot be read. Objects come without `managedFields`.

    The frame of an error holds a Status instead of an object: it raises `ApiError`.
    """
    decode: Callable[[bytes], WatchEvent[T]] = _slice_event if kind.type is ResourceSlice else _event_decoder(kind.type)

    def read(frame: bytes) -> WatchEvent[T] | None:
        try:
            event = decode(frame)
        except _UNUSUAL:
            return _odd_event(kind, frame)
        if event.type == "ERROR":
            return _odd_event(kind, frame)
        return event

    return read


def trimmed(obj: T) -> T:
    """Drops `managedFields`, which no component reads and which would be half of the memory.

    An update without them leaves the server's record as it is, so the rest can still be written back.
    """
    metadata = obj.metadata
    if not metadata.managed_fields:
        return obj
    short = msgspec.structs.replace(metadata, managed_fields=())
    return cast(T, msgspec.structs.replace(cast(msgspec.Struct, obj), metadata=short))


_MetadataText: Any = struct_like(ObjectMeta, "MetadataText", {"managed_fields": None})
_NO_METADATA = _MetadataText()


@lru_cache(maxsize=256)
def _text_of(struct: type[T]) -> Any:
    """The struct without `managedFields`, which are half of the text."""
    return struct_like(cast(Any, struct), f"{struct.__name__}Text", {"metadata": (_MetadataText, _NO_METADATA)})


def _whole(struct: type[T], text: Any) -> T:
    fields = asdict(text)
    fields["metadata"] = ObjectMeta(**asdict(fields["metadata"]))
    return struct(**fields)


def decode_written(kind: Kind[T], body: bytes) -> T:
    """The answer to a write, without `managedFields`; see `trimmed`."""
    try:
        return _whole(kind.type, _decoder(_text_of(kind.type)).decode(body))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, QuantityError):
        return trimmed(decode_object(kind, body))


def _event_decoder(struct: type[T]) -> Callable[[bytes], WatchEvent[T]]:
    decode = _decoder(WatchEvent[_text_of(struct)]).decode  # type: ignore[misc]

    def read(frame: bytes) -> WatchEvent[T]:
        event = decode(frame)
        return WatchEvent(event.type, _whole(struct, event.object))

    return read


def _slice_event(frame: bytes) -> WatchEvent[Any]:
    decode: Callable[[bytes], WatchEvent[Any]] = _decoder(WatchEvent[SliceText]).decode
    found = split(frame)
    if found is not None:
        short = decode(found.short())
        if is_stand_in(short.object.spec.devices):
            return WatchEvent(short.type, trimmed(short.object.whole(found.devices)))
    event = decode(frame)
    return WatchEvent(event.type, trimmed(event.object.whole()))


def _odd_event(kind: Kind[T], frame: bytes) -> WatchEvent[T] | None:
    raw = _decoder(RawEvent).decode(frame)
    if raw.type == "ERROR":
        raise ApiError.from_status(msgspec.json.decode(bytes(raw.object), type=Status))
    item = _tolerant(kind)(raw.object)
    return None if item is None else WatchEvent(raw.type, trimmed(item))
