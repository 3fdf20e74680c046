"""Every reason code with its meaning and what usually helps. Codes are stable: programs may rely on them.

`docs/explain.md` shows this table; a test keeps the two alike.
"""

from __future__ import annotations

from dataclasses import dataclass

FITS = "fits"
SCHEDULED = "scheduled"


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """`distance` is how far a node that is refused for this reason is from taking the pod, for ranking near misses."""

    meaning: str
    remedy: str
    distance: int = 5


CODES: dict[str, ReasonCode] = {
    # --- the pod as a whole
    SCHEDULED: ReasonCode("the pod has a node", "nothing", 0),
    FITS: ReasonCode("the pod would get this node", "wait for the scheduler's next attempt", 0),
    "pod-finished": ReasonCode("the pod has run to its end", "nothing"),
    "pod-deleted": ReasonCode("the pod is being deleted", "wait, or look at its finalizers"),
    "scheduling-gates": ReasonCode("spec.schedulingGates is not empty", "remove the gates"),
    "other-scheduler": ReasonCode(
        "spec.schedulerName names a scheduler that is not this one",
        "start that scheduler, or create the pod again with another schedulerName",
    ),
    "volumes": ReasonCode("volumes keep the scheduler from placing the pod", "see its PersistentVolumeClaims"),
    "no-pods": ReasonCode("a workload cannot get its pods", "see what its controller says"),
    "no-nodes": ReasonCode("the cluster has no nodes", "add nodes"),
    "not-waiting": ReasonCode("the scheduler has nothing to decide", "nothing"),
    "preempted": ReasonCode("a pod of higher priority took its place", "add nodes, or raise its priority"),
    "not-tried": ReasonCode("the scheduler has not tried the pod yet", "wait, or see that the scheduler runs"),
    "scheduler-error": ReasonCode("the scheduler failed while it tried the pod", "see its log"),
    # --- a pod on its node
    "driver-not-registered": ReasonCode("a driver is not registered with the node agent", "start the driver there"),
    "prepare-failed": ReasonCode("a driver fails to prepare the pod's devices", "see the log of the driver"),
    "node-not-ready": ReasonCode("the pod's node is not ready", "see the node agent"),
    "dead-driver": ReasonCode("a driver of the pod publishes nothing on its node", "start the driver there"),
    "pod-without-devices": ReasonCode(
        "a claim has no devices, or is not reserved for the pod", "delete the pod, and let the scheduler place it"
    ),
    "pod-on-missing-node": ReasonCode("the pod's node is gone", "delete the pod"),
    "container-config": ReasonCode(
        "a container names a ConfigMap, a Secret, a key or a user that is not there", "create it, or correct the pod"
    ),
    "image-pull": ReasonCode("the image of a container cannot be had", "correct its name, or name an imagePullSecret"),
    "container-start": ReasonCode("a container cannot be started", "correct its command or its image"),
    "container-fails": ReasonCode("a container ends again and again", "see its log"),
    "volume-mount": ReasonCode("a volume of the pod cannot be mounted", "create or correct what the volume names"),
    # --- the pod's claims
    "claim-missing": ReasonCode(
        "a claim that the pod names does not exist",
        "create the claim; one that was made from a template is made again",
    ),
    "claim-not-created": ReasonCode(
        "no claim has been made from the template yet", "see that the claim controller runs"
    ),
    "quota-exceeded": ReasonCode(
        "a quota of the namespace does not allow another claim", "delete claims, or raise the quota"
    ),
    "admin-access-denied": ReasonCode(
        "a claim asks for admin access, which its namespace does not allow", "label the namespace"
    ),
    "binding-pending": ReasonCode(
        "a device is allocated, and its binding conditions are not true yet", "see what its driver says"
    ),
    "binding-failed": ReasonCode(
        "an allocated device reports a binding failure", "see what its driver says; the scheduler tries again"
    ),
    "template-missing": ReasonCode("the claim template does not exist", "create the template"),
    "claim-being-deleted": ReasonCode(
        "a claim of the pod is being deleted", "wait until it is gone, then create it again"
    ),
    "claim-full": ReasonCode(
        "a claim has as many users as it can have", "wait until a user is gone, or give the pod a claim of its own"
    ),
    "claim-not-owned": ReasonCode("the claim was made for another pod", "delete that claim; a new one is made"),
    "claim-source": ReasonCode("a claim entry names neither a claim nor a template", "name one"),
    "claim-being-allocated": ReasonCode("another pod is getting the claim allocated just now", "wait a moment"),
    "missing-class": ReasonCode("a device class does not exist", "create the class, or correct its name"),
    "selector-error": ReasonCode(
        "a selector fails instead of saying yes or no", "guard it, for example with has() or `in`"
    ),
    "feature-off": ReasonCode("the claim uses a feature that is switched off", "switch the feature gate on"),
    "too-many-devices": ReasonCode("one claim asks for more devices than a claim may have", "split the claim"),
    "pool-not-ready": ReasonCode(
        "all devices are asked for while a pool is being updated or invalid", "wait for the driver"
    ),
    "unsupported": ReasonCode("the claim uses something that this scheduler does not know", "use a newer scheduler"),
    # --- the node
    "node-name": ReasonCode("the pod wants another node by name", "nothing", 9),
    "not-considered": ReasonCode("affinity names other nodes", "change the affinity", 9),
    "node-unschedulable": ReasonCode("the node is cordoned", "uncordon the node", 3),
    "node-taint": ReasonCode("the node has a taint that the pod does not tolerate", "tolerate or remove the taint", 4),
    "node-affinity": ReasonCode(
        "node selector or affinity does not match the node", "change the selector or label the node", 6
    ),
    "host-port": ReasonCode("a host port is taken on the node", "use another port", 4),
    "node-resources": ReasonCode(
        "the node lacks cpu, memory, storage or an extended resource", "free some, or ask for less", 3
    ),
    "too-many-pods": ReasonCode("the node holds as many pods as it may", "move pods away", 3),
    "topology-spread": ReasonCode("the pod would be spread too unevenly", "see the spread constraints", 4),
    "pod-affinity": ReasonCode("affinity or anti-affinity between pods is not met", "see the affinity terms", 4),
    "claim-elsewhere": ReasonCode(
        "an allocated claim can only be used on other nodes", "use those nodes, or release the claim", 7
    ),
    "node-resources-of-devices": ReasonCode(
        "devices bring cpu or memory needs that the node cannot meet", "free some there", 3
    ),
    "pod-budget": ReasonCode(
        "pod-level resources do not cover what containers and claims take", "raise spec.resources", 4
    ),
    "claim-shared": ReasonCode(
        "a claim that takes node resources is used by another pod", "give each pod its own claim", 4
    ),
    "accounting": ReasonCode("what the devices take from the node cannot be told", "see the driver's mappings", 5),
    "invalid-pools": ReasonCode(
        "a pool of the node is invalid", "see the driver: names or counters are inconsistent", 5
    ),
    "timeout": ReasonCode(
        "the search for devices took too long", "simplify constraints, or raise the filter timeout", 4
    ),
    "left-over-claim": ReasonCode(
        "an earlier attempt left a claim for extended resources", "wait until it is removed", 3
    ),
    "filter": ReasonCode("another filter of the scheduler refuses the node", "see its message", 5),
    "claims": ReasonCode("the claims cannot be served here", "see the message", 5),
    "devices": ReasonCode("the devices of the node cannot serve the claims", "see the requests", 5),
    # --- one request on one node
    "no-devices": ReasonCode("the node offers no devices at all", "run a driver there", 9),
    "too-few-devices": ReasonCode("the node has fewer devices than are asked for", "ask for fewer, or add devices", 7),
    "incomplete-pool": ReasonCode(
        "slices of a pool are missing, or there are too many",
        "wait for the driver to publish all of them; see that one driver alone publishes each pool",
        5,
    ),
    "other-node": ReasonCode("the devices belong to other nodes", "nothing", 9),
    "class-selector": ReasonCode("too few devices are of the class", "ask for fewer, or see the class's selectors", 8),
    "request-selector": ReasonCode("too few devices match the request's selectors", "relax the selector", 6),
    "in-use": ReasonCode("too few matching devices are free", "release a claim, or add devices", 2),
    "taint": ReasonCode(
        "too few devices are without a taint that the request does not tolerate", "tolerate the taint", 3
    ),
    "capacity": ReasonCode("too few devices have the capacity", "ask for less, release shares, or correct the name", 4),
    "counters": ReasonCode("the counters that devices share are used up", "release devices of the same counter set", 3),
    "compatibility": ReasonCode("the devices do not go with others in use", "release those", 4),
    "constraint": ReasonCode("no combination satisfies matchAttribute or distinctAttribute", "relax the constraint", 4),
    "binding-conditions": ReasonCode(
        "devices need binding conditions, which are switched off", "switch the gates on", 5
    ),
    "node-operations": ReasonCode(
        "devices need node operations that the node does not declare", "update the node agent", 5
    ),
    "counters-off": ReasonCode("devices draw counters, which are switched off", "switch the gates on", 5),
    "chosen-already": ReasonCode("the pod's requests compete for the same devices", "ask for fewer devices", 3),
    "later-requests": ReasonCode(
        "each request can be served alone, but not all of them together", "see the constraints", 3
    ),
}


def distance(code: str) -> int:
    known = CODES.get(code)
    return known.distance if known is not None else 5
