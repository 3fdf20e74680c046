"""The kinds that components use: the API path and the struct of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from dray.api import scheme
from dray.api.base import ApiStruct
from dray.api.core import Event, Lease, Namespace, Node, Pod, PriorityClass, ResourceQuota
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourcePoolStatusRequest,
    ResourceSlice,
)
from dray.api.workloads import ConfigMap, DaemonSet, Deployment, Job, PodGroup, ReplicaSet, ServiceAccount

JSON = "application/json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
METADATA_LIST_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


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

REPLICA_SETS = view(ReplicaSet)
DEPLOYMENTS = view(Deployment)
DAEMON_SETS = view(DaemonSet)
JOBS = view(Job)
POD_GROUPS = view(PodGroup)

CLAIMS = whole(ResourceClaim)
TEMPLATES = whole(ResourceClaimTemplate)
SLICES = whole(ResourceSlice)
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
