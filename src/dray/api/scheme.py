"""One row per served kind: group, versions, names, scope, verbs, subresources, printed columns.

Everything that depends on *which* kinds exist reads this table: the server's router, discovery, tables and OpenAPI, the
client's paths, the command line's short names. A row says nothing about behaviour; `dray.api.strategies` does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

READ_VERBS = ("get", "list", "watch")
WRITE_VERBS = ("create", "delete", "deletecollection", "patch", "update")
ALL_VERBS = tuple(sorted((*READ_VERBS, *WRITE_VERBS)))
READ_WRITE = ("get", "patch", "update")
PROXY_VERBS = ("create", "delete", "get", "patch", "update")


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

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def list_kind(self) -> str:
        return self.kind + "List"

    @property
    def storage_version(self) -> str:
        """The version in which objects are kept: the preferred one."""
        return self.versions[0].name

    @property
    def qualified_plural(self) -> str:
        """`resourceclaims.resource.k8s.io`; core kinds have no suffix."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

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
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, version or self.storage_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


def group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


NAME = Column("Name", format="name")
AGE = Column("Age")


def text(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name) for name in names)


def wide(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, priority=1) for name in names)


STATUS = Subresource("status")
SCALE = Subresource("scale", kind="Scale", group="autoscaling", version="v1")

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

_RESOURCE = "resource.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_SCHEDULING = "scheduling.k8s.io"

_EVENT_COLUMNS = (
    *text("Last Seen", "Type", "Reason", "Object"),
    *wide("Subobject", "Source"),
    Column("Message"),
    Column("First Seen", priority=1),
    Column("Count", priority=1),
    Column("Name", priority=1),
)

