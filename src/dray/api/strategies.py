"""How each kind prepares a write before validation: which fields belong to which endpoint, the generation, the first status.

A step gets documents in the storage version and changes the new one in place. `dray.api.prepare_for_write` is the way in;
whether the outcome is allowed is decided by `dray.validation`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dray.api.defaults import refresh_taint_time, with_own_label
from dray.api.dra.qos import qos_class_of_document
from dray.api.gated_fields import drop_disabled_fields
from dray.api.scheme import Resource
from dray.features import FeatureGates

Document = dict[str, Any]
# Fields in the form of managedFields (FieldsV1).
FieldSet = dict[str, Any]


class Setting(msgspec.Struct, frozen=True, gc=False):
    """What a step may know besides the documents."""

    gates: FeatureGates
    now: str


Create = Callable[[Document, Setting], Document]
Update = Callable[[Document, Document, Setting], Document]

JOB_PREFIX = "batch.kubernetes.io/"
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
STATUS_FIELDS: FieldSet = {"f:status": {}}
SPEC_FIELDS: FieldSet = {"f:spec": {}}
SPEC_AND_METADATA: FieldSet = {"f:spec": {}, "f:metadata": {}}
# Metadata that a claim's or rule's /status keeps from the store.
KEPT_METADATA = ("labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp", "generation")


@dataclass(frozen=True, slots=True)
class Strategy:
    create: Create
    update: Update
    update_status: Update | None = None
    reset_main: FieldSet | None = None
    reset_status: FieldSet | None = None
    # Versions in which a PUT must name the resourceVersion.
    conditional_versions: frozenset[str] = frozenset()
    # A deletion answers with the object (in these versions: None means all) or else with a Status.
    returns_deleted: frozenset[str] | None = frozenset()
    # Pods take their time to go.
    is_graceful: bool = False
    ttl_s: int = 0
    # A deletion that does not say otherwise leaves the objects that belong to this one alone.
    keeps_dependents: bool = False


def _with(document: Document, key: str, value: Any) -> Document:
    """Sets or, for None, removes a top-level field."""
    if value is None:
        document.pop(key, None)
    else:
        document[key] = value
    return document


def _generation(document: Document) -> int:
    return int(document["metadata"].get("generation") or 0)


def _keep_generation(new: Document, old: Document) -> None:
    generation = _generation(old)
    if generation:
        new["metadata"]["generation"] = generation
    else:
        new["metadata"].pop("generation", None)


def _count_up(new: Document, old: Document, *, changed: bool) -> None:
    _keep_generation(new, old)
    if changed:
        new["metadata"]["generation"] = _generation(old) + 1


def _differs(new: Document, old: Document, *ignored: str) -> bool:
    """Whether anything but metadata, status and `ignored` changed."""
    skip = {"metadata", "status", "kind", "apiVersion", *ignored}
    keys = (new.keys() | old.keys()) - skip
    return any(new.get(key) != old.get(key) for key in keys)


# --- building blocks -------------------------------------------------------------------------------------------------


def plain_create(document: Document, setting: Setting) -> Document:
    return drop_disabled_fields(document, None, setting.gates)


def plain_update(new: Document, old: Document, setting: Setting) -> Document:
    _keep_generation(new, old)
    return drop_disabled_fields(new, old, setting.gates)


def counted_create(document: Document, setting: Setting) -> Document:
    document["metadata"]["generation"] = 1
    return drop_disabled_fields(document, None, setting.gates)


def counted_update(new: Document, old: Document, setting: Setting) -> Document:
    """Generation moves if what is left after dropping differs."""
    kept = drop_disabled_fields(new, old, setting.gates)
    _count_up(kept, old, changed=_differs(kept, old))
    return kept


def deployment_update(new: Document, old: Document, setting: Setting) -> Document:
    """Annotations count too, since the replica sets get them."""
    return _counted_with(new, old, setting, "annotations")


def endpoint_slice_update(new: Document, old: Document, setting: Setting) -> Document:
    return _counted_with(new, old, setting, "labels")


def _counted_with(new: Document, old: Document, setting: Setting, field: str) -> Document:
    """Generation moves also if this field of the metadata differs."""
    kept = drop_disabled_fields(new, old, setting.gates)
    changed = (kept["metadata"].get(field) or {}) != (old["metadata"].get(field) or {})
    _count_up(kept, old, changed=changed or _differs(kept, old))
    return kept


def slice_update(new: Document, old: Document, setting: Setting) -> Document:
    """Generation moves if what was sent differs, even if the difference is then dropped."""
    changed = _differs(new, old)
    kept = drop_disabled_fields(new, old, setting.gates)
    _count_up(kept, old, changed=changed)
    return kept


def without_status(inner: Create, empty: Any) -> Create:
    """A new object has no status yet, whatever was sent."""

    def create(document: Document, setting: Setting) -> Document:
        return inner(_with(document, "status", dict(empty) if empty is not None else None), setting)

    return create


def keeping_status(inner: Update) -> Update:
    """The main endpoint does not touch status."""

    def update(new: Document, old: Document, setting: Setting) -> Document:
        return inner(_with(new, "status", old.get("status")), old, setting)

    return update


def status_only(new: Document, old: Document, setting: Setting) -> Document:
    """/status touches nothing but status: the rest of the object comes from the store."""
    _keep_rest(new, old)
    _keep_generation(new, old)
    return new


def _keep_rest(new: Document, old: Document) -> None:
    for key in (new.keys() | old.keys()) - {"metadata", "status", "kind", "apiVersion"}:
        _with(new, key, old.get(key))


def _keep_metadata(new: Document, old: Document) -> None:
    for key in KEPT_METADATA:
        _with(new["metadata"], key, old["metadata"].get(key))


def labels_kept_status(new: Document, old: Document, setting: Setting) -> Document:
    """Labels are not part of a status; annotations may change with it."""
    _with(new["metadata"], "labels", old["metadata"].get("labels"))
    return status_only(new, old, setting)


def bare_status(new: Document, old: Document, setting: Setting) -> Document:
    """Nothing of the metadata changes with the status."""
    _keep_rest(new, old)
    _keep_metadata(new, old)
    return new


BARE_STATUS: dict[str, Any] = {"update_status": bare_status, "reset_status": SPEC_AND_METADATA}


def gated_status(new: Document, old: Document, setting: Setting) -> Document:
    _keep_rest(new, old)
    _keep_metadata(new, old)
    return drop_disabled_fields(new, old, setting.gates)


# --- resource.k8s.io -------------------------------------------------------------------------------------------------


def claim_status(new: Document, old: Document, setting: Setting) -> Document:
    kept = gated_status(new, old, setting)
    return _without_stale_devices(kept, old)


def _without_stale_devices(new: Document, old: Document) -> Document:
    """Device status of a device that was allocated and is no more goes away with it."""
    status = new.get("status") or {}
    if not status.get("devices"):
        return new
    stale = _allocated(old) - _allocated(new)
    devices = [entry for entry in status["devices"] if _device_id(entry) not in stale]
    if len(devices) == len(status["devices"]):
        return new
    status = {**status, "devices": devices} if devices else {k: v for k, v in status.items() if k != "devices"}
    return {**new, "status": status}


def _allocated(document: Document) -> set[tuple[Any, ...]]:
    allocation = (document.get("status") or {}).get("allocation") or {}
    return {_device_id(result) for result in (allocation.get("devices") or {}).get("results") or ()}


def _device_id(entry: Document) -> tuple[Any, ...]:
    return tuple(entry.get(name) for name in ("driver", "pool", "device", "shareID"))


def taint_rule_update(new: Document, old: Document, setting: Setting) -> Document:
    new = refresh_taint_time(_with(new, "status", old.get("status")), old, setting.now)
    return counted_update(new, old, setting)


# --- core ------------------------------------------------------------------------------------------------------------


def pod_create(document: Document, setting: Setting) -> Document:
    document["status"] = initial_pod_status(document, setting.now)
    return counted_create(document, setting)


def pod_update(new: Document, old: Document, setting: Setting) -> Document:
    return counted_update(_with(new, "status", old.get("status")), old, setting)


def pod_status(new: Document, old: Document, setting: Setting) -> Document:
    """Labels, annotations and finalizers in a pod's status update do take effect."""
    _keep_rest(new, old)
    _keep_generation(new, old)
    _with(new["metadata"], "ownerReferences", old["metadata"].get("ownerReferences"))
    _with(new["metadata"], "deletionTimestamp", old["metadata"].get("deletionTimestamp"))
    new["status"] = keep_claim_lists(new.get("status") or {}, old.get("status") or {})
    return drop_disabled_fields(new, old, setting.gates)


