"""EndpointSlices of Services that have a selector: the addresses and ports of the pods behind each, and which of them are ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from dray.api.core import Pod
from dray.api.dra.pod_phase import is_finished
from dray.api.workloads import EndpointSlice, Service, ServicePort
from dray.client import (
    ENDPOINT_SLICES,
    PODS,
    SERVICES,
    ApiError,
    Handler,
    MutationCache,
    WorkQueue,
    by_namespace,
    object_key,
)
from dray.controllers.context import ControllerContext
from dray.controllers.owned_pods import is_ready

Document = dict[str, Any]

MAX_ENDPOINTS = 100
SERVICE_LABEL = "kubernetes.io/service-name"
MANAGED_BY_LABEL, MANAGED_BY = "endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"
HEADLESS_LABEL = "service.kubernetes.io/headless"
BY_NAMESPACE, BY_SERVICE = "namespace", "service"


class EndpointSliceController:
    name = "endpointslice-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client.named("endpointslice-controller")
        self._informers = context.informers
        self._services = context.informers.of(SERVICES)
        self._services.add_indexer(BY_NAMESPACE, by_namespace)
        self._slices = context.informers.of(ENDPOINT_SLICES)
        self._slices.add_indexer(BY_SERVICE, _service_of)
        # With those just written, that the watch has not shown: otherwise they would be made twice.
        self._written = MutationCache(self._slices, context.clock)
        self._pods = context.informers.of(PODS)
        self._pods.add_indexer(BY_NAMESPACE, by_namespace)
        self.queue: WorkQueue[str] = WorkQueue("endpoint_slice", clock=context.clock, registry=context.registry)
        self._services.add_handler(Handler(self._service_seen, lambda _, new: self._service_seen(new)))
        self._slices.add_handler(Handler(on_update=lambda _, new: self._slice_seen(new), on_delete=self._slice_seen))
        self._pods.add_handler(Handler(self._pod_seen, self._pod_changed, self._pod_seen))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync)

    def _service_seen(self, service: Service) -> None:
        if service.spec.selector:
            self.queue.add(object_key(service))

    def _slice_seen(self, found: EndpointSlice) -> None:
        for key in _service_of(found):
            self.queue.add(key)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if not (old.metadata.labels or new.metadata.labels):
            return  # no service selects it
        if old.metadata.labels != new.metadata.labels:
            self._pod_seen(old)
            self._pod_seen(new)
        elif _facts(old) != _facts(new):
            self._pod_seen(new)

    def _pod_seen(self, pod: Pod) -> None:
        if not pod.metadata.labels:
            return
        for service in self._services.by_index(BY_NAMESPACE, pod.metadata.namespace):
            if selects(service, pod):
                self.queue.add(object_key(service))

    async def sync(self, key: str) -> None:
        """Those of a service that is gone go with it, by their owner reference."""
        service = self._services.get(key)
        if service is None or not service.spec.selector or service.metadata.deletion_timestamp is not None:
            return
        pods = self._pods.by_index(BY_NAMESPACE, service.metadata.namespace)
        # An ExternalName service has no endpoints. Slices from before it became one are deleted.
        is_name = service.spec.type == "ExternalName"
        wanted = [] if is_name else list(wanted_slices(service, [pod for pod in pods if selects(service, pod)]))
        existing = sorted(self._written.by_index(BY_SERVICE, key), key=lambda each: each.metadata.name)
        for document, found in zip_longest(wanted, existing):
            try:
                await self._settle(document, found)
            except ApiError as error:
                if not (error.is_namespace_terminating or error.is_not_found):
                    raise

    async def _settle(self, wanted: Document | None, found: EndpointSlice | None) -> None:
        if found is None:
            assert wanted is not None
            self._written.remember(await self._client.create(ENDPOINT_SLICES, wanted))
        elif wanted is None or wanted["addressType"] != found.address_type:
            metadata = found.metadata
            await self._client.delete(ENDPOINT_SLICES, metadata.name, metadata.namespace, uid=metadata.uid)
            self._written.forget(object_key(found))
            if wanted is not None:
                self._written.remember(await self._client.create(ENDPOINT_SLICES, wanted))
        elif _differs(wanted, found):
            named = {**wanted["metadata"], "name": found.metadata.name}
            named["resourceVersion"] = found.metadata.resource_version
            del named["generateName"]
            self._written.remember(await self._client.update(ENDPOINT_SLICES, {**wanted, "metadata": named}))


def _service_of(found: EndpointSlice) -> Iterable[str]:
    labels = found.metadata.labels
    if labels.get(MANAGED_BY_LABEL) == MANAGED_BY and labels.get(SERVICE_LABEL):
        yield f"{found.metadata.namespace}/{labels[SERVICE_LABEL]}"


def selects(service: Service, pod: Pod) -> bool:
    """A service without a selector selects nothing."""
    selector, labels = service.spec.selector, pod.metadata.labels
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def _facts(pod: Pod) -> tuple[object, ...]:
    """All of a pod that its endpoint says."""
    ended = is_finished(pod)
    return pod.status.pod_ip, is_ready(pod), ended, pod.metadata.deletion_timestamp is not None, pod.spec.node_name


def wanted_slices(service: Service, pods: Iterable[Pod]) -> Iterator[Document]:
    """One for each set of ports: a port by name may have another number in each pod. A service without pods has one that is empty."""
    by_ports: dict[tuple[tuple[str, int], ...], list[Pod]] = {}
    kind = address_type(service)
    for pod in sorted(pods, key=lambda each: each.metadata.name):
        if not is_finished(pod) and _address(pod, kind):
            by_ports.setdefault(tuple(_numbers(service, pod)), []).append(pod)
    # The same labels for all: a Service may have very many, and each of its pods other ports.
    labels = _labels(service)
    if not by_ports:
        yield _slice(service, labels, (), [])
    for numbers, group in by_ports.items():
        for start in range(0, len(group), MAX_ENDPOINTS):
            yield _slice(service, labels, numbers, group[start : start + MAX_ENDPOINTS])


def _labels(service: Service) -> dict[str, str]:
    metadata = service.metadata
    labels = {**metadata.labels, SERVICE_LABEL: metadata.name, MANAGED_BY_LABEL: MANAGED_BY}
    return labels | {HEADLESS_LABEL: ""} if service.spec.cluster_ip == "None" else labels


def address_type(service: Service) -> str:
    return (service.spec.ip_families or ("IPv4",))[0]


def _address(pod: Pod, kind: str) -> str:
    addresses = (pod.status.pod_ip, *(each.ip for each in pod.status.pod_ips))
    return next((each for each in addresses if each and (":" in each) == (kind == "IPv6")), "")


def _numbers(service: Service, pod: Pod) -> Iterator[tuple[str, int]]:
    """Names of the service's ports with their numbers in this pod; ports that the pod does not have are left out."""
    for port in service.spec.ports:
        number = _number(port, pod)
        if number:
            yield port.name, number