RESOURCES: tuple[Resource, ...] = (
    # --- resource.k8s.io ---------------------------------------------------------------------------------------------
    Resource(_RESOURCE, "DeviceClass", "deviceclasses", False, versions=_ALL_RESOURCE_VERSIONS, columns=(NAME, AGE)),
    Resource(
        _RESOURCE,
        "DeviceTaintRule",
        "devicetaintrules",
        False,
        versions=_TAINT_RULE_VERSIONS,
        subresources=(STATUS,),
        columns=(NAME, *text("Key", "Value", "Effect", "TimeAdded"), AGE),
    ),
    Resource(
        _RESOURCE,
        "ResourceClaim",
        "resourceclaims",
        True,
        versions=_ALL_RESOURCE_VERSIONS,
        subresources=(STATUS,),
        columns=(NAME, Column("State"), AGE),
    ),
    Resource(
        _RESOURCE,
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        True,
        versions=_ALL_RESOURCE_VERSIONS,
        columns=(NAME, AGE),
    ),
    Resource(
        _RESOURCE,
        "ResourcePoolStatusRequest",
        "resourcepoolstatusrequests",
        False,
        versions=(Version("v1alpha3", default=False),),
        subresources=(STATUS,),
        columns=(
            NAME,
            Column("Driver"),
            *text("Total", "Available", "Allocated", "Unavailable", "Errors", "Pools", "Status", "Completed"),
        ),
    ),
    Resource(
        _RESOURCE,
        "ResourceSlice",
        "resourceslices",
        False,
        versions=_ALL_RESOURCE_VERSIONS,
        columns=(NAME, *text("Node", "Driver", "Pool"), AGE),
    ),
    # --- core --------------------------------------------------------------------------------------------------------
    Resource("", "Binding", "bindings", True, verbs=("create",)),
    Resource(
        "",
        "ConfigMap",
        "configmaps",
        True,
        short_names=("cm",),
        columns=(NAME, Column("Data"), AGE),
    ),
    Resource("", "Event", "events", True, short_names=("ev",), columns=_EVENT_COLUMNS),
    Resource(
        "",
        "Namespace",
        "namespaces",
        False,
        short_names=("ns",),
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        subresources=(Subresource("finalize", ("update",)), STATUS),
        columns=(NAME, Column("Status"), AGE),
    ),
    Resource(
        "",
        "Node",
        "nodes",
        False,
        short_names=("no",),
        storage_prefix="minions",
        subresources=(Subresource("proxy", PROXY_VERBS, "NodeProxyOptions"), STATUS),
        columns=(
            NAME,
            *text("Status", "Roles"),
            AGE,
            Column("Version"),
            *wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ),
    ),
    Resource(
        "",
        "Pod",
        "pods",
        True,
        short_names=("po",),
        categories=("all",),
        subresources=(
            Subresource("attach", ("create", "get"), "PodAttachOptions"),
            Subresource("binding", ("create",), "Binding"),
            Subresource("ephemeralcontainers"),
            Subresource("eviction", ("create",), "Eviction", "policy", "v1"),
            Subresource("exec", ("create", "get"), "PodExecOptions"),
            Subresource("log", ("get",)),
            Subresource("portforward", ("create", "get"), "PodPortForwardOptions"),
            Subresource("proxy", PROXY_VERBS, "PodProxyOptions"),
            Subresource("resize"),
            STATUS,
        ),
        columns=(
            NAME,
            *text("Ready", "Status", "Restarts"),
            AGE,
            *wide("IP", "Node", "Nominated Node", "Readiness Gates"),
        ),
    ),
    Resource(
        "",
        "ResourceQuota",
        "resourcequotas",
        True,
        short_names=("quota",),
        subresources=(STATUS,),
        columns=(NAME, *text("Request", "Limit"), AGE),
    ),
    Resource("", "Secret", "secrets", True, columns=(NAME, Column("Type"), Column("Data"), AGE)),
    Resource(
        "",
        "Service",
        "services",
        True,
        short_names=("svc",),
        categories=("all",),
        subresources=(STATUS,),
        columns=(NAME, *text("Type", "Cluster-IP", "External-IP", "Port(s)"), AGE, *wide("Selector")),
        storage_prefix="services/specs",
    ),
    Resource(
        "",
        "ServiceAccount",
        "serviceaccounts",
        True,
        short_names=("sa",),
        subresources=(Subresource("token", ("create",), "TokenRequest", "authentication.k8s.io", "v1"),),
        columns=(NAME, Column("Secrets"), AGE),
    ),
    # --- workloads ---------------------------------------------------------------------------------------------------
    Resource(
        "apps",
        "DaemonSet",
        "daemonsets",
        True,
        short_names=("ds",),
        categories=("all",),
        subresources=(STATUS,),
        columns=(
            NAME,
            *(Column(name, type="integer") for name in ("Desired", "Current", "Ready", "Up-to-date", "Available")),
            Column("Node Selector"),
            AGE,
            *wide("Containers", "Images", "Selector"),
        ),
    ),
    Resource(
        "apps",
        "Deployment",
        "deployments",
        True,
        short_names=("deploy",),
        categories=("all",),
        subresources=(SCALE, STATUS),
        columns=(
            NAME,
            Column("Ready"),
            Column("Up-to-date", type="integer"),
            Column("Available", type="integer"),
            AGE,
            *wide("Containers", "Images", "Selector"),
        ),
    ),
    Resource(
        "apps",
        "ReplicaSet",
        "replicasets",
        True,
        short_names=("rs",),
        categories=("all",),
        subresources=(SCALE, STATUS),
        columns=(
            NAME,
            *(Column(name, type="integer") for name in ("Desired", "Current", "Ready")),
            AGE,
            *wide("Containers", "Images", "Selector"),
        ),
    ),
    Resource(
        "batch",
        "Job",
        "jobs",
        True,
        categories=("all",),
        subresources=(STATUS,),
        columns=(
            NAME,
            *text("Status", "Completions", "Duration"),
            AGE,
            *wide("Containers", "Images", "Selector"),
        ),
    ),
    Resource(
        "policy",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        True,
        short_names=("pdb",),
        subresources=(STATUS,),
        columns=(
            NAME,
            *text("Min Available", "Max Unavailable"),
            Column("Allowed Disruptions", type="integer"),
            AGE,
        ),
    ),
    # --- cluster services --------------------------------------------------------------------------------------------
    Resource("coordination.k8s.io", "Lease", "leases", True, columns=(NAME, Column("Holder"), AGE)),
    Resource("events.k8s.io", "Event", "events", True, short_names=("ev",), columns=_EVENT_COLUMNS),
    Resource(
        _SCHEDULING,
        "PodGroup",
        "podgroups",
        True,
        versions=(Version("v1beta1", default=False),),
        subresources=(STATUS,),
        columns=(NAME, AGE),
        gate="GenericWorkload",
    ),
    Resource(
        _SCHEDULING,
        "Workload",
        "workloads",
        True,
        versions=(Version("v1beta1", default=False),),
        columns=(NAME, AGE),
        gate="GenericWorkload",
    ),
    Resource(
        _SCHEDULING,
        "PriorityClass",
        "priorityclasses",
        False,
        short_names=("pc",),
        columns=(
            NAME,
            Column("Value", type="integer"),
            Column("Global-Default", type="boolean"),
            AGE,
            Column("PreemptionPolicy"),
        ),
    ),
    Resource(_RBAC, "ClusterRole", "clusterroles", False, columns=(NAME, Column("Created At"))),
    Resource(
        _RBAC,
        "ClusterRoleBinding",
        "clusterrolebindings",
        False,
        columns=(NAME, Column("Role"), AGE, *wide("Users", "Groups", "ServiceAccounts")),
    ),
    Resource(_RBAC, "Role", "roles", True, columns=(NAME, Column("Created At"))),
    Resource(
        _RBAC,
        "RoleBinding",
        "rolebindings",
        True,
        columns=(NAME, Column("Role"), AGE, *wide("Users", "Groups", "ServiceAccounts")),
    ),
    Resource(
        _ADMISSION,
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        False,
        subresources=(STATUS,),
        categories=("api-extensions",),
        columns=(NAME, Column("Validations", type="integer"), Column("ParamKind"), AGE),
    ),
    Resource(
        _ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        False,
        categories=("api-extensions",),
        columns=(NAME, *text("PolicyName", "ParamRef"), AGE),
    ),
    # --- questions to the server -------------------------------------------------------------------------------------
    Resource("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", False, verbs=("create",)),
    Resource("authentication.k8s.io", "TokenReview", "tokenreviews", False, verbs=("create",)),
    Resource("authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", True, verbs=("create",)),
    Resource("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False, verbs=("create",)),
    Resource("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews", False, verbs=("create",)),
    Resource("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", False, verbs=("create",)),
)

# Kinds whose fields we know, live in namespaces and are not served.
_KNOWN_AND_NAMESPACED = frozenset({"CronJob", "LimitRange", "PodTemplate", "StatefulSet"})

# Versions in order of preference; what is not here sorts last.
VERSION_ORDER = ("v1", "v1beta2", "v1beta1", "v1alpha3")


def by_kind(kind: str, group: str | None = None) -> Resource:
    """The row of a kind; the group is needed only for Event, where core is the default."""
    found = _by_kind().get((kind, group)) if group is not None else _first_by_kind().get(kind)
    if found is None:
        raise KeyError(f"no kind {kind!r} in group {group!r}" if group is not None else f"no kind {kind!r}")
    return found


def is_namespaced(kind: str) -> bool:
    row = _first_by_kind().get(kind)
    return row.namespaced if row else kind in _KNOWN_AND_NAMESPACED


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
def _by_plural() -> dict[tuple[str, str], Resource]:
    return {(row.group, row.plural): row for row in RESOURCES}
