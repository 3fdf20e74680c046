"""pods/resize and pods/ephemeralcontainers: endpoints that change one part of a pod and take the rest from the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dray.api.jsontext import go_json
from dray.api.pod_strategy import qos_class
from dray.api.quantity import Quantity
from dray.apiserver.errors import OptionError

Document = dict[str, Any]

RESIZABLE = ("cpu", "memory")
CLAIM_STATUS = "nodeAllocatableResourceClaimStatuses"
CONTAINER_LISTS = ("containers", "initContainers")


def resized(new: Document, old: Document) -> Document:
    """The stored pod with the amounts of the one sent; everything else that was sent is ignored."""
    spec = dict(old.get("spec") or {})
    sent = new.get("spec") or {}
    for name in CONTAINER_LISTS:
        wanted = {entry.get("name"): entry for entry in sent.get(name) or ()}
        if spec.get(name):
            spec[name] = [_resized_container(entry, wanted.get(entry.get("name"))) for entry in spec[name]]
    if "resources" in spec or "resources" in sent:
        spec["resources"] = _amounts_of(sent.get("resources") or {}, spec.get("resources") or {})
    return _rest_of(new, old, spec)


def with_ephemeral_containers(new: Document, old: Document) -> Document:
    spec = dict(old.get("spec") or {})
    containers = (new.get("spec") or {}).get("ephemeralContainers")
    if containers:
        spec["ephemeralContainers"] = containers
    else:
        spec.pop("ephemeralContainers", None)
    return _rest_of(new, old, spec)


def _rest_of(new: Document, old: Document, spec: Document) -> Document:
    metadata = {**old["metadata"], "managedFields": new["metadata"].get("managedFields") or []}
    if not metadata["managedFields"]:
        del metadata["managedFields"]
    if spec != old.get("spec"):
        metadata["generation"] = (metadata.get("generation") or 0) + 1
    return {**old, "metadata": metadata, "spec": spec}


def _resized_container(old: Document, wanted: Document | None) -> Document:
    if wanted is None:
        return old
    container = {**old, "resources": _amounts_of(wanted.get("resources") or {}, old.get("resources") or {})}
    if wanted.get("resizePolicy"):
        container["resizePolicy"] = wanted["resizePolicy"]
    return container


def _amounts_of(wanted: Document, old: Document) -> Document:
    """Requests and limits as wished; claims stay."""
    resources = {name: value for name, value in old.items() if name not in ("requests", "limits")}
    for name in ("limits", "requests"):
        if wanted.get(name):
            resources[name] = wanted[name]
    return resources


def resize_problems(new: Document, old: Document, *, with_claims: bool) -> Iterator[OptionError]:
    """What forbids a resize. `with_claims`: pods whose claims take from the node's cpu or memory may be resized, too."""
    if not with_claims and (old.get("status") or {}).get(CLAIM_STATUS):
        body = "Forbidden: a pod whose claims use node allocatable resources cannot be resized"
        yield OptionError("Forbidden", f"status.{CLAIM_STATUS}", body)
    yield from _container_problems(new, old)
    before, after = qos_class(old.get("spec") or {}), qos_class(new.get("spec") or {})
    if before != after:
        body = f"Invalid value: {go_json(after)}: Pod QOS Class may not change as a result of resizing"
        yield OptionError("Invalid", "spec", body)


def _container_problems(new: Document, old: Document) -> Iterator[OptionError]:
    for name in CONTAINER_LISTS:
        pairs = zip((new["spec"].get(name) or ()), ((old.get("spec") or {}).get(name) or ()), strict=True)
        for at, (now, before) in enumerate(pairs):
            path = f"spec.{name}[{at}].resources"
            is_sidecar = before.get("restartPolicy") == "Always"
            if now.get("resources") != before.get("resources") and name == "initContainers" and not is_sidecar:
                yield OptionError("Forbidden", path, "Forbidden: only sidecar containers can be resized")
            yield from _amount_problems(now.get("resources") or {}, before.get("resources") or {}, path)


def _amount_problems(now: Document, before: Document, path: str) -> Iterator[OptionError]:
    for kind in ("requests", "limits"):
        new, old = now.get(kind) or {}, before.get(kind) or {}
        for name in sorted(new.keys() | old.keys()):
            if name in RESIZABLE and name in old and name not in new:
                yield OptionError("Forbidden", f"{path}.{kind}", f"Forbidden: resource {kind} cannot be removed")
            elif name not in RESIZABLE and new.get(name) != old.get(name):
                yield OptionError("Forbidden", "spec", "Forbidden: only cpu and memory resources are mutable")
    limits = now.get("limits") or {}
    for name, amount in (now.get("requests") or {}).items():
        if name in limits and Quantity.parse(amount) > Quantity.parse(limits[name]):
            body = f"Invalid value: {go_json(amount)}: must be less than or equal to {name} limit of {limits[name]}"
            yield OptionError("Invalid", f"{path}.requests", body)


def ephemeral_problems(new: Document, old: Document) -> list[OptionError]:
    """Ephemeral containers can be added, never changed or taken away, and ask for no resources."""
    now = {entry.get("name"): entry for entry in (new.get("spec") or {}).get("ephemeralContainers") or ()}
    found = []
    for entry in (old.get("spec") or {}).get("ephemeralContainers") or ():
        name = entry.get("name")
        if name not in now:
            body = f"Forbidden: existing ephemeral containers {go_json(name)} may not be removed"
            found.append(OptionError("Forbidden", "spec.ephemeralContainers", body))
        elif now[name] != entry:
            body = f"Forbidden: existing ephemeral containers {go_json(name)} may not be changed"
            found.append(OptionError("Forbidden", "spec.ephemeralContainers", body))
    for at, entry in enumerate((new.get("spec") or {}).get("ephemeralContainers") or ()):
        if entry.get("resources"):
            path = f"spec.ephemeralContainers[{at}].resources"
            found.append(OptionError("Forbidden", path, "Forbidden: cannot be set for an Ephemeral Container"))
    return found