def namespace_create(document: Document, setting: Setting) -> Document:
    spec = dict(document.get("spec") or {})
    finalizers = list(spec.get("finalizers") or ())
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")
    document["spec"] = {**spec, "finalizers": finalizers}
    document["status"] = {"phase": "Active"}
    return with_own_label(document)


def namespace_update(new: Document, old: Document, setting: Setting) -> Document:
    new["spec"] = old.get("spec") or {}
    new["status"] = old.get("status") or {}
    return new


def service_update(new: Document, old: Document, setting: Setting) -> Document:
    # Loaded when it is needed: a server that starts updates none.
    from dray.api.service_updates import updated_spec

    spec = updated_spec(new.get("spec") or {}, old.get("spec") or {})
    new["spec"] = spec
    if spec.get("type") != "LoadBalancer" and new.get("status"):
        # The balancer is taken down later; its addresses are of no use from now on.
        new["status"] = {**new["status"], "loadBalancer": {}}
    return plain_update(new, old, setting)


def volume_claim_create(document: Document, setting: Setting) -> Document:
    from dray.api.data_sources import with_both_sources

    if spec := document.get("spec"):
        document["spec"] = with_both_sources(spec, None)
    return plain_create(document, setting)


def volume_claim_update(new: Document, old: Document, setting: Setting) -> Document:
    from dray.api.data_sources import with_both_sources

    if spec := new.get("spec"):
        new["spec"] = with_both_sources(spec, old.get("spec"))
    return plain_update(new, old, setting)


