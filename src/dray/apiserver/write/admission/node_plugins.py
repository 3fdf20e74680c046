"""Admission plugins for nodes: TaintNodesByCondition, PodTopologyLabels and NodeRestriction.

The node authorizer (`dray.apiserver.request.authorization.authorizer`) has already looked at names; NodeRestriction looks at
contents: a node writes only its own Node, the status of its own pods, its own lease, its own CSINode and its own slices, the
capacity of its pods' volume claims, and certificate requests for its pods."""

from collections.abc import Awaitable, Callable, Iterator

import msgspec
from msgspec.structs import replace

from dray.api.projections import ReferencingPodSpec
from dray.api.safe_get import (
    labels_of,
    mapping,
    mappings,
    name_of,
    namespace_of,
    part,
    strings,
    text,
    uid_of,
)
from dray.api.scheme import by_kind
from dray.apiserver import errors
from dray.apiserver.request.authorization.authorizer import LEASE_NAMESPACE, secrets_and_config_maps
from dray.apiserver.request.request_info import Authorizer, Document
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.apiserver.write.admission.chain import (
    CREATE,
    DELETE,
    MIRROR_ANNOTATION,
    UPDATE,
    Admission,
    AdmissionPlugin,
    KindOfWrite,
    concerns,
    forbidden,
)
from dray.features import FeatureGates

RESERVED_LABEL_DOMAIN = "node-restriction.kubernetes.io"
_ALLOWED_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "node.kubernetes.io/windows-build",
    }
)
_ALLOWED_LABEL_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


def is_restricted_label(key: str, *, on_creation: bool) -> bool:
    """Labels below kubernetes.io and k8s.io steer workloads; a node sets only those it may know about itself.

    At creation only the strictly reserved domain is refused, since kubelets register with labels of all kinds.
    """
    domain = key.partition("/")[0] if "/" in key else ""
    if _is_below(domain, RESERVED_LABEL_DOMAIN):
        return True
    if on_creation or not (_is_below(domain, "kubernetes.io") or _is_below(domain, "k8s.io")):
        return False
    return key not in _ALLOWED_LABELS and not any(_is_below(domain, allowed) for allowed in _ALLOWED_LABEL_DOMAINS)


