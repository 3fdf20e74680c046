"""Slices as large as validation lets them be fit into both stores; etcd refuses requests above 1.5 MiB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders.manifests import a_slice

from dray.api.codec import encode_document
from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.store.interface import Store

Document = dict[str, Any]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def longest(number: int, length: int = 63) -> str:
    return f"{number:04}".rjust(length, "x")


def attribute_name(number: int) -> str:
    return f"{longest(number)}/{longest(number, 32)}"


def with_attributes(devices: int) -> list[Document]:
    attributes = {attribute_name(i): {"string": longest(i, 64)} for i in range(32)}
    return [{"name": longest(i), "nodeName": longest(0, 253), "attributes": attributes} for i in range(devices)]


def with_policies() -> list[Document]:
    values = [f"{amount}Gi" for amount in range(10, 20)]
    policy = {"default": values[0], "validValues": values}
    capacity = {attribute_name(i): {"value": "80Gi", "requestPolicy": policy} for i in range(32)}
    return [
        {"name": longest(i), "nodeName": longest(0, 253), "allowMultipleAllocations": True, "capacity": capacity}
        for i in range(128)
    ]


def with_taints_and_counters() -> list[Document]:
    taints = [
        {"key": f"{longest(0, 249)}.com/{longest(i)}", "value": longest(i), "effect": "NoSchedule"} for i in range(16)
    ]
    consumed = [
        {
            "counterSet": longest(i),
            "counters": {longest(j): {"value": "80Gi"} for j in range(32)},
            "compatibilityGroups": [longest(0), longest(1)],
        }
        for i in range(2)
    ]
    return [{**device, "taints": taints, "consumesCounters": consumed} for device in with_attributes(64)]


@pytest.mark.parametrize("devices", [lambda: with_attributes(128), with_policies, with_taints_and_counters])
async def test_a_slice_of_the_largest_size_is_stored_and_read(
    store: Store, devices: Callable[[], list[Document]], tmp_path: Path
) -> None:
    document = a_slice(longest(0, 253), driver=longest(0), node=None, perDeviceNodeSelection=True)
    document["spec"]["devices"] = devices()
    running = await start_server(store, ServerOptions(tmp_path))
    body = encode_document(document)
    assert len(body) > 700_000
    headers = {"content-type": "application/json"}
    made = await running.server.handle(Request("POST", SLICES, "", headers, body, user=LOOPBACK))
    assert made.status == 201, made.body
    read = await running.server.handle(Request("GET", f"{SLICES}/{longest(0, 253)}", "", {}, b"", user=LOOPBACK))
    assert read.status == 200
    await running.stop()