def _number(port: ServicePort, pod: Pod) -> int:
    target = port.target_port or port.port
    if isinstance(target, int):
        return target
    for container in pod.spec.containers:
        for each in container.ports:
            if each.name == target and (each.protocol or "TCP") == (port.protocol or "TCP"):
                return each.container_port
    return 0


def _slice(service: Service, labels: dict[str, str], numbers: tuple[tuple[str, int], ...], pods: list[Pod]) -> Document:
    metadata = service.metadata
    owner = {
        "apiVersion": "v1", "kind": "Service", "name": metadata.name, "uid": metadata.uid,
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    by_name = {port.name: port for port in service.spec.ports}
    kind = address_type(service)
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": f"{metadata.name}-",
            "namespace": metadata.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "addressType": kind,
        "ports": [_port(by_name[name], number) for name, number in numbers],
        "endpoints": [_endpoint(pod, kind, publishes_all=service.spec.publish_not_ready_addresses) for pod in pods],
    }


def _port(port: ServicePort, number: int) -> Document:
    made: Document = {"name": port.name, "port": number, "protocol": port.protocol or "TCP"}
    return made | ({"appProtocol": port.app_protocol} if port.app_protocol else {})


def _endpoint(pod: Pod, kind: str, *, publishes_all: bool) -> Document:
    metadata, ends = pod.metadata, pod.metadata.deletion_timestamp is not None
    serves = is_ready(pod)
    reference = {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
    return {
        "addresses": [_address(pod, kind)],
        "conditions": {"ready": publishes_all or (serves and not ends), "serving": serves, "terminating": ends},
        "nodeName": pod.spec.node_name,
        "targetRef": reference,
    }


def _differs(wanted: Document, found: EndpointSlice) -> bool:
    now = (found.metadata.labels, list(found.ports or ()), list(found.endpoints or ()))
    return bool(now != (wanted["metadata"]["labels"], wanted["ports"], wanted["endpoints"]))
