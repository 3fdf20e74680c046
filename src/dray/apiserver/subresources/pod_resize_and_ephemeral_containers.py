"""pods/resize and pods/ephemeralcontainers: endpoints that change one part of a pod and take the rest from the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dray.accounting import budget_problems, charges_in_status
from dray.api import names
from dray.api.codec import to_object
from dray.api.core import Pod
from dray.api.dra.qos import qos_class_of_document
from dray.api.jsontext import go_json
from dray.api.quantity import Quantity
from dray.apiserver.errors import OptionError

Document = dict[str, Any]

RESIZABLE = ("cpu", "memory")
CLAIM_STATUS = "nodeAllocatableResourceClaimStatuses"
CONTAINER_LISTS = ("containers", "initContainers")
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
NOT_MUTABLE = OptionError("Forbidden", "spec", "Forbidden: only cpu and memory resources are mutable")
# What makes sense only for containers that are started, watched and restarted with their pod.
NOT_EPHEMERAL = (
    "ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources", "resizePolicy", "restartPolicy",
)  # fmt: skip


def resized(new: Document, old: Document) -> Document:
    """The stored pod with the amounts of the one sent; everything else that was sent is ignored."""
    spec = dict(old.get("spec") or {})
    sent = new.get("spec") or {}
    if _names_differ(sent, spec):
        # Left as it is: the refusal is the same for all of it.
        return _rest_of(new, old, {**spec, **{name: sent[name] for name in CONTAINER_LISTS if name in sent}})
    for name in CONTAINER_LISTS:
        wanted = {entry.get("name"): entry for entry in sent.get(name) or ()}
        if spec.get(name):
            spec[name] = [_resized_container(entry, wanted.get(entry.get("name"))) for entry in spec[name]]
    if "resources" in spec or "resources" in sent:
        spec["resources"] = _amounts_of(sent.get("resources") or {}, spec.get("resources") or {})
    return _rest_of(new, old, spec)


def _names_differ(sent: Document, spec: Document) -> bool:
    """Containers were added, taken away, renamed or moved."""
    return any(_names(sent.get(name)) != _names(spec.get(name)) for name in CONTAINER_LISTS)


def _names(containers: list[Document] | None) -> list[str]:
    return [entry.get("name") or "" for entry in containers or ()]


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
    if (old["metadata"].get("annotations") or {}).get(MIRROR_ANNOTATION) is not None:
        yield OptionError("Forbidden", "[]", "Forbidden: static pods cannot be resized")
        return
    if _names_differ(new.get("spec") or {}, old.get("spec") or {}):
        yield NOT_MUTABLE
        return
    if not with_claims and (old.get("status") or {}).get(CLAIM_STATUS):
        body = "Forbidden: a pod whose claims use node allocatable resources cannot be resized"
        yield OptionError("Forbidden", f"status.{CLAIM_STATUS}", body)
    yield from _container_problems(new, old)
    before, after = qos_class_of_document(old.get("spec") or {}), qos_class_of_document(new.get("spec") or {})
    if before != after:
        body = f"Invalid value: {go_json(before)}: Pod QOS Class may not change as a result of resizing"
        yield OptionError("Invalid", "spec", body)
    if with_claims:
        yield from _budget_problems(new)


def _budget_problems(new: Document) -> Iterator[OptionError]:
    """A pod-level budget has to cover what containers and claims ask for."""
    pod = to_object(new, Pod)
    charges = charges_in_status(pod.status.node_allocatable_resource_claim_statuses)
    for problem in budget_problems(pod, charges):
        budget = (new["spec"].get("resources") or {}).get(str(problem.facts["part"]))
        yield OptionError("Invalid", "spec.resources", f"Invalid value: {go_json(budget)}: {problem.text}")


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
                yield NOT_MUTABLE
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
    return [*found, *_ephemeral_container_problems(new.get("spec") or {})]


def _ephemeral_container_problems(spec: Document) -> Iterator[OptionError]:
    regular = {name for containers in CONTAINER_LISTS for name in _names(spec.get(containers))}
    taken = set(regular)
    for at, entry in enumerate(spec.get("ephemeralContainers") or ()):
        path, name, target = (
            f"spec.ephemeralContainers[{at}]",
            entry.get("name") or "",
            entry.get("targetContainerName"),
        )
        if not name:
            yield OptionError("Required", f"{path}.name", "Required value")
        for problem in names.label_problems(name) if name else ():
            yield OptionError("Invalid", f"{path}.name", f"Invalid value: {go_json(name)}: {problem}")
        if name and name in taken:
            yield OptionError("Duplicate", f"{path}.name", f"Duplicate value: {go_json(name)}")
        taken.add(name)
        if not entry.get("image"):
            yield OptionError("Required", f"{path}.image", "Required value")
        if target and target not in regular:
            yield OptionError("NotFound", f"{path}.targetContainerName", f"Not found: {go_json(target)}")
        for field in NOT_EPHEMERAL:
            if entry.get(field):
                yield OptionError("Forbidden", f"{path}.{field}", "Forbidden: cannot be set for an Ephemeral Container")
