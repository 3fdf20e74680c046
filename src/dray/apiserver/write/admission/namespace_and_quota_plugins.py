"""Admission plugins about namespaces: NamespaceLifecycle, LimitRanger and ResourceQuota.

NamespaceLifecycle refuses new objects in a namespace that is missing or being deleted. LimitRanger gives containers the requests and limits that a LimitRange
of their namespace has for them, and refuses pods and volume claims beyond its bounds. ResourceQuota charges a write to every quota of its namespace that
names it, by compare-and-set on the quota's status, before the object is stored. The quota controller counts anew, and so gives back what a deletion or a
failed write has freed. Only resources that the quota's status already names are enforced."""

import asyncio
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import gt, lt

from dray.accounting import RequestOptions, pod_limits, pod_requests
from dray.accounting.quota import (
    REQUESTS,
    QuotaClasses,
    Usage,
    claim_usage,
    missing_amounts,
    name_in,
    object_usage,
    owning_pod,
    pod_usage,
    quota_covers,
)
from dray.api.codec import to_object
from dray.api.core import Pod
from dray.api.dra.pod_claims import extended_resource_claim_name
from dray.api.quantity import Quantity, QuantityError
from dray.api.safe_get import (
    mapping,
    mappings,
    name_of,
    text,
    uid_of,
)
from dray.api.scheme import by_kind
from dray.apiserver import errors
from dray.apiserver.core import QUICK, in_thread_if_large
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.apiserver.watch.stored_object import Stored, object_key, to_value
from dray.apiserver.write.admission.chain import (
    CREATE,
    DELETE,
    UPDATE,
    Admission,
    AdmissionPlugin,
    KindOfWrite,
    forbidden,
    row_of,
)
from dray.apiserver.write.managed_fields import UPDATE as UPDATE_OPERATION
from dray.apiserver.write.managed_fields import Manager, owned_update
from dray.store.errors import Conflict, NotFound
from dray.store.interface import Store

UNDELETABLE_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
# Questions about a namespace are fine even if there is no such namespace.
REVIEW_RESOURCES = frozenset({"localsubjectaccessreviews"})


class NamespaceLifecycle(AdmissionPlugin):
    name = "NamespaceLifecycle"

    def __init__(self, objects: ObjectLookup) -> None:
        self._objects = objects

    def looks_at(self, write: KindOfWrite) -> bool:
        if (write.group, write.resource, write.subresource) == ("", "namespaces", ""):
            return write.operation == DELETE
        return write.operation == CREATE and write.resource not in (*REVIEW_RESOURCES, "namespaces")

    async def mutate(self, admission: Admission) -> None:
        attributes = admission.attributes
        if admission.operation == DELETE:
            if admission.name in UNDELETABLE_NAMESPACES:
                raise forbidden(admission, "this namespace may not be deleted")
            return
        if not attributes.namespace:
            return
        namespace = await self._objects.look("", "namespaces", "", attributes.namespace)
        if namespace is None:
            raise errors.not_found(by_kind("Namespace"), attributes.namespace)
        # Events may still tell what happened while it ends; everything else is new content.
        if text(namespace, "status", "phase") == "Terminating" or mapping(namespace, "metadata").get(
            "deletionTimestamp"
        ):
            raise _terminating(admission)


def _terminating(admission: Admission) -> errors.ApiError:
    namespace = admission.attributes.namespace
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return errors.forbidden(row_of(admission), admission.name, why, [cause])


LIMIT_RANGER_ANNOTATION = "kubernetes.io/limit-ranger"
Amounts = Mapping[str, Quantity]


