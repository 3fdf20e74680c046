"""Computes the amounts that an object uses of its namespace's quotas, and finds the quotas that cover it. Plain functions over documents.

The API server charges a quota with it (admission plugin ResourceQuota); the quota controller counts anew with it. So both agree.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dray.accounting import RequestOptions, pod_limits, pod_requests, qos_class
from dray.api.codec import to_object
from dray.api.core import Pod
from dray.api.dra.pod_phase import is_finished_document
from dray.api.quantity import Quantity
from dray.api.safe_get import Document, mapping, mappings, name_of, part, strings, text
from dray.api.scheme import Resource

Usage = dict[str, Quantity]

# What a request for all matching devices may come to at most.
ALL_DEVICES = 32
DEVICES_SUFFIX = ".deviceclass.resource.k8s.io/devices"
IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
REQUESTS, LIMITS = "requests.", "limits."
# Core kinds that quotas also know by their bare name.
PLAIN_COUNTS = frozenset(
    {"pods", "configmaps", "secrets", "resourcequotas", "services", "replicationcontrollers", "persistentvolumeclaims"}
)
NODE_PORTS, LOAD_BALANCERS = "services.nodeports", "services.loadbalancers"
STORAGE = "requests.storage"
_COMPUTE = frozenset({"cpu", "memory", "ephemeral-storage"})
_ONE = Quantity.of(1)


@dataclass(frozen=True, slots=True)
class QuotaClasses:
    """Device classes, as far as quotas name them."""

    extended_names: Mapping[str, str] = field(default_factory=dict)  # class -> extendedResourceName or empty

    @staticmethod
    def of(documents: Iterable[Document]) -> "QuotaClasses":
        return QuotaClasses({name_of(entry): text(entry, "spec", "extendedResourceName") for entry in documents})

    def knows(self, quota_name: str) -> bool:
        """Whether `requests.<...>` stands for devices of a class that exists now."""
        name = quota_name.removeprefix(REQUESTS)
        if name.startswith(IMPLICIT_PREFIX):
            return name.removeprefix(IMPLICIT_PREFIX) in self.extended_names
        return name in self.extended_names.values()


def count_name(row: Resource) -> str:
    return f"count/{row.qualified_plural}"


def object_usage(row: Resource, document: Document) -> Usage:
    """What any object but a pod or a claim for devices uses."""
    usage = {count_name(row): _ONE}
    if not row.group and row.plural in PLAIN_COUNTS:
        usage[row.plural] = _ONE
    if not row.group and row.plural == "services":
        usage |= _service_usage(document)
    if not row.group and row.plural == "persistentvolumeclaims":
        usage |= _storage_usage(document)
    return usage


def _service_usage(service: Document) -> Usage:
    """Ports count that the server allocates for it: it is charged before they are."""
    kind, ports = text(service, "spec", "type"), mappings(service, "spec", "ports")
    is_balanced = kind == "LoadBalancer"
    if is_balanced and part(service, "spec", "allocateLoadBalancerNodePorts") is False:
        ports = [each for each in ports if each.get("nodePort")]
    has_ports = is_balanced or kind == "NodePort"
    return {NODE_PORTS: Quantity.of(len(ports) if has_ports else 0), LOAD_BALANCERS: Quantity.of(int(is_balanced))}


def _storage_usage(claim: Document) -> Usage:
    """Also by its storage class, as `<class>.storageclass.storage.k8s.io/...` limits it."""
    amount = mapping(claim, "spec", "resources", "requests").get("storage")
    usage = {STORAGE: Quantity.parse(amount)} if isinstance(amount, str) else {}
    if storage_class := text(claim, "spec", "storageClassName"):
        prefix = f"{storage_class}.storageclass.storage.k8s.io/"
        usage = {**usage, **{prefix + name: value for name, value in usage.items()}}
        usage[f"{prefix}persistentvolumeclaims"] = _ONE
    return usage


# --- pods ------------------------------------------------------------------------------------------------------------


def pod_usage(document: Document, *, with_claims: bool = False) -> Usage:
    """A pod that has ended counts as an object only."""
    usage: Usage = {"count/pods": _ONE}
    if is_finished_document(document):
        return usage
    usage["pods"] = _ONE
    pod = to_object(document, Pod)
    options = RequestOptions(use_claim_status=with_claims)
    for name, amount in pod_requests(pod, options).items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            usage[name] = usage[REQUESTS + name] = amount
        elif "/" in name:
            usage[REQUESTS + name] = amount
    for name, amount in pod_limits(pod, options).items():
        if name in _COMPUTE:
            usage[LIMITS + name] = amount
    return usage


def missing_amounts(document: Document, limited: Iterable[str]) -> dict[str, list[str]]:
    """Limited cpu and memory that containers leave open: resource name -> containers."""
    wanted = [name for name in sorted(limited) if name.rpartition(".")[2] in ("cpu", "memory") and name.count(".") <= 1]
    found: dict[str, list[str]] = {}
    for name in wanted:
        kind, _, resource = name.rpartition(".")
        part_name = "limits" if kind == "limits" else "requests"
        if resource in mapping(document, "spec", "resources", part_name):
            continue
        containers = [*mappings(document, "spec", "containers"), *mappings(document, "spec", "initContainers")]
        open_ones = [name_in(entry) for entry in containers if resource not in mapping(entry, "resources", part_name)]
        if open_ones:
            found[name] = open_ones
    return found


def name_in(container: Document) -> str:
    return text(container, "name")


# --- claims ----------------------------------------------------------------------------------------------------------


def devices_by_class(claim: Document) -> dict[str, int]:
    """Requests add up; of the alternatives of one request each class counts its largest."""
    total: dict[str, int] = {}
    for request in mappings(claim, "spec", "devices", "requests"):
        exact = mapping(request, "exactly")
        options = [exact] if exact else mappings(request, "firstAvailable")
        largest: dict[str, int] = {}
        for option in options:
            name = text(option, "deviceClassName")
            largest[name] = max(largest.get(name, 0), _device_count(option))
        for name, count in largest.items():
            total[name] = total.get(name, 0) + count
    return total


def _device_count(option: Document) -> int:
    mode, count = option.get("allocationMode"), option.get("count")
    if mode == "All":
        return ALL_DEVICES
    if mode in ("ExactCount", "", None):
        return count if isinstance(count, int) and count > 0 else 1 if count is None else 0
    return 0


def claim_usage(claim: Document, classes: QuotaClasses, pod: Document | None = None) -> Usage:
    """`pod` is the pod for whose extended resources the scheduler made this claim, if it did.

    That pod has paid for them already: only what the claim takes beyond that is charged.
    """
    usage: Usage = {"count/resourceclaims.resource.k8s.io": _ONE}
    extended: dict[str, int] = {}
    for name, count in devices_by_class(claim).items():
        usage[f"{name}{DEVICES_SUFFIX}"] = Quantity.of(count)
        names = [f"{REQUESTS}{IMPLICIT_PREFIX}{name}"]
        if extended_name := classes.extended_names.get(name):
            names.append(f"{REQUESTS}{extended_name}")
        for charged in names:
            extended[charged] = extended.get(charged, 0) + count
    paid = pod_usage(pod) if pod else {}
    for name, count in extended.items():
        rest = count - (paid[name].value() if name in paid else 0)
        usage[name] = Quantity.of(max(rest, 0))
    return usage


EXTENDED_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


def owning_pod(claim: Document) -> tuple[str, str] | None:
    """Name and UID of the pod whose extended resources a claim stands for, if it says so."""
    if mapping(claim, "metadata", "annotations").get(EXTENDED_ANNOTATION) != "true":
        return None
    for owner in mappings(claim, "metadata", "ownerReferences"):
        if owner.get("controller") is True and owner.get("kind") == "Pod" and owner.get("apiVersion") == "v1":
            return text(owner, "name"), text(owner, "uid")
    return None


def quota_covers(quota: Document, pod: Document | None) -> bool:
    """A quota without scopes looks at everything; with scopes only at pods that fit all of them."""
    plain = strings(quota, "spec", "scopes")
    selected = mappings(quota, "spec", "scopeSelector", "matchExpressions")
    if not plain and not selected:
        return True
    if pod is None:
        return False
    terms = [{"scopeName": scope, "operator": "Exists"} for scope in plain] + selected
    return all(_term_matches(term, pod) for term in terms)


def _term_matches(term: Document, pod: Document) -> bool:
    scope = text(term, "scopeName")
    if scope == "PriorityClass":
        return _priority_matches(term, text(pod, "spec", "priorityClassName"))
    answers = {
        "Terminating": _is_terminating(pod),
        "NotTerminating": not _is_terminating(pod),
        "BestEffort": _is_best_effort(pod),
        "NotBestEffort": not _is_best_effort(pod),
        "CrossNamespacePodAffinity": _crosses_namespaces(pod),
    }
    return answers.get(scope, False)


def _priority_matches(term: Document, name: str) -> bool:
    operator, values = text(term, "operator"), strings(term, "values")
    if operator == "In":
        return name in values
    if operator == "NotIn":
        return name not in values
    return bool(name) if operator == "Exists" else operator == "DoesNotExist" and not name


def _is_terminating(pod: Document) -> bool:
    return part(pod, "spec", "activeDeadlineSeconds") is not None


def _is_best_effort(pod: Document) -> bool:
    return str(qos_class(to_object(pod, Pod))) == "BestEffort"


def _crosses_namespaces(pod: Document) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        required = mappings(pod, "spec", "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution")
        preferred = mappings(pod, "spec", "affinity", kind, "preferredDuringSchedulingIgnoredDuringExecution")
        terms = [*required, *(part(entry, "podAffinityTerm") for entry in preferred)]
        if any(part(term, "namespaces") or part(term, "namespaceSelector") is not None for term in terms):
            return True
    return False
