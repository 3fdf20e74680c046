"""What volumes keep a pod from being placed, as its scheduler says: Dray's own scheduler places pods without regard to volumes, that of Kubernetes does not."""

from __future__ import annotations

import re

from dray.api.core import Pod
from dray.explain.recorded_causes import RecordedCause

_CLAIM = r'persistentvolumeclaim "[^"]+"'
# What the scheduler of Kubernetes writes into a pod's condition, and what to do about it.
_SAID: tuple[tuple[str, str], ...] = (
    (rf"{_CLAIM} not found", "create that PersistentVolumeClaim in namespace {namespace}"),
    (
        rf"waiting for ephemeral volume controller to create the {_CLAIM}",
        "see that the controller manager of the cluster runs",
    ),
    (rf"{_CLAIM} is being deleted", "wait until it is gone, and create it again"),
    (
        rf'{_CLAIM} bound to non-existent persistentvolume "[^"]+"',
        "create that PersistentVolume again, or delete the claim and create it again",
    ),
    (
        r"(?:pod has )?unbound immediate PersistentVolumeClaims",
        "see why they are not bound, their storage class or its provisioner: kubectl describe pvc -n {namespace}",
    ),
    (
        r"node\(s\) didn't find available persistent volumes to bind",
        "create a PersistentVolume that such a node can use, or name a storage class with a provisioner: kubectl describe pvc -n {namespace}",
    ),
    (
        r"node\(s\) (?:didn't match PersistentVolume's node affinity|had volume node affinity conflict|had no available volume zone)",
        "free room on the nodes that its volumes can be used on: kubectl get pv -o yaml shows their nodeAffinity",
    ),
    (
        r"node\(s\) unavailable due to one or more pvc\(s\) bound to non-existent pv\(s\)",
        "create these PersistentVolumes again, or delete the claims and create them again",
    ),
    (
        r"node\(s\) did not have enough free storage",
        "ask for less storage, or add some: kubectl get csistoragecapacity -A",
    ),
    (r"node\(s\) exceed max volume count", "add nodes, or move pods with volumes away"),
    (
        r"node\(s\) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
        "wait until that pod is gone",
    ),
)


def why_volumes_wait(pod: Pod) -> RecordedCause | None:
    """As the scheduler said when it tried the pod last."""
    said = next(
        (row.message for row in pod.status.conditions if (row.type, row.status) == ("PodScheduled", "False")), ""
    )
    for pattern, fix in _SAID:
        found = re.search(pattern, said)
        if found is not None:
            message = f"the scheduler says of its volumes: {found[0]}"
            return RecordedCause("volumes", message, fix.format(namespace=pod.metadata.namespace))
    return None
