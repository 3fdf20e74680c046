"""One row per served kind: group, versions, names, scope, verbs, subresources, printed columns.

The description in `dray.api.schemas` knows the rows of all kinds of Kubernetes; to serve one more, add it to RESOURCES.

Everything that depends on *which* kinds exist reads this table: the server's router, discovery, tables and OpenAPI, the
client's paths, the command line's short names. A row says nothing about behaviour; `dray.api.strategies` does.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from dray.api.schemas import resource_descriptions

READ_VERBS = ("get", "list", "watch")
WRITE_VERBS = ("create", "delete", "deletecollection", "patch", "update")
ALL_VERBS = tuple(sorted((*READ_VERBS, *WRITE_VERBS)))
READ_WRITE = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; priority 1 shows with `-o wide` only."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Subresource:
    """A path below an object; `kind` (and its group and version, where they differ) is what it speaks."""

    name: str
    verbs: tuple[str, ...] = READ_WRITE
    kind: str = ""
    group: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """One served version of a kind, with the releases in which it was deprecated and removed."""

    name: str
    default: bool = True
    deprecated_in: str = ""
    removed_in: str = ""
    # The kind to use instead of one that stays.
    replaced_by: str = ""


# A row is what it is: compared and hashed by identity, many times for each request.
@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    group: str
    kind: str
    plural: str
    namespaced: bool
    versions: tuple[Version, ...] = (Version("v1"),)
    verbs: tuple[str, ...] = ALL_VERBS
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    columns: tuple[Column, ...] = ()
    # A feature without which the kind is not served, whatever --runtime-config says.
    gate: str = ""
    # Where Kubernetes keeps the kind below /registry, when that is not the plural; another view's rows have the same.
    storage_prefix: str = ""
    # Names that a definition chose.
    singular_name: str = ""
    list_kind_name: str = ""
    # For a kind that comes from a CustomResourceDefinition: its schemas and rules, which the API server makes.
    custom: Any = None
    # `resourceclaims.resource.k8s.io`; core kinds have no suffix.
    qualified_plural: str = field(init=False)
    # The version in which objects are kept: the preferred one.
    storage_version: str = field(init=False)

    def __post_init__(self) -> None:
        qualified = f"{self.plural}.{self.group}" if self.group else self.plural
        object.__setattr__(self, "qualified_plural", qualified)
        object.__setattr__(self, "storage_version", self.versions[0].name)

    @property
    def singular(self) -> str:
        return self.singular_name or self.kind.lower()

    @property
    def list_kind(self) -> str:
        return self.list_kind_name or self.kind + "List"

    @property
    def qualified_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def is_stored(self) -> bool:
        """False for kinds that are only questions put to the server, such as access reviews."""
        return "get" in self.verbs

    def api_version(self, version: str | None = None) -> str:
        return group_version(self.group, version or self.storage_version)

    def subresource(self, name: str) -> Subresource | None:
        return next((row for row in self.subresources if row.name == name), None)

    def path(self, namespace: str = "", name: str = "", subresource: str = "", version: str | None = None) -> str:
        """The URL path of the collection (no name), of one object, or of its subresource."""
        place = namespace if self.namespaced else ""
        path = _collection_path(self.group, version or self.storage_version, place, self.plural)
        if name:
            path = f"{path}/{name}"
        return f"{path}/{subresource}" if subresource else path


@lru_cache(maxsize=4096)
def _collection_path(group: str, version: str, namespace: str, plural: str) -> str:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


# --- the served kinds ------------------------------------------------------------------------------------------------

_ALL_RESOURCE_VERSIONS = (
    Version("v1"),
    Version("v1beta2", default=False, deprecated_in="1.36", removed_in="1.39"),
    Version("v1beta1", default=False, deprecated_in="1.35", removed_in="1.38"),
)
_TAINT_RULE_VERSIONS = (
    Version("v1"),
    Version("v1beta2", default=False),
    Version("v1alpha3", default=False),
)
_POOL_STATUS_VERSION = Version("v1alpha3", default=False, deprecated_in="1.39", removed_in="1.42")
_ADMISSION_VERSIONS = (Version("v1"), Version("v1beta1", default=False), Version("v1alpha1", default=False))
_V1_AND_BETA = (Version("v1"), Version("v1beta1", default=False))
_LEASE_CANDIDATE_VERSIONS = (Version("v1beta1", default=False), Version("v1alpha2", default=False))
_NAME, _AGE = Column("Name", format="name"), Column("Age")
_CSI_DRIVER_COLUMNS = (
    _NAME,
    Column("AttachRequired", "boolean"),
    Column("PodInfoOnMount", "boolean"),
    Column("StorageCapacity", "boolean"),
    Column("TokenRequests"),
    Column("RequiresRepublish", "boolean"),
    Column("Modes"),
    _AGE,
)
_DEFINITION_COLUMNS = (
    _NAME,
    Column("Scope"),
    Column("Versions"),
    Column("Created At", "date"),
    Column("Group", priority=1),
    Column("Kind", priority=1),
    Column("ShortNames", priority=1),
    Column("Established", "boolean", priority=1),
)
_API_SERVICE_COLUMNS = (_NAME, Column("Service"), Column("Available"), _AGE)
# What `kubectl get` prints of a kind for which Kubernetes has no columns.
_DEFAULT_COLUMNS = (_NAME, Column("Created At", "date"))


def served(
    key: str,
    versions: tuple[Version, ...] = (Version("v1"),),
    *,
    columns: tuple[Column, ...] = (),
    gate: str = "",
    storage_prefix: str = "",
) -> Resource:
    """The row of a resource, `GROUP/PLURAL`, as `dray.api.schemas` describes it, in the versions that we serve.

    `columns` are those that the description of the resource does not have.
    """
    row = resource_descriptions()[key]
    printed = tuple(_column(text) for text in row["columns"]) or (_DEFAULT_COLUMNS if "get" in row["verbs"] else ())
    return Resource(
        group=row["group"],
        kind=row["kind"],
        plural=row["plural"],
        namespaced=row["namespaced"],
        versions=versions,
        verbs=tuple(row["verbs"]),
        short_names=tuple(row.get("shortNames", ())),
        categories=tuple(row.get("categories", ())),
        subresources=tuple(_subresource(name, found, row["kind"]) for name, found in row["subresources"].items()),
        columns=columns or printed,
        gate=gate,
        storage_prefix=storage_prefix,
    )


def _column(text: str) -> Column:
    name, kind, form, priority = (text + "|||").split("|")[:4]
    return Column(name, kind or "string", form, int(priority or 0))


def _subresource(name: str, found: dict[str, Any], owner: str) -> Subresource:
    kind = found["kind"] if found["kind"] != owner else ""
    return Subresource(name, tuple(found["verbs"]), kind, found.get("group"), found.get("version"))


RESOURCES: tuple[Resource, ...] = (
    # resource.k8s.io
    served("resource.k8s.io/deviceclasses", _ALL_RESOURCE_VERSIONS),
    served("resource.k8s.io/devicetaintrules", _TAINT_RULE_VERSIONS),
    served("resource.k8s.io/resourceclaims", _ALL_RESOURCE_VERSIONS),
    served("resource.k8s.io/resourceclaimtemplates", _ALL_RESOURCE_VERSIONS),
    served("resource.k8s.io/resourcepoolstatusrequests", (_POOL_STATUS_VERSION,)),
    served("resource.k8s.io/resourceslices", _ALL_RESOURCE_VERSIONS),
    # core
    served("/bindings"),
    served("/configmaps"),
    served(
        "/endpoints",
        (Version("v1", deprecated_in="1.33", replaced_by="discovery.k8s.io/v1 EndpointSlice"),),
        storage_prefix="services/endpoints",
    ),
    served("/events"),
    served("/limitranges"),
    served("/namespaces"),
    served("/nodes", storage_prefix="minions"),
    served("/persistentvolumeclaims"),
    served("/persistentvolumes"),
    served("/pods"),
    served("/podtemplates"),
    served("/replicationcontrollers", storage_prefix="controllers"),
    served("/resourcequotas"),
    served("/secrets"),
    served("/services", storage_prefix="services/specs"),
    served("/serviceaccounts"),
    # workloads
    served("apps/controllerrevisions"),
    served("apps/daemonsets"),
    served("apps/deployments"),
    served("apps/replicasets"),
    served("apps/statefulsets"),
    served("autoscaling/horizontalpodautoscalers", (Version("v2"), Version("v1"))),
    served("batch/cronjobs"),
    served("batch/jobs"),
    served("policy/poddisruptionbudgets"),
    # network
    served("discovery.k8s.io/endpointslices"),
    served("networking.k8s.io/ingressclasses"),
    served("networking.k8s.io/ingresses", storage_prefix="ingress"),
    served("networking.k8s.io/ipaddresses"),
    served("networking.k8s.io/networkpolicies"),
    served("networking.k8s.io/servicecidrs"),
    # volumes
    served("storage.k8s.io/csidrivers", columns=_CSI_DRIVER_COLUMNS),
    served("storage.k8s.io/csinodes"),
    served("storage.k8s.io/csistoragecapacities", columns=_DEFAULT_COLUMNS),
    served("storage.k8s.io/storageclasses"),
    served("storage.k8s.io/volumeattachments"),
    served("storage.k8s.io/volumeattributesclasses"),
    # cluster services
    served("certificates.k8s.io/certificatesigningrequests"),
    served("certificates.k8s.io/clustertrustbundles", _V1_AND_BETA),
    served("certificates.k8s.io/podcertificaterequests"),
    served("coordination.k8s.io/leasecandidates", _LEASE_CANDIDATE_VERSIONS),
    served("coordination.k8s.io/leases"),
    served("events.k8s.io/events"),
    served(
        "scheduling.k8s.io/podgroups",
        (Version("v1beta1", default=False),),
        gate="GenericWorkload",
    ),
    served("scheduling.k8s.io/workloads", (Version("v1beta1", default=False),), gate="GenericWorkload"),
    served("scheduling.k8s.io/priorityclasses"),
    served("node.k8s.io/runtimeclasses"),
    served("flowcontrol.apiserver.k8s.io/flowschemas"),
    served("flowcontrol.apiserver.k8s.io/prioritylevelconfigurations"),
    served("storagemigration.k8s.io/storageversionmigrations", _V1_AND_BETA),
    served("rbac.authorization.k8s.io/clusterroles"),
    served("rbac.authorization.k8s.io/clusterrolebindings"),
    served("rbac.authorization.k8s.io/roles"),
    served("rbac.authorization.k8s.io/rolebindings"),
    served("admissionregistration.k8s.io/mutatingadmissionpolicies", _ADMISSION_VERSIONS),
    served("admissionregistration.k8s.io/mutatingadmissionpolicybindings", _ADMISSION_VERSIONS),
    served("admissionregistration.k8s.io/mutatingwebhookconfigurations"),
    served("admissionregistration.k8s.io/validatingwebhookconfigurations"),
    served("admissionregistration.k8s.io/validatingadmissionpolicies"),
    served("admissionregistration.k8s.io/validatingadmissionpolicybindings"),
    # other kinds
    served("apiextensions.k8s.io/customresourcedefinitions", columns=_DEFINITION_COLUMNS),
    served("apiregistration.k8s.io/apiservices", columns=_API_SERVICE_COLUMNS),
    # questions to the server
    served("authentication.k8s.io/selfsubjectreviews"),
    served("authentication.k8s.io/tokenreviews"),
    served("authorization.k8s.io/localsubjectaccessreviews"),
    served("authorization.k8s.io/selfsubjectaccessreviews"),
    served("authorization.k8s.io/selfsubjectrulesreviews"),
    served("authorization.k8s.io/subjectaccessreviews"),
)


def by_kind(kind: str, group: str | None = None) -> Resource:
    """The row of a kind; the group is needed only for Event, where core is the default."""
    found = _by_kind().get((kind, group)) if group is not None else _first_by_kind().get(kind)
    if found is None:
        raise KeyError(f"no kind {kind!r} in group {group!r}" if group is not None else f"no kind {kind!r}")
    return found


def is_namespaced(kind: str) -> bool:
    row = _first_by_kind().get(kind)
    return row.namespaced if row else kind in _unserved_namespaced_kinds()


def by_plural(group: str, plural: str) -> Resource | None:
    return _by_plural().get((group, plural))


def find(word: str) -> Resource | None:
    """The row a person means by a plural, singular, short or qualified name, as in `kubectl get WORD`."""
    plain, _, group = word.lower().partition(".")
    for row in RESOURCES:
        names = (row.plural, row.singular, *row.short_names)
        if plain in names and (not group or group == row.group):
            return row
    return None


def groups(rows: Iterable[Resource] = RESOURCES) -> list[str]:
    """Every group, core first, in table order."""
    return sorted(dict.fromkeys(row.group for row in rows), key=lambda group: group != "")


@cache
def _by_kind() -> dict[tuple[str, str | None], Resource]:
    return {(row.kind, row.group): row for row in RESOURCES}


@cache
def _first_by_kind() -> dict[str, Resource]:
    rows: dict[str, Resource] = {}
    for row in RESOURCES:
        rows.setdefault(row.kind, row)
    return rows


@cache
def _unserved_namespaced_kinds() -> frozenset[str]:
    return frozenset(row["kind"] for row in resource_descriptions().values() if row["namespaced"])


@cache
def _by_plural() -> dict[tuple[str, str], Resource]:
    return {(row.group, row.plural): row for row in RESOURCES}
