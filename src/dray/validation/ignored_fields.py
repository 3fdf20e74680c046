"""Fields that Kubernetes accepts and that have no effect: the server warns about them, `dray lint` calls them errors.

The KEPs forbid these objects; Kubernetes 1.37 stores them. Documents are in the storage version.
"""

from __future__ import annotations

from collections.abc import Iterator

from dray.validation.errors import Document
from dray.validation.formats import key_path


def ignored_fields(document: Document) -> Iterator[tuple[str, str]]:
    """(path, what is ignored and what to write instead) for each of them."""
    spec = document.get("spec") or {}
    match document.get("kind"):
        case "ResourceClaim":
            yield from _in_constraints(spec, "spec")
        case "ResourceClaimTemplate":
            yield from _in_constraints(spec.get("spec") or {}, "spec.spec")
        case "ResourceSlice":
            yield from _in_request_policies(spec)


def _in_constraints(claim_spec: Document, path: str) -> Iterator[tuple[str, str]]:
    for i, constraint in enumerate((claim_spec.get("devices") or {}).get("constraints") or ()):
        if constraint.get("matchAttribute") is not None and constraint.get("distinctAttribute") is not None:
            here = f"{path}.devices.constraints[{i}].distinctAttribute"
            yield here, "ignored, because matchAttribute is set in the same constraint; write two constraints"


def _in_request_policies(slice_spec: Document) -> Iterator[tuple[str, str]]:
    for i, device in enumerate(slice_spec.get("devices") or ()):
        for name, capacity in (device.get("capacity") or {}).items():
            policy = capacity.get("requestPolicy")
            if policy is not None and not any(policy.get(key) for key in ("default", "validValues", "validRange")):
                here = f"{key_path(f'spec.devices[{i}].capacity', name)}.requestPolicy"
                yield here, "ignored, because it has no default; set a default or leave the policy out"
