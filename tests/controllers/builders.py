"""Objects of the namespace `ns`, as the controllers' tests need them: the shared builders with other defaults."""

from __future__ import annotations

from typing import Any

from tests.builders.manifests import (
    Document,
    a_claim,
    a_node,
    a_pod,
    a_pod_group,
    a_request,
    a_result,
    a_slice,
    a_template,
    an_allocation,
    claim_entries,
)

CLASS = "gpu"
DRIVER = "gpu.example.com"
FINALIZER = "resource.kubernetes.io/delete-protection"


def ns_template(
    name: str = "template", namespace: str = "ns", metadata: Document | None = None, **request: Any
) -> Document:
    return a_template(name, a_request("req", **request), namespace=namespace, claim_metadata=metadata)


def ns_claim(name: str = "claim", namespace: str = "ns", **metadata: Any) -> Document:
    return a_claim(name, a_request("req"), namespace=namespace, **metadata)


def ns_pod(
    name: str = "pod",
    namespace: str = "ns",
    *,
    templates: dict[str, str] | None = None,
    claims: dict[str, str] | None = None,
    node: str = "",
    **fields: Any,
) -> Document:
    """`templates` and `claims` map the pod's claim entries to names; no container uses them."""
    entries = claim_entries(claims, templates)
    return a_pod(name, namespace=namespace, node=node, resourceClaims=entries, **fields)


def ns_group(
    name: str = "group",
    namespace: str = "ns",
    *,
    templates: dict[str, str] | None = None,
    claims: dict[str, str] | None = None,
    **fields: Any,
) -> Document:
    return a_pod_group(name, *claim_entries(claims, templates), namespace=namespace, **fields)


def node_with_ready(
    name: str = "node", ready: str = "True", taints: list[Document] | None = None, **labels: str
) -> Document:
    return a_node(name, ready=ready, taints=taints or [], labels=labels)


def one_device(device: str = "dev", pool: str = "pool", node: str = "", tolerations: Any = ()) -> Document:
    optional = {"tolerations": list(tolerations)} if tolerations else {}
    return an_allocation(a_result(device, "req", pool=pool, **optional), node=node)


def pool_slice(
    name: str = "slice", devices: list[Document] | None = None, pool: str = "pool", generation: int = 1, count: int = 1
) -> Document:
    published = [{"name": "dev"}] if devices is None else devices
    return a_slice(name, *published, node="node", pool=pool, generation=generation, slices=count)