def job_create(document: Document, setting: Setting) -> Document:
    """A job finds its pods by its own UID, unless it says otherwise."""
    spec = dict(document.get("spec") or {})
    if not spec.get("manualSelector"):
        uid, name = document["metadata"].get("uid", ""), document["metadata"].get("name", "")
        labels = {
            f"{JOB_PREFIX}controller-uid": uid,
            f"{JOB_PREFIX}job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        template = dict(spec.get("template") or {})
        metadata = dict(template.get("metadata") or {})
        # Labels and selectors that somebody wrote stay, so that those of another job are refused.
        metadata["labels"] = {**labels, **(metadata.get("labels") or {})}
        spec["template"] = {**template, "metadata": metadata}
        selector = dict(spec.get("selector") or {})
        selected = {**(selector.get("matchLabels") or {}), f"{JOB_PREFIX}controller-uid": uid}
        spec["selector"] = {**selector, "matchLabels": selected}
    document["spec"] = spec
    labels_of_pods = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels_of_pods and not document["metadata"].get("labels"):
        document["metadata"]["labels"] = dict(labels_of_pods)
    return counted_create(document, setting)


def daemon_set_create(document: Document, setting: Setting) -> Document:
    """An annotation counts the changes of the pod template, as an older version of the API had it in the spec."""
    _count_template(document, 1)
    return counted_create(document, setting)


def daemon_set_update(new: Document, old: Document, setting: Setting) -> Document:
    counted = _template_count(old)
    is_changed = (new.get("spec") or {}).get("template") != (old.get("spec") or {}).get("template")
    _count_template(new, counted + is_changed)
    return counted_update(new, old, setting)


def _template_count(document: Document) -> int:
    text = str((document["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, ""))
    return int(text) if text.isdecimal() else 1


def _count_template(document: Document, number: int) -> None:
    metadata = document["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), TEMPLATE_GENERATION: str(number)}


def volume_create(document: Document, setting: Setting) -> Document:
    document["status"] = {"phase": "Pending", "lastPhaseTransitionTime": setting.now}
    return plain_create(document, setting)


def volume_status(new: Document, old: Document, setting: Setting) -> Document:
    """Notes when the phase changes, unless the client says when."""
    status_only(new, old, setting)
    status, before = dict(new.get("status") or {}), old.get("status") or {}
    since = status.get("lastPhaseTransitionTime")
    if status.get("phase") != before.get("phase") and since in (None, before.get("lastPhaseTransitionTime")):
        new["status"] = {**status, "lastPhaseTransitionTime": setting.now}
    return new


def node_status(new: Document, old: Document, setting: Setting) -> Document:
    _keep_rest(new, old)
    return new


def keeping_spec_and_status(new: Document, old: Document, setting: Setting) -> Document:
    """A certificate request says for ever what it said first."""
    for key in ("spec", "status"):
        _with(new, key, old.get(key))
    return plain_update(new, old, setting)


DECISIONS = ("Approved", "Denied")


def certificate_status(new: Document, old: Document, setting: Setting) -> Document:
    """The signer's part of the status; decisions keep what the approver said of them."""
    status_only(new, old, setting)
    conditions, before = _conditions(new), _conditions(old)
    for kind in DECISIONS:
        places = [i for i, entry in enumerate(conditions) if entry.get("type") == kind]
        kept = [entry for entry in before if entry.get("type") == kind]
        if len(places) == len(kept):
            for i, entry in zip(places, kept, strict=True):
                conditions[i] = entry
    new["status"] = {**(new.get("status") or {}), "conditions": _dated(conditions, before, setting.now)}
    return new


def certificate_approval(new: Document, old: Document, setting: Setting) -> Document:
    """/approval decides: of what was sent it takes the conditions."""
    conditions = _dated(_conditions(new), _conditions(old), setting.now)
    status_only(new, old, setting)
    new["status"] = {**(old.get("status") or {}), "conditions": conditions}
    return new


def _conditions(document: Document) -> list[Document]:
    return list((document.get("status") or {}).get("conditions") or ())


def _dated(conditions: list[Document], before: list[Document], now: str) -> list[Document]:
    """With the times that nobody sent: of the same condition with the same status the transition is that of the first of them."""
    transitions: dict[tuple[Any, Any], str] = {}
    for entry in before:
        if since := entry.get("lastTransitionTime"):
            transitions.setdefault((entry.get("type"), entry.get("status")), since)
    return [
        {
            **entry,
            "lastUpdateTime": entry.get("lastUpdateTime") or now,
            "lastTransitionTime": entry.get("lastTransitionTime")
            or transitions.get((entry.get("type"), entry.get("status")), now),
        }
        for entry in conditions
    ]


PLAIN = Strategy(plain_create, plain_update)


def with_status(create: Create, update: Update, empty: Any = None) -> Strategy:
    """A kind with a controller: status cleared on creation and apart from the rest after it."""
    return Strategy(
        without_status(create, empty if empty is not None else {}),
        keeping_status(update),
        status_only,
        STATUS_FIELDS,
        SPEC_FIELDS,
    )


COUNTED_WITH_STATUS = with_status(counted_create, counted_update)
COUNTED = Strategy(counted_create, counted_update)
V1 = frozenset({"v1"})
ADMISSION_VERSIONS = frozenset({"v1", "v1beta1", "v1alpha1"})

STRATEGIES: dict[tuple[str, str], Strategy] = {
    ("resource.k8s.io", "ResourceSlice"): Strategy(counted_create, slice_update, returns_deleted=None),
    ("resource.k8s.io", "DeviceClass"): Strategy(counted_create, counted_update, returns_deleted=None),
    ("resource.k8s.io", "ResourceClaim"): Strategy(
        without_status(plain_create, {}),
        keeping_status(plain_update),
        claim_status,
        STATUS_FIELDS,
        SPEC_AND_METADATA,
        returns_deleted=None,
    ),
    ("resource.k8s.io", "ResourceClaimTemplate"): Strategy(plain_create, plain_update, returns_deleted=None),
    ("resource.k8s.io", "DeviceTaintRule"): Strategy(
        without_status(counted_create, {}),
        taint_rule_update,
        gated_status,
        STATUS_FIELDS,
        SPEC_AND_METADATA,
        conditional_versions=frozenset({"v1"}),
        returns_deleted=frozenset({"v1beta2", "v1alpha3"}),
    ),
    ("resource.k8s.io", "ResourcePoolStatusRequest"): Strategy(
        without_status(plain_create, None),
        keeping_status(plain_update),
        gated_status,
        STATUS_FIELDS,
        SPEC_AND_METADATA,
        conditional_versions=frozenset({"v1alpha3"}),
        returns_deleted=None,
    ),
    ("", "Pod"): Strategy(
        pod_create,
        pod_update,
        pod_status,
        STATUS_FIELDS,
        {"f:spec": {}, "f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}}},
        returns_deleted=None,
        is_graceful=True,
    ),
    ("", "Namespace"): Strategy(
        namespace_create, namespace_update, status_only, STATUS_FIELDS, SPEC_FIELDS, returns_deleted=None
    ),
    ("", "Service"): replace(with_status(plain_create, service_update, {"loadBalancer": {}}), returns_deleted=None),
    ("", "ServiceAccount"): Strategy(plain_create, plain_update, returns_deleted=None),
    ("", "Node"): Strategy(plain_create, keeping_status(plain_update), node_status, STATUS_FIELDS, SPEC_FIELDS),
    ("", "ResourceQuota"): replace(with_status(plain_create, plain_update), returns_deleted=None),
    ("", "Event"): Strategy(plain_create, plain_update, ttl_s=3600),
    ("events.k8s.io", "Event"): Strategy(plain_create, plain_update, ttl_s=3600),
    ("apps", "Deployment"): replace(
        with_status(counted_create, deployment_update),
        update_status=labels_kept_status,
        reset_status={"f:spec": {}, "f:metadata": {"f:labels": {}}},
    ),
    ("apps", "ReplicaSet"): with_status(counted_create, counted_update, {"replicas": 0}),
    ("apps", "DaemonSet"): with_status(
        daemon_set_create,
        daemon_set_update,
        {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0},
    ),
    ("batch", "Job"): replace(with_status(job_create, counted_update), keeps_dependents=True),
    ("apps", "StatefulSet"): with_status(counted_create, counted_update, {"replicas": 0, "availableReplicas": 0}),
    ("", "ReplicationController"): replace(
        with_status(counted_create, counted_update, {"replicas": 0}), keeps_dependents=True
    ),
    ("", "PodTemplate"): Strategy(counted_create, counted_update, returns_deleted=None),
    ("autoscaling", "HorizontalPodAutoscaler"): with_status(
        counted_create, counted_update, {"desiredReplicas": 0, "currentMetrics": None}
    ),
    ("batch", "CronJob"): COUNTED_WITH_STATUS,
    ("policy", "PodDisruptionBudget"): replace(
        with_status(
            counted_create,
            counted_update,
            {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
        ),
        conditional_versions=V1,
    ),
    ("discovery.k8s.io", "EndpointSlice"): Strategy(counted_create, endpoint_slice_update),
    ("coordination.k8s.io", "Lease"): Strategy(plain_create, plain_update, conditional_versions=V1),
    ("networking.k8s.io", "Ingress"): with_status(counted_create, counted_update, {"loadBalancer": {}}),
    ("networking.k8s.io", "IngressClass"): COUNTED,
    ("networking.k8s.io", "NetworkPolicy"): COUNTED,
    ("networking.k8s.io", "ServiceCIDR"): replace(with_status(plain_create, plain_update), **BARE_STATUS),
    ("", "PersistentVolume"): replace(
        with_status(plain_create, plain_update), create=volume_create, update_status=volume_status, returns_deleted=None
    ),
    ("", "PersistentVolumeClaim"): replace(
        with_status(volume_claim_create, volume_claim_update, {"phase": "Pending"}), returns_deleted=None
    ),
    ("storage.k8s.io", "StorageClass"): Strategy(plain_create, plain_update, returns_deleted=None),
    ("storage.k8s.io", "VolumeAttributesClass"): Strategy(plain_create, plain_update, returns_deleted=None),
    ("storage.k8s.io", "CSIDriver"): Strategy(
        plain_create, counted_update, conditional_versions=V1, returns_deleted=None
    ),
    ("storage.k8s.io", "CSINode"): Strategy(
        plain_create, plain_update, conditional_versions=V1, returns_deleted=None, **BARE_STATUS
    ),
    ("storage.k8s.io", "CSIStorageCapacity"): Strategy(plain_create, plain_update, conditional_versions=V1),
    ("storage.k8s.io", "VolumeAttachment"): replace(
        with_status(plain_create, plain_update, {"attached": False}),
        **BARE_STATUS,
        conditional_versions=V1,
        returns_deleted=None,
    ),
    ("certificates.k8s.io", "CertificateSigningRequest"): Strategy(
        without_status(plain_create, {}),
        keeping_spec_and_status,
        certificate_status,
        STATUS_FIELDS,
        SPEC_FIELDS,
    ),
    ("certificates.k8s.io", "PodCertificateRequest"): replace(
        with_status(plain_create, plain_update), **BARE_STATUS, conditional_versions=V1
    ),
    ("certificates.k8s.io", "ClusterTrustBundle"): Strategy(
        plain_create, plain_update, conditional_versions=frozenset({"v1", "v1beta1"})
    ),
    ("coordination.k8s.io", "LeaseCandidate"): Strategy(
        plain_create, plain_update, conditional_versions=frozenset({"v1beta1", "v1alpha2"})
    ),
    ("node.k8s.io", "RuntimeClass"): Strategy(plain_create, plain_update, conditional_versions=V1),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): replace(COUNTED_WITH_STATUS, **BARE_STATUS),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): replace(COUNTED_WITH_STATUS, **BARE_STATUS),
    ("storagemigration.k8s.io", "StorageVersionMigration"): replace(
        with_status(plain_create, plain_update),
        **BARE_STATUS,
        conditional_versions=frozenset({"v1", "v1beta1"}),
    ),
    **{
        ("admissionregistration.k8s.io", kind): replace(COUNTED, conditional_versions=ADMISSION_VERSIONS)
        for kind in (
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        )
    },
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): replace(
        COUNTED_WITH_STATUS, conditional_versions=ADMISSION_VERSIONS
    ),
    ("scheduling.k8s.io", "PriorityClass"): Strategy(counted_create, counted_update),
    ("scheduling.k8s.io", "PodGroup"): Strategy(
        without_status(plain_create, {}),
        keeping_status(plain_update),
        gated_status,
        STATUS_FIELDS,
        SPEC_AND_METADATA,
        conditional_versions=frozenset({"v1beta1"}),
    ),
    ("scheduling.k8s.io", "Workload"): Strategy(
        plain_create, plain_update, conditional_versions=frozenset({"v1beta1"})
    ),
}


def _definition_create(document: Document, setting: Setting) -> Document:
    document["metadata"]["generation"] = 1
    document["status"] = {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []}
    return _with_stored_version(document)


def _definition_update(new: Document, old: Document, setting: Setting) -> Document:
    _with(new, "status", old.get("status"))
    _count_up(new, old, changed=new.get("spec") != old.get("spec"))
    return _with_stored_version(new)


def _definition_status(new: Document, old: Document, setting: Setting) -> Document:
    metadata = {**old["metadata"], "managedFields": new["metadata"].get("managedFields")}
    kept = {key: value for key, value in metadata.items() if value is not None}
    return _with({**old, "metadata": kept}, "status", new.get("status"))


def _with_stored_version(document: Document) -> Document:
    """Notes the version in which objects are stored from now on: it must not go away while there are such objects."""
    status = dict(document.get("status") or {})
    stored = list(status.get("storedVersions") or ())
    for version in (document.get("spec") or {}).get("versions") or ():
        if version.get("storage") and version.get("name") not in stored:
            stored.append(version["name"])
    document["status"] = {**status, "storedVersions": stored}
    return document


STRATEGIES["apiextensions.k8s.io", "CustomResourceDefinition"] = Strategy(
    _definition_create,
    _definition_update,
    _definition_status,
    STATUS_FIELDS,
    SPEC_AND_METADATA,
    conditional_versions=V1,
)


LOCAL_SERVER = {
    "type": "Available",
    "status": "True",
    "reason": "Local",
    "message": "Local APIServices are always available",
}


def _api_service_create(document: Document, setting: Setting) -> Document:
    """A group without a Service is served by this server, so it is there from the beginning."""
    document["status"] = {}
    if not (document.get("spec") or {}).get("service"):
        document["status"]["conditions"] = [{**LOCAL_SERVER, "lastTransitionTime": setting.now}]
    return plain_create(document, setting)


STRATEGIES["apiregistration.k8s.io", "APIService"] = Strategy(
    _api_service_create,
    keeping_status(plain_update),
    reset_main=STATUS_FIELDS,
    **BARE_STATUS,
    conditional_versions=V1,
)


def strategy_of(row: Resource) -> Strategy:
    if row.custom is not None:
        own: Strategy = row.custom.strategy
        return own
    return STRATEGIES.get((row.group, row.kind), PLAIN)


def strategy_for(api_version: str, kind: str) -> Strategy:
    """Also for kinds that are known and not served."""
    return STRATEGIES.get((api_version.rpartition("/")[0], kind), PLAIN)


CLAIM_LISTS = ("resourceClaimStatuses", "nodeAllocatableResourceClaimStatuses")
EXTENDED_CLAIM = "extendedResourceClaimStatus"


GATED = "Scheduling is blocked due to non-empty scheduling gates"


def initial_pod_status(pod: Document, now: str) -> Document:
    spec = pod.get("spec") or {}
    status: Document = {"phase": "Pending", "qosClass": qos_class_of_document(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": GATED}
        status["conditions"] = [{**gated, "lastProbeTime": None, "lastTransitionTime": now}]
    return status


def keep_claim_lists(new: Document, old: Document) -> Document:
    """A list that is not sent is kept, an empty one clears; the extended claim, once set, can only be replaced."""
    status = dict(new)
    for name in CLAIM_LISTS:
        if name not in status and name in old:
            status[name] = old[name]
        elif name in status and not status[name]:
            del status[name]
    if EXTENDED_CLAIM not in status and EXTENDED_CLAIM in old:
        status[EXTENDED_CLAIM] = old[EXTENDED_CLAIM]
    return status