class LimitRanger(AdmissionPlugin):
    name = "LimitRanger"
    resources = frozenset({("", "pods"), ("", "persistentvolumeclaims")})

    def __init__(self, objects: ObjectLookup) -> None:
        self._objects = objects

    def looks_at(self, write: KindOfWrite) -> bool:
        if write.operation == CREATE:
            return super().looks_at(write) and not write.subresource
        return write.operation == UPDATE and (write.group, write.resource, write.subresource) in (
            (*PODS, "resize"),
            (*VOLUME_CLAIMS, ""),
        )

    async def mutate(self, admission: Admission) -> None:
        pod = admission.document
        if admission.operation != CREATE or not _is_pod(admission) or pod is None:
            return
        for limit_range in await self._ranges(admission):
            _set_defaults(pod, limit_range)

    async def validate(self, admission: Admission) -> None:
        if admission.document is None:
            return
        for limit_range in await self._ranges(admission):
            check = _pod_problems if _is_pod(admission) else _storage_problems
            found = list(
                dict.fromkeys(text for item in _items(limit_range) for text in check(admission.document, item))
            )
            if found:
                raise forbidden(admission, found[0] if len(found) == 1 else f"[{', '.join(found)}]")

    async def _ranges(self, admission: Admission) -> list[Document]:
        return await self._objects.list("", "limitranges", admission.attributes.namespace)


def _items(limit_range: Document) -> list[Document]:
    return mappings(limit_range, "spec", "limits")


def _set_defaults(pod: Document, limit_range: Document) -> None:
    """What a container leaves open; the pod says in an annotation what it was given."""
    wanted: dict[str, Document] = {"limits": {}, "requests": {}}
    for item in _items(limit_range):
        if item.get("type") == "Container":
            wanted["limits"] |= mapping(item, "default")
            wanted["requests"] |= mapping(item, "defaultRequest")
    notes: list[str] = []
    for field, words in (("containers", "container"), ("initContainers", "init container")):
        for container in mappings(pod, "spec", field):
            notes += _given(container, wanted, words)
    if notes:
        text_ = f"LimitRanger plugin set: {'; '.join(notes)}"
        metadata = pod.setdefault("metadata", {})
        metadata["annotations"] = {**mapping(metadata, "annotations"), LIMIT_RANGER_ANNOTATION: text_}


def _given(container: Document, wanted: dict[str, Document], words: str) -> Iterator[str]:
    resources = {**mapping(container, "resources")}
    for part_name, singular in (("requests", "request"), ("limits", "limit")):
        said = mapping(resources, part_name)
        missing = {name: amount for name, amount in wanted[part_name].items() if name not in said}
        if missing:
            resources[part_name] = {**said, **missing}
            container["resources"] = resources
            yield f"{', '.join(sorted(missing))} {singular} for {words} {name_in(container)}"


def _pod_problems(pod: Document, item: Document) -> Iterator[str]:
    if item.get("type") == "Container":
        for container in (*mappings(pod, "spec", "containers"), *mappings(pod, "spec", "initContainers")):
            own = mapping(container, "resources")
            yield from _beyond(
                item, {"request": _amounts(mapping(own, "requests")), "limit": _amounts(mapping(own, "limits"))}
            )
    elif item.get("type") == "Pod":
        whole = to_object(pod, Pod)
        options = RequestOptions(use_claim_status=False)
        yield from _beyond(item, {"request": pod_requests(whole, options), "limit": pod_limits(whole, options)})


def _storage_problems(claim: Document, item: Document) -> Iterator[str]:
    if item.get("type") == "PersistentVolumeClaim":
        yield from _beyond(item, {"request": _amounts(mapping(claim, "spec", "resources", "requests"))})


def _beyond(item: Document, asked: dict[str, Amounts]) -> Iterator[str]:
    """`asked` has the amounts under `request` and, where there are limits, `limit`. A minimum is about requests first, a maximum about limits."""
    kind = text(item, "type")
    for name, bound in _amounts(mapping(item, "min")).items():
        rule = f"minimum {name} usage per {kind} is {bound}"
        yield from _broken(rule, name, asked.items(), lt, bound)
    for name, bound in _amounts(mapping(item, "max")).items():
        rule = f"maximum {name} usage per {kind} is {bound}"
        yield from _broken(rule, name, reversed(asked.items()), gt, bound)
    if "limit" in asked:
        for name, bound in _amounts(mapping(item, "maxLimitRequestRatio")).items():
            yield from _above_ratio(kind, name, bound, asked["request"], asked["limit"])


def _broken(
    rule: str,
    name: str,
    asked: Iterable[tuple[str, Amounts]],
    breaks: Callable[[Quantity, Quantity], bool],
    bound: Quantity,
) -> Iterator[str]:
    """The first of the amounts must be there; the first that breaks the rule is told."""
    for position, (word, amounts) in enumerate(asked):
        if name in amounts and breaks(amounts[name], bound):
            yield f"{rule}, but {word} is {amounts[name]}"
            return
        if name not in amounts and position == 0:
            yield f"{rule}.  No {word} is specified"
            return


