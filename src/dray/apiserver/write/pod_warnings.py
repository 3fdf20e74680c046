"""What Kubernetes allows in a pod and advises against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dray.api.jsontext import go_json
from dray.api.quantity import Quantity

Document = dict[str, Any]

# Labels of nodes that have a newer name.
RENAMED = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
}


def pod_warnings(spec: Document, path: str = "spec") -> Iterator[str]:
    for label in spec.get("nodeSelector") or {}:
        if label in RENAMED:
            since, newer = RENAMED[label]
            yield f'{path}.nodeSelector[{label}]: deprecated since {since}; use "{newer}" instead'
    for field in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(field) or ()):
            yield from _container_warnings(container, f"{path}.{field}[{i}]")
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        yield f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"


def _container_warnings(container: Document, path: str) -> Iterator[str]:
    resources = container.get("resources") or {}
    for field in ("limits", "requests"):
        for name in ("memory", "ephemeral-storage"):
            amount = (resources.get(field) or {}).get(name)
            if amount is not None and Quantity.parse(amount).nanos % 10**9:
                yield f"{path}.resources.{field}[{name}]: fractional byte value {go_json(amount)} is invalid, must be an integer"
    seen: set[str] = set()
    for i, variable in enumerate(container.get("env") or ()):
        name = variable.get("name") or ""
        if name in seen:
            yield f"{path}.env[{i}]: hides previous definition of {go_json(name)}, which may be dropped when using apply"
        seen.add(name)
    ports: dict[tuple[int, str], int] = {}
    for i, port in enumerate(container.get("ports") or ()):
        key = (port.get("containerPort") or 0, port.get("protocol") or "TCP")
        first = ports.setdefault(key, i)
        if first != i:
            yield f"{path}.ports[{i}]: duplicate port definition with {path}.ports[{first}]"