def _is_below(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")


NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class TaintNodesByCondition(AdmissionPlugin):
    """The node lifecycle controller takes the taint away. (`TaintNodesByCondition` in Kubernetes.)"""

    name = "TaintNodesByCondition"
    resources = frozenset({("", "nodes")})

    async def mutate(self, admission: Admission) -> None:
        if admission.operation != CREATE or not concerns(admission, "", "nodes") or admission.document is None:
            return
        spec = dict(admission.document.get("spec") or {})
        taints = list(spec.get("taints") or ())
        if not any(
            taint.get("key") == NOT_READY_TAINT["key"] and taint.get("effect") == "NoSchedule" for taint in taints
        ):
            spec["taints"] = [*taints, dict(NOT_READY_TAINT)]
            admission.document["spec"] = spec


TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class PodTopologyLabels(AdmissionPlugin):
    """A pod that gets a node has the node's zone and region as labels, so that its containers can be told."""

    name = "PodTopologyLabels"

    def __init__(self, objects: ObjectLookup, gates: FeatureGates) -> None:
        self._objects = objects
        self._is_on = gates.enabled("PodTopologyLabelsAdmission")

    def looks_at(self, write: KindOfWrite) -> bool:
        return self._is_on and write in (KindOfWrite(CREATE, "", "pods"), KindOfWrite(CREATE, "", "pods", "binding"))

    async def mutate(self, admission: Admission) -> None:
        node = _assigned_node(admission)
        if not node or admission.document is None:
            return
        labels = await self._objects.labels("", "nodes", "", node)
        found = {label: labels[label] for label in TOPOLOGY_LABELS if label in labels}
        if found:
            metadata = admission.document.setdefault("metadata", {})
            metadata["labels"] = {**mapping(metadata, "labels"), **found}


def _assigned_node(admission: Admission) -> str:
    """Where the pod is created, or bound to."""
    if admission.attributes.subresource != "binding":
        return text(admission.document, "spec", "nodeName")
    target = mapping(admission.document, "target")
    return text(target, "name") if text(target, "kind") == "Node" else ""


# What a node may not change in a pod's status, and how the refusal names it (the first is spelled as in Kubernetes).
CLAIM_FIELDS = {
    "resourceClaimStatuses": "resource claim statues",
    "extendedResourceClaimStatus": "extended resource claim status",
    "nodeAllocatableResourceClaimStatuses": "node allocatable resource claim statuses",
}

Check = Callable[[str, Admission], Awaitable[None]]


class NodeRestriction(AdmissionPlugin):
    name = "NodeRestriction"

    def __init__(self, objects: ObjectLookup, authorizer: Authorizer) -> None:
        self._objects = objects
        self._authorizer = authorizer
        self._checks: dict[tuple[str, str, str], Check] = {
            ("", "pods", ""): self._pod,
            ("", "pods", "status"): self._pod_status,
            ("", "pods", "eviction"): self._eviction,
            ("", "nodes", ""): self._node,
            ("", "nodes", "status"): self._node,
            ("", "serviceaccounts", "token"): self._token,
            ("coordination.k8s.io", "leases", ""): self._lease,
            ("resource.k8s.io", "resourceslices", ""): self._slice,
            ("storage.k8s.io", "csinodes", ""): self._csi_node,
            ("storage.k8s.io", "csinodes", "status"): self._csi_node,
            ("", "persistentvolumeclaims", "status"): self._volume_claim_status,
            ("certificates.k8s.io", "podcertificaterequests", ""): self._pod_certificate,
        }

    async def mutate(self, admission: Admission) -> None:
        node = admission.user.node_name
        if not node:
            return
        attributes = admission.attributes
        check = self._checks.get((attributes.group, attributes.resource, attributes.subresource))
        if check:
            await check(node, admission)

    # --- pods --------------------------------------------------------------------------------------------------------

    async def _pod(self, node: str, admission: Admission) -> None:
        if admission.operation == CREATE:
            await self._mirror_pod(node, admission)
        elif admission.operation == DELETE:
            if _node_of(admission.old) != node:
                raise forbidden(admission, f'node "{node}" can only delete pods with spec.nodeName set to itself')
        else:
            raise forbidden(
                admission, f'unexpected operation "{admission.operation}", node "{node}" cannot update pods'
            )

    async def _mirror_pod(self, node: str, admission: Admission) -> None:
        pod = admission.document
        if MIRROR_ANNOTATION not in mapping(pod, "metadata", "annotations"):
            raise forbidden(
                admission,
                f'pod does not have "{MIRROR_ANNOTATION}" annotation, node "{node}" can only create mirror pods',
            )
        if _node_of(pod) != node:
            raise forbidden(admission, f'node "{node}" can only create pods with spec.nodeName set to itself')
        await self._mirror_owner(node, admission)
        for what in _references(mapping(pod, "spec")):
            raise forbidden(admission, f'node "{node}" can not create pods that reference {what}')

    async def _mirror_owner(self, node: str, admission: Admission) -> None:
        owners = mappings(admission.document, "metadata", "ownerReferences")
        if len(owners) != 1:
            raise forbidden(admission, f'node "{node}" can only create pods with exactly one owner reference to itself')
        owner = owners[0]
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            raise forbidden(admission, f'node "{node}" can only create pods with an owner reference set to itself')
        if owner.get("controller") is not True:
            raise forbidden(
                admission, f'node "{node}" can only create pods with a controller owner reference set to itself'
            )
        if owner.get("blockOwnerDeletion"):
            raise forbidden(admission, f'node "{node}" must not set blockOwnerDeletion on an owner reference')
        found = await self._objects.get("", "nodes", "", node)
        if found is None or uid_of(found) != owner.get("uid"):
            raise forbidden(admission, f'node "{node}" UID mismatch: expected {uid_of(found)} got {owner.get("uid")}')

    async def _pod_status(self, node: str, admission: Admission) -> None:
        if admission.operation != UPDATE:
            raise forbidden(admission, f"unexpected operation {admission.operation!r}")
        if _node_of(admission.old) != node:
            raise forbidden(
                admission, f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
            )
        if labels_of(admission.document) != labels_of(admission.old):
            raise forbidden(admission, f'node "{node}" cannot update labels through pod status')
        for field, words in CLAIM_FIELDS.items():
            if (part(admission.document, "status", field) or None) != (part(admission.old, "status", field) or None):
                raise forbidden(admission, f'node "{node}" cannot update {words}')

    async def _eviction(self, node: str, admission: Admission) -> None:
        """Asked for the Eviction itself, and again for the deletion it becomes."""
        pod = admission.old
        if pod is None:
            name = admission.name or name_of(admission.document)
            pod = await self._objects.get("", "pods", admission.attributes.namespace, name)
        if pod is not None and _node_of(pod) != node:
            raise forbidden(admission, f"node {node} can only evict pods with spec.nodeName set to itself")

    # --- nodes, leases, tokens, slices -------------------------------------------------------------------------------

    async def _node(self, node: str, admission: Admission) -> None:
        if admission.name != node:
            raise forbidden(admission, f'node "{node}" is not allowed to modify node "{admission.name}"')
        if admission.operation == CREATE:
            bad = [key for key in labels_of(admission.document) if is_restricted_label(key, on_creation=True)]
        elif admission.operation == UPDATE:
            bad = _changed_restricted_labels(admission.document, admission.old)
            self._node_update(node, admission)
        else:
            raise forbidden(admission, f'node "{node}" is not allowed to delete itself')
        if bad:
            raise forbidden(admission, f'node "{node}" is not allowed to modify labels: {", ".join(sorted(bad))}')

    def _node_update(self, node: str, admission: Admission) -> None:
        new, old = admission.document, admission.old
        if part(new, "spec", "configSource") and part(new, "spec", "configSource") != part(old, "spec", "configSource"):
            raise forbidden(
                admission, f'node "{node}" is not allowed to update configSource to a new non-nil configSource'
            )
        if (part(new, "spec", "taints") or None) != (part(old, "spec", "taints") or None):
            raise forbidden(admission, f'node "{node}" is not allowed to modify taints')
        if (part(new, "metadata", "ownerReferences") or None) != (part(old, "metadata", "ownerReferences") or None):
            raise forbidden(admission, f'node "{node}" is not allowed to modify ownerReferences')

    async def _token(self, node: str, admission: Admission) -> None:
        """A node asks for tokens only on behalf of pods it runs."""
        reference = mapping(admission.document, "spec", "boundObjectRef")
        if reference.get("kind") != "Pod" or reference.get("apiVersion") not in ("v1", "", None):
            raise forbidden(admission, "node requested token not bound to a pod")
        if not text(reference, "name") or not text(reference, "uid"):
            raise forbidden(admission, "node requested token with a pod binding without a uid")
        pod = await self._objects.get("", "pods", admission.attributes.namespace, text(reference, "name"))
        if pod is None:
            raise errors.not_found(by_kind("Pod"), text(reference, "name"))
        if uid_of(pod) != text(reference, "uid"):
            raise errors.conflict(
                by_kind("Pod"),
                text(reference, "name"),
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
            )
        if _node_of(pod) != node:
            raise forbidden(admission, "node requested token bound to a pod scheduled on a different node")
        await self._audience(admission, pod)

    async def _audience(self, admission: Admission, pod: Document) -> None:
        """A token is for whom the pod's volumes say, or for whom a role allows this node to ask."""
        audiences = strings(admission.document, "spec", "audiences")
        if len(audiences) > 1:
            raise forbidden(admission, "node may only request 0 or 1 audiences")
        audience = audiences[0] if audiences else ""
        if await self._is_wanted(audience, pod):
            return
        asked = replace(
            admission.attributes, verb="request-serviceaccounts-token-audience", resource=audience, subresource=""
        )
        if not (await self._authorizer.authorize(asked)).allowed:
            why = f'{admission.user.name} is not authorized to request tokens for audience "{audience}"'
            raise forbidden(admission, why)

    async def _is_wanted(self, audience: str, pod: Document) -> bool:
        for volume in mappings(pod, "spec", "volumes"):
            for source in mappings(volume, "projected", "sources"):
                if "serviceAccountToken" in source and text(source, "serviceAccountToken", "audience") == audience:
                    return True
            driver = await self._storage_driver(volume, pod)
            found = await self._objects.get("storage.k8s.io", "csidrivers", "", driver) if driver else None
            if any(text(each, "audience") == audience for each in mappings(found, "spec", "tokenRequests")):
                return True
        return False

    async def _storage_driver(self, volume: Document, pod: Document) -> str:
        """The CSI driver of a volume, by way of its claim if it has one."""
        if "csi" in volume:
            return text(volume, "csi", "driver")
        name = text(volume, "persistentVolumeClaim", "claimName")
        if "ephemeral" in volume:
            name = f"{name_of(pod)}-{text(volume, 'name')}"
        claim = await self._objects.get("", "persistentvolumeclaims", namespace_of(pod), name) if name else None
        bound = text(claim, "spec", "volumeName")
        return (
            text(await self._objects.get("", "persistentvolumes", "", bound), "spec", "csi", "driver") if bound else ""
        )

    async def _lease(self, node: str, admission: Admission) -> None:
        if admission.attributes.namespace != LEASE_NAMESPACE:
            raise forbidden(admission, f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
        if admission.name != node:
            raise forbidden(admission, "can only access node lease with the same name as the requesting node")

    async def _csi_node(self, node: str, admission: Admission) -> None:
        if admission.name != node:
            raise forbidden(admission, "can only access CSINode with the same name as the requesting node")

    async def _volume_claim_status(self, node: str, admission: Admission) -> None:
        if admission.operation != UPDATE:
            raise forbidden(admission, f'unexpected operation "{admission.operation}"')
        if _beyond_capacity(admission.old) != _beyond_capacity(admission.document):
            allowed = "status.quantity and status.conditions"
            raise forbidden(admission, f'node "{node}" is not allowed to update fields other than {allowed}')

    async def _pod_certificate(self, node: str, admission: Admission) -> None:
        """A node asks for certificates only on behalf of pods it runs, and for their own service account."""
        if admission.operation != CREATE:
            raise forbidden(admission, f"unexpected operation {admission.operation}")
        request, namespace = mapping(admission.document, "spec"), admission.attributes.namespace
        if text(request, "nodeName") != node:
            named = text(request, "nodeName")
            raise forbidden(
                admission, f'PodCertificateRequest.Spec.NodeName="{named}", which is not the requesting node "{node}"'
            )
        label = f"{namespace}/{text(request, 'podName')}"
        pod = await self._objects.get("", "pods", namespace, text(request, "podName"))
        account = text(pod, "spec", "serviceAccountName")
        found = {
            "nodeUID": await self._objects.get("", "nodes", "", node),
            "podUID": pod,
            "serviceAccountUID": await self._objects.get("", "serviceaccounts", namespace, account),
        }
        if _node_of(pod) != node:
            raise forbidden(
                admission, f'pod "{label}" is not running on node "{node}" named in the PodCertificateRequest'
            )
        if MIRROR_ANNOTATION in mapping(pod, "metadata", "annotations"):
            raise forbidden(admission, f'pod "{label}" is a mirror pod')
        if text(request, "serviceAccountName") != account:
            raise forbidden(
                admission,
                f'PodCertificateRequest for pod "{label}" contains serviceAccountName '
                f'("{text(request, "serviceAccountName")}") that differs from running pod ("{account}")',
            )
        for field, known in found.items():
            if uid_of(known) != text(request, field):
                raise forbidden(admission, f'PodCertificateRequest for pod "{label}" names another {field}')
        if text(request, "signerName") not in _signers(pod):
            signer = text(request, "signerName")
            refusal = f'pod "{label}" does not mount a podCertificate projected volume for signer "{signer}"'
            raise forbidden(admission, refusal)

    async def _slice(self, node: str, admission: Admission) -> None:
        if admission.operation == CREATE and _slice_node(admission.document) != node:
            raise forbidden(admission, "can only create ResourceSlice with the same NodeName as the requesting node")
        if admission.operation == UPDATE and {_slice_node(admission.old), _slice_node(admission.document)} != {node}:
            raise forbidden(admission, "can only update ResourceSlice with the same NodeName as the requesting node")
        if admission.operation == DELETE and _slice_node(admission.old) != node:
            raise forbidden(admission, "can only delete ResourceSlice with the same NodeName as the requesting node")
        if admission.operation != DELETE:
            await self._pool(node, admission)

    async def _pool(self, node: str, admission: Admission) -> None:
        """Drivers name a node's pool after the node. Devices are known by driver, pool and name: a slice in the pool of another node
        would take that node's devices, or make its counters wrong. Kubernetes does not look."""
        pool = text(admission.document, "spec", "pool", "name")
        if pool != node and await self._objects.get("", "nodes", "", pool) is not None:
            raise forbidden(admission, f'node "{node}" cannot publish devices in the pool of the node "{pool}"')


def _node_of(pod: Document | None) -> str:
    return text(pod, "spec", "nodeName")


def _signers(pod: Document | None) -> Iterator[str]:
    """Who signs the certificates that the pod has in its volumes."""
    for volume in mappings(pod, "spec", "volumes"):
        for source in mappings(volume, "projected", "sources"):
            if certificate := mapping(source, "podCertificate"):
                yield text(certificate, "signerName")


def _beyond_capacity(claim: Document | None) -> Document:
    """A volume claim without what its node may report of it."""
    reported = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")
    status = {key: value for key, value in mapping(claim, "status").items() if key not in reported}
    versions = ("resourceVersion", "managedFields")
    metadata = {key: value for key, value in mapping(claim, "metadata").items() if key not in versions}
    return {**(claim or {}), "status": status, "metadata": metadata}


def _slice_node(found: Document | None) -> str:
    return text(found, "spec", "nodeName")


def _changed_restricted_labels(new: Document | None, old: Document | None) -> list[str]:
    after, before = labels_of(new), labels_of(old)
    changed = [key for key in after.keys() | before.keys() if after.get(key) != before.get(key)]
    return [key for key in changed if is_restricted_label(key, on_creation=False)]


def _references(spec: Document) -> Iterator[str]:
    """Kinds of API objects the pod would make its node read."""
    found = {plural for plural, _ in secrets_and_config_maps(msgspec.convert(spec, ReferencingPodSpec))}
    if text(spec, "serviceAccountName"):
        yield "serviceaccounts"
    yield from sorted(found, reverse=True)
    if spec.get("resourceClaims"):
        yield "resourceclaims"
    for volume in mappings(spec, "volumes"):
        yield from (words for kind, words in _READ_FOR_VOLUMES.items() if kind in volume)
        for source in mappings(volume, "projected", "sources"):
            yield from (words for kind, words in _READ_FOR_PROJECTIONS.items() if kind in source)


# What a volume makes its node read beside Secrets and ConfigMaps, in the words of the refusal.
_READ_FOR_VOLUMES = {
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_READ_FOR_PROJECTIONS = {
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}