def _above_ratio(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> Iterator[str]:
    text_ = f"{name} max limit to request ratio per {kind} is {bound}"
    if name not in requests or not requests[name].nanos:
        yield f"{text_}, but no request is specified or request is 0"
    elif name not in limits or not limits[name].nanos:
        yield f"{text_}, but no limit is specified or limit is 0"
    elif limits[name].nanos * 10**9 > bound.nanos * requests[name].nanos:
        yield f"{text_}, but provided ratio is {limits[name].nanos / requests[name].nanos:f}"


CHARGE_ATTEMPTS = 20
SERVICES, VOLUME_CLAIMS = ("", "services"), ("", "persistentvolumeclaims")
CLAIMS = ("resource.k8s.io", "resourceclaims")
PODS = ("", "pods")

# The server itself counts what a quota has given away.
SERVER_MANAGER = Manager("kube-apiserver", UPDATE_OPERATION, "v1", "status")


class ResourceQuotaAdmission(AdmissionPlugin):
    name = "ResourceQuota"

    def __init__(self, store: Store, objects: ObjectLookup, *, counts_claims: bool = False) -> None:
        self._store = store
        self._objects = objects
        self._counts_claims = counts_claims
        # One charge at a time per namespace: in one process they would only make each other try again.
        self._turns: dict[str, asyncio.Lock] = {}

    def looks_at(self, write: KindOfWrite) -> bool:
        """Whether a namespace's quota pays for such writes."""
        if write.operation == CREATE:
            return not write.subresource
        if write.operation != UPDATE:
            return False
        kind = (write.group, write.resource)
        if kind == PODS:
            also = ("status",) if self._counts_claims else ()
            return write.subresource in ("", "resize", *also)
        return kind in (CLAIMS, SERVICES, VOLUME_CLAIMS) and not write.subresource

    async def validate(self, admission: Admission) -> None:
        namespace = admission.attributes.namespace
        if not namespace or admission.document is None:
            return
        if not await self._objects.list("", "resourcequotas", namespace):
            return
        turn = self._turns.setdefault(namespace, asyncio.Lock())
        async with turn:
            for _ in range(CHARGE_ATTEMPTS):
                if await self._charged(admission, namespace):
                    return
        raise forbidden(admission, "the quotas of this namespace are changing too fast; try again")

    async def _charged(self, admission: Admission, namespace: str) -> bool:
        """Check and charge every quota; False if one changed meanwhile and all must be looked at again."""
        quotas = await self._objects.list("", "resourcequotas", namespace)
        pod = admission.document if _is_pod(admission) else None
        quotas = [quota for quota in quotas if mapping(quota, "status", "hard") and quota_covers(quota, pod)]
        if not quotas:
            return True
        delta, classes = await self._delta(admission)
        plans = [self._plan(admission, quota, delta, classes) for quota in quotas]
        if admission.attributes.dry_run:
            return True
        for plan in plans:
            if plan and not await self._save(plan, namespace):
                return False
        return True

    # --- what it costs -----------------------------------------------------------------------------------------------

    async def _delta(self, admission: Admission) -> tuple[Usage, QuotaClasses]:
        classes = QuotaClasses()
        if _is_claim(admission):
            classes = QuotaClasses.of(await self._objects.list("resource.k8s.io", "deviceclasses"))
        usage = await self._usage(admission, admission.document or {}, classes)
        if admission.operation == CREATE:
            return usage, classes
        before = await self._usage(admission, admission.old or {}, classes)
        grown = {name: Quantity(amount.nanos - _nanos(before, name), amount.format) for name, amount in usage.items()}
        return {name: amount for name, amount in grown.items() if amount.nanos > 0}, classes

    async def _usage(self, admission: Admission, document: Document, classes: QuotaClasses) -> Usage:
        if _is_pod(admission):
            return pod_usage(document, with_claims=self._counts_claims)
        if _is_claim(admission):
            return claim_usage(document, classes, await self._paying_pod(document, admission.attributes.namespace))
        return object_usage(row_of(admission), document)

    async def _paying_pod(self, claim: Document, namespace: str) -> Document | None:
        owner = owning_pod(claim)
        if owner is None:
            return None
        pod = await self._objects.get("", "pods", namespace, owner[0])
        if pod is None or uid_of(pod) != owner[1]:
            return None
        named = extended_resource_claim_name(pod)
        if named is not None:
            return pod if named == name_of(claim) else None
        # The scheduler names the claim after making it: until then the oldest such claim is meant.
        claims = await self._objects.stored("resource.k8s.io", "resourceclaims", namespace)
        size = sum(stored.size for stored in claims) // QUICK
        return None if await in_thread_if_large(size, partial(_has_other_claim, claims, owner, uid_of(claim))) else pod

    # --- what is left ------------------------------------------------------------------------------------------------

    def _plan(self, admission: Admission, quota: Document, delta: Usage, classes: QuotaClasses) -> Document | None:
        """The quota as it will be; None if this write costs it nothing. Raises 403 if it is too much."""
        hard = _amounts(mapping(quota, "status", "hard"))
        used = _amounts(mapping(quota, "status", "used"))
        limited = {name for name in hard if name in delta and _concerns(admission, name, classes)}
        if _is_pod(admission) and admission.operation == CREATE:
            self._check_specified(admission, quota, hard)
        unknown = sorted(name for name in limited if name not in used)
        if unknown:
            raise forbidden(admission, f"status unknown for quota: {name_of(quota)}, resources: {','.join(unknown)}")
        exceeded = sorted(name for name in limited if used[name].nanos + delta[name].nanos > hard[name].nanos)
        if exceeded:
            why = (
                f"exceeded quota: {name_of(quota)}, requested: {_printed(delta, exceeded)}, "
                f"used: {_printed(used, exceeded)}, limited: {_printed(hard, exceeded)}"
            )
            raise forbidden(admission, why)
        charged = {name: used[name] + delta[name] for name in sorted(limited) if delta[name].nanos}
        if not charged:
            return None
        changed = copy.deepcopy(quota)
        changed["status"]["used"] |= {name: str(amount) for name, amount in charged.items()}
        return owned_update(by_kind("ResourceQuota"), quota, changed, SERVER_MANAGER, "")

    def _check_specified(self, admission: Admission, quota: Document, hard: Usage) -> None:
        missing = missing_amounts(admission.document or {}, hard)
        if missing:
            parts = "; ".join(f"{name} for: {','.join(sorted(containers))}" for name, containers in missing.items())
            raise forbidden(admission, f"failed quota: {name_of(quota)}: must specify {parts}")

    async def _save(self, quota: Document, namespace: str) -> bool:
        key = object_key("", "resourcequotas", namespace, name_of(quota))
        try:
            await self._store.update(key, to_value(quota), int(text(quota, "metadata", "resourceVersion")))
        except (Conflict, NotFound):
            return False
        return True


def _has_other_claim(claims: Iterable[Stored], owner: tuple[str, str], uid: str) -> bool:
    """Whether a claim other than the one with this UID is its owner's. Only those that contain the owner's UID are read."""
    owner_uid = owner[1].encode()
    documents = (stored.document() for stored in claims if owner_uid in stored.value)
    return any(owning_pod(entry) == owner and uid_of(entry) != uid for entry in documents)


def _is_pod(admission: Admission) -> bool:
    return (admission.attributes.group, admission.attributes.resource) == PODS


def _is_claim(admission: Admission) -> bool:
    return (admission.attributes.group, admission.attributes.resource) == CLAIMS


def _concerns(admission: Admission, name: str, classes: QuotaClasses) -> bool:
    """Claims are charged for extended resources only while there is a class that stands for them."""
    return not _is_claim(admission) or not name.startswith(REQUESTS) or classes.knows(name)


def _amounts(values: Document) -> Usage:
    found: Usage = {}
    for name, value in values.items():
        try:
            found[name] = Quantity.parse(value)
        except QuantityError:
            continue  # validation lets no such quota in
    return found


def _nanos(usage: Usage, name: str) -> int:
    return usage[name].nanos if name in usage else 0


def _printed(amounts: Usage, names: list[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names)
