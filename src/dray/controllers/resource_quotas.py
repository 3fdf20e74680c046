"""Resource quotas: what is used, counted anew when something ended or a quota changed.

The API server charges a quota as objects are made; only this count gives back. The rules of what costs how much are the
same (`dray.accounting.quota`), so that both always agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dray.accounting.quota import (
    LOAD_BALANCERS,
    NODE_PORTS,
    STORAGE,
    QuotaClasses,
    Usage,
    claim_usage,
    count_name,
    object_usage,
    owning_pod,
    pod_usage,
    quota_covers,
)
from dray.api.core import Pod, ResourceQuota
from dray.api.dra.pod_claims import extended_resource_claim_name
from dray.api.dra.pod_phase import is_finished
from dray.api.quantity import Quantity
from dray.client import (
    BY_NAMESPACE,
    CLAIMS,
    DEVICE_CLASSES,
    PODS,
    QUOTAS,
    ApiError,
    ApiObject,
    Handler,
    Kind,
    WorkQueue,
    by_namespace,
    object_key,
    split_key,
)
from dray.client.rest import Document
from dray.controllers.context import ControllerContext

# Amounts that are counted over the objects of a kind with another name.
COUNTED_WITH = {NODE_PORTS: "services", LOAD_BALANCERS: "services", STORAGE: "persistentvolumeclaims"}
STORAGE_CLASS = ".storageclass.storage.k8s.io/"
WORKERS = 5
# Many objects that end together are counted together.
GATHER_S = 0.3
# A charge may be ahead of the object it is for: a count that found less is checked once more.
CHECK_AGAIN_S = 2.0


class QuotaController:
    name = "resourcequota-controller"

    def __init__(self, context: ControllerContext, kinds: Sequence[Kind[Any]], *, counts_claims: bool = False) -> None:
        self._client = context.client.named("resourcequota-controller")
        self._informers = context.informers
        self._counts_claims = counts_claims
        self._quotas = context.informers.of(QUOTAS)
        self._quotas.add_indexer(BY_NAMESPACE, by_namespace)
        self._kinds = {count_name(kind.row): kind for kind in kinds if kind.namespaced}
        self.queue: WorkQueue[str] = WorkQueue("resourcequota", clock=context.clock, registry=context.registry)
        self._quotas.add_handler(Handler(self._seen, lambda _, new: self._seen(new)))
        for kind in self._kinds.values():
            context.informers.of(kind).add_handler(Handler(on_delete=self._ended))
        context.informers.of(PODS).add_handler(Handler(on_update=self._pod_changed))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync, WORKERS)

    def _seen(self, quota: ResourceQuota) -> None:
        if quota.spec.hard != quota.status.hard or quota.spec.hard.keys() != quota.status.used.keys():
            self.queue.add(object_key(quota))

    def _ended(self, obj: ApiObject) -> None:
        for quota in self._quotas.by_index(BY_NAMESPACE, obj.metadata.namespace):
            self.queue.add_after(object_key(quota), GATHER_S)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if is_finished(new) and not is_finished(old):
            self._ended(new)

    async def sync(self, key: str) -> None:
        namespace, name = split_key(key)
        if self._quotas.get(key) is None:
            return
        try:
            quota = await self._client.get_document(QUOTAS, name, namespace)
            hard: Document = (quota.get("spec") or {}).get("hard") or {}
            used = await self._used(quota, namespace, hard)
            before: Document = quota.get("status") or {}
            status = {"hard": hard, "used": {resource: str(amount) for resource, amount in used.items()}}
            if _same(before, status):
                return
            await self._client.update(QUOTAS, {**quota, "status": status}, subresource="status")
        except ApiError as error:
            if not error.is_not_found:
                raise
            return
        if _shrank(before.get("used") or {}, used):
            self.queue.add_after(key, CHECK_AGAIN_S)

    async def _used(self, quota: Document, namespace: str, hard: Document) -> Usage:
        total: dict[str, Quantity] = dict.fromkeys(hard, Quantity.ZERO)
        for usage in await self._usages(quota, namespace, hard):
            for resource, amount in usage.items():
                if resource in total:
                    total[resource] = total[resource] + amount
        return total

    async def _usages(self, quota: Document, namespace: str, hard: Document) -> list[Usage]:
        pods = await self._client.list_documents(PODS, namespace)
        matching = [pod for pod in pods if quota_covers(quota, pod)]
        usages = [pod_usage(pod, with_claims=self._counts_claims) for pod in matching]
        if not quota_covers(quota, None):
            return usages  # A quota with scopes looks at pods alone.
        usages += await self._claim_usages(namespace, pods)
        kinds = {kind.plural: kind for kind in map(self._counted_kind, hard) if kind is not None}
        for kind in kinds.values():
            documents = await self._objects(kind, namespace)
            usages += [object_usage(kind.row, each) for each in documents]
        return usages

    async def _objects(self, kind: Kind[Any], namespace: str) -> list[Document]:
        """Whole where the amounts depend on the object; of the others nothing but their number matters."""
        if kind.plural not in COUNTED_WITH.values():
            return [{}] * len((await self._client.list(kind, namespace)).items)
        answer = await self._client.raw("GET", kind.path(namespace))
        items: list[Document] = msgspec.json.decode(answer.body).get("items") or []
        return items

    def _counted_kind(self, resource: str) -> Kind[Any] | None:
        """The kind whose objects are counted for an amount; pods and claims for devices are counted apart."""
        plural = COUNTED_WITH.get(resource, resource)
        if STORAGE_CLASS in resource:
            plural = "persistentvolumeclaims"
        name = plural if plural.startswith("count/") else f"count/{plural}"
        kind = self._kinds.get(name)
        return None if kind is None or kind.plural in (PODS.plural, CLAIMS.plural) else kind

    async def _claim_usages(self, namespace: str, pods: list[Document]) -> list[Usage]:
        claims = await self._client.list_documents(CLAIMS, namespace)
        if not claims:
            return []
        classes = QuotaClasses.of(await self._client.list_documents(DEVICE_CLASSES))
        pods_by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
        return [claim_usage(claim, classes, _paying_pod(claim, claims, pods_by_uid)) for claim in claims]


def _paying_pod(claim: Document, claims: list[Document], pods_by_uid: dict[str, Document]) -> Document | None:
    """The pod that already paid for the extended resources this claim stands for."""
    owner = owning_pod(claim)
    pod = pods_by_uid.get(owner[1]) if owner else None
    if pod is None:
        return None
    named = extended_resource_claim_name(pod)
    if named is not None:
        return pod if named == claim["metadata"]["name"] else None
    same = [item for item in claims if owning_pod(item) == owner]
    oldest = min(same, key=lambda item: str(item["metadata"].get("creationTimestamp")))
    return pod if oldest is claim else None


def _same(before: Document, after: Document) -> bool:
    return all(_amounts(before.get(part)) == _amounts(after[part]) for part in ("hard", "used"))


def _shrank(before: Document, after: Usage) -> bool:
    known = _amounts(before)
    return any(resource in known and amount < known[resource] for resource, amount in after.items())


def _amounts(values: Document | None) -> dict[str, Quantity]:
    return {resource: Quantity.parse(amount) for resource, amount in (values or {}).items()}
