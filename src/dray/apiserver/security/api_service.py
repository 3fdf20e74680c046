"""The `kubernetes` Service in `default`, by which pods and programs find the API server, and where it leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import ip_address

from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.stored_object import document_of, object_key, to_value
from dray.apiserver.write.admission.service_addresses import API_SERVER_ADDRESS, SERVICE_RANGE
from dray.clock import Clock, rfc3339
from dray.store.errors import AlreadyExists, Conflict, StoreUnavailable
from dray.store.interface import Store

NAME, NAMESPACE = "kubernetes", "default"
TRY_AGAIN_S = 1.0
LOOK_AGAIN_S = 10.0


async def publish_address(store: Store, clock: Clock, new_uid: Callable[[], str], host: str, port: int) -> None:
    """Writes the Service and its endpoints; with several servers on one store they lead to the one that started last."""
    for plural, group, document in _objects(_address(host), port, rfc3339(clock.now())):
        key = object_key(group, plural, document["metadata"].get("namespace", ""), NAME)
        try:
            await _write(store, key, document, {"uid": new_uid(), "creationTimestamp": rfc3339(clock.now())})
        except (AlreadyExists, Conflict):
            continue  # another server on the same store was quicker


async def keep_address(store: Store, clock: Clock, new_uid: Callable[[], str], host: str, port: int) -> None:
    """Makes again what somebody deletes. What is there is left alone: it may lead to another server."""
    while True:
        await clock.sleep(LOOK_AGAIN_S)
        now = rfc3339(clock.now())
        with suppress(StoreUnavailable, AlreadyExists):
            for plural, group, document in _objects(_address(host), port, now):
                key = object_key(group, plural, document["metadata"].get("namespace", ""), NAME)
                if await store.get(key) is None:
                    await _write(store, key, document, {"uid": new_uid(), "creationTimestamp": now})


async def publish_when_writable(store: Store, clock: Clock, new_uid: Callable[[], str], host: str, port: int) -> None:
    """As `publish_address`, however long it takes: a store may answer and take no writes, as an etcd without space does."""
    while True:
        await clock.sleep(TRY_AGAIN_S)
        with suppress(StoreUnavailable):
            return await publish_address(store, clock, new_uid, host, port)


async def _write(store: Store, key: str, document: Document, birth: Document) -> None:
    entry = await store.get(key)
    if entry is None:
        await store.create(key, to_value({**document, "metadata": {**document["metadata"], **birth}}))
        return
    found = document_of(entry)
    if document["kind"] == "ServiceCIDR":
        return
    content = {key: value for key, value in document.items() if key != "metadata"}
    made = {**found, **content}
    if made != found:
        await store.update(key, to_value(made), entry.revision)


def _address(host: str) -> str:
    """The address under which the server listens; `0.0.0.0` and names stand for this machine."""
    try:
        found = ip_address(host)
    except ValueError:
        return "127.0.0.1"
    return "127.0.0.1" if found.is_unspecified else str(found)


def _objects(address: str, port: int, now: str) -> Iterator[tuple[str, str, Document]]:
    named = {"name": NAME, "namespace": NAMESPACE}
    https = {"name": "https", "protocol": "TCP", "port": port}
    yield (
        "servicecidrs",
        "networking.k8s.io",
        {
            "kind": "ServiceCIDR",
            "apiVersion": "networking.k8s.io/v1",
            "metadata": {"name": NAME},
            "spec": {"cidrs": [str(SERVICE_RANGE)]},
            "status": {
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "lastTransitionTime": now,
                        "reason": "",
                        "message": "Addresses of this range are given to Services",
                    }
                ]
            },
        },
    )
    yield (
        "services",
        "",
        {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {**named, "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {
                "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
                "clusterIP": API_SERVER_ADDRESS,
                "clusterIPs": [API_SERVER_ADDRESS],
                "type": "ClusterIP",
                "sessionAffinity": "None",
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "internalTrafficPolicy": "Cluster",
            },
            "status": {"loadBalancer": {}},
        },
    )
    yield (
        "endpointslices",
        "discovery.k8s.io",
        {
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {**named, "generation": 1, "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": "IPv6" if ":" in address else "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": [https],
        },
    )
    yield (
        "endpoints",
        "",
        {
            "kind": "Endpoints",
            "apiVersion": "v1",
            "metadata": {**named, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": [{"ip": address}], "ports": [https]}],
        },
    )
