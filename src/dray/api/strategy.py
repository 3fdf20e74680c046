"""What the server does to an object between decoding it and validating it, for each kind and operation.

Documents are in the storage version. Identity, time and generated names come in from outside.
"""

from __future__ import annotations

from typing import Any

from dray.api.gated_fields import drop_disabled_fields
from dray.api.versions import GROUP
from dray.features import FeatureGates

Document = dict[str, Any]

CLUSTER_SCOPED = frozenset(
    [
        "ResourceSlice",
        "DeviceClass",
        "DeviceTaintRule",
        "ResourcePoolStatusRequest",
        "Node",
        "Namespace",
        "ClusterRole",
        "ClusterRoleBinding",
        "PriorityClass",
        "RuntimeClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
)
# Kinds whose generation counts changes of the spec; others never get one.
COUNTED = frozenset(
    [
        "ResourceSlice",
        "DeviceClass",
        "DeviceTaintRule",
        "Pod",
        "ReplicaSet",
        "DaemonSet",
        "Deployment",
        "StatefulSet",
        "Job",
    ]
)
WITH_STATUS = frozenset(("ResourceClaim", "DeviceTaintRule", "ResourcePoolStatusRequest"))

_SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


def prepare_create(document: Document, gates: FeatureGates, *, namespace: str = "default") -> Document:
    """A new object without what only the system may say, and without fields of disabled features."""
    kind = document.get("kind", "")
    meta = {key: value for key, value in (document.get("metadata") or {}).items() if key not in _SYSTEM_FIELDS}
    if kind in CLUSTER_SCOPED:
        meta.pop("namespace", None)
    elif not meta.get("namespace"):
        meta["namespace"] = namespace
    if kind in COUNTED:
        meta["generation"] = 1
    made = {**document, "metadata": meta}
    if kind in WITH_STATUS:
        made.pop("status", None)
    return drop_disabled_fields(made, None, gates)


def prepare_update(new: Document, old: Document, gates: FeatureGates) -> Document:
    """A changed object: status from the store, metadata completed from it."""
    made = {**new, "metadata": completed_metadata(new.get("metadata") or {}, old.get("metadata") or {})}
    if new.get("kind") in WITH_STATUS or new.get("kind") == "Pod":
        made = _with_status(made, old.get("status"))
    return drop_disabled_fields(made, old, gates)


def prepare_status_update(new: Document, old: Document, gates: FeatureGates) -> Document:
    """A changed status on top of what is stored."""
    meta = old.get("metadata") or {}
    sent = new.get("metadata") or {}
    if new.get("kind") == "Pod":
        kept = {key: sent[key] for key in ("labels", "annotations", "finalizers") if key in sent}
        meta = {**completed_metadata(meta, meta), **kept}
    if "resourceVersion" in sent:
        meta = {**meta, "resourceVersion": sent["resourceVersion"]}
    elif new.get("kind") == "ResourcePoolStatusRequest" or _is_strict_rule(new):
        meta = {key: value for key, value in meta.items() if key != "resourceVersion"}
    made = _with_status({**old, "metadata": meta}, new.get("status"))
    if new.get("kind") == "Pod":
        made = _pod_status_with_unsent(made, old)
    if new.get("kind") == "ResourceClaim":
        made = _without_deallocated_devices(made, old)
    return drop_disabled_fields(made, old, gates)


def _is_strict_rule(new: Document) -> bool:
    return new.get("kind") == "DeviceTaintRule" and new.get("apiVersion") == f"{GROUP}/v1"


def completed_metadata(meta: Document, old: Document) -> Document:
    """What the client left out of metadata, or may not say, from the stored object."""
    made = dict(meta)
    for field in ("uid", "namespace", "name"):
        if not made.get(field) and old.get(field):
            made[field] = old[field]
    for field in ("creationTimestamp", "deletionTimestamp"):
        if old.get(field):
            made[field] = old[field]
    if made.get("deletionGracePeriodSeconds") is None and old.get("deletionGracePeriodSeconds") is not None:
        made["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]
    made.pop("generation", None)
    if "generation" in old:
        made["generation"] = old["generation"]
    return made


def _with_status(document: Document, status: Any) -> Document:
    made = {key: value for key, value in document.items() if key != "status"}
    return made if status is None else {**made, "status": status}


_KEPT_IF_UNSENT = ("resourceClaimStatuses", "extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses")


def _pod_status_with_unsent(made: Document, old: Document) -> Document:
    status, before = made.get("status") or {}, old.get("status") or {}
    unsent = {f: before[f] for f in _KEPT_IF_UNSENT if status.get(f) is None and before.get(f) is not None}
    return {**made, "status": {**status, **unsent}} if unsent else made


def _without_deallocated_devices(made: Document, old: Document) -> Document:
    """Reports about devices that were just deallocated go with the devices."""
    status = made.get("status") or {}
    if not status.get("devices"):
        return made
    gone = _allocated(old) - _allocated(made)
    kept = [entry for entry in status["devices"] if _key(entry) not in gone]
    if len(kept) == len(status["devices"]):
        return made
    return {
        **made,
        "status": {**{k: v for k, v in status.items() if k != "devices"}, **({"devices": kept} if kept else {})},
    }


def _allocated(claim: Document) -> set[tuple[Any, ...]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return {_key(result) for result in (allocation.get("devices") or {}).get("results") or ()}


def _key(holder: Document) -> tuple[Any, ...]:
    return tuple(holder.get(field) for field in ("driver", "pool", "device", "shareID"))
