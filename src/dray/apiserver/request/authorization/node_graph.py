"""What each node needs to see: the claims, secrets, config maps and service accounts of the pods bound to it."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from dray.apiserver.watch.stored_object import resource_prefix

# (plural, namespace, name)
Reference = tuple[str, str, str]

PODS = resource_prefix("", "pods")
SLICES = resource_prefix("resource.k8s.io", "resourceslices")


class _Named(msgspec.Struct):
    name: str = ""


class _PodClaim(msgspec.Struct, rename="camel"):
    resource_claim_name: str | None = None


class _KeyRef(msgspec.Struct, rename="camel"):
    config_map_key_ref: _Named | None = None
    secret_key_ref: _Named | None = None


class _Env(msgspec.Struct, rename="camel"):
    value_from: _KeyRef | None = None


class _EnvFrom(msgspec.Struct, rename="camel"):
    config_map_ref: _Named | None = None
    secret_ref: _Named | None = None


class _Container(msgspec.Struct, rename="camel"):
    env: list[_Env] | None = None
    env_from: list[_EnvFrom] | None = None


class _SecretVolume(msgspec.Struct, rename="camel"):
    secret_name: str = ""


class _ProjectedSource(msgspec.Struct, rename="camel"):
    secret: _Named | None = None
    config_map: _Named | None = None


class _Projected(msgspec.Struct):
    sources: list[_ProjectedSource] | None = None


class _Volume(msgspec.Struct, rename="camel"):
    secret: _SecretVolume | None = None
    config_map: _Named | None = None
    projected: _Projected | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    service_account_name: str = ""
    resource_claims: list[_PodClaim] | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None
    image_pull_secrets: list[_Named] | None = None
    volumes: list[_Volume] | None = None


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    resource_claim_statuses: list[_PodClaim] | None = None
    extended_resource_claim_status: _PodClaim | None = None


class _Pod(msgspec.Struct):
    spec: _PodSpec
    status: _PodStatus | None = None


class _SliceSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Slice(msgspec.Struct):
    spec: _SliceSpec


_pods = msgspec.json.Decoder(_Pod)
_slices = msgspec.json.Decoder(_Slice)


class NodeGraph:
    """Fed with pods and slices from the store; answers whether a node has anything to do with an object."""

    def __init__(self) -> None:
        self._references_by_node: dict[str, Counter[Reference]] = {}
        self._by_pod: dict[str, tuple[str, tuple[Reference, ...]]] = {}
        self._node_by_slice: dict[str, str] = {}

    def apply_pod(self, key: str, value: bytes | None) -> None:
        node, references = self._by_pod.pop(key, ("", ()))
        if node:
            counts = self._references_by_node[node]
            counts.subtract(references)
            for reference in references:
                if counts[reference] <= 0:
                    del counts[reference]
        if value is None:
            return
        pod = _pods.decode(value)
        if not pod.spec.node_name:
            return
        namespace, _, name = key.removeprefix(PODS).partition("/")
        found = (("pods", namespace, name), *dict.fromkeys(_references(pod, namespace)))
        self._by_pod[key] = pod.spec.node_name, found
        self._references_by_node.setdefault(pod.spec.node_name, Counter()).update(found)

    def apply_slice(self, key: str, value: bytes | None) -> None:
        name = key.removeprefix(SLICES)
        if value is None:
            self._node_by_slice.pop(name, None)
        else:
            self._node_by_slice[name] = _slices.decode(value).spec.node_name

    def refers(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """Whether a pod bound to the node (or the pod itself) is, or uses, this object."""
        counts = self._references_by_node.get(node)
        return counts is not None and counts[plural, namespace, name] > 0

    def node_of_slice(self, name: str) -> str | None:
        """None if there is no such slice; empty if it belongs to no single node."""
        return self._node_by_slice.get(name)


def _references(pod: _Pod, namespace: str) -> Iterator[Reference]:
    spec, status = pod.spec, pod.status or _PodStatus()
    yield "serviceaccounts", namespace, spec.service_account_name or "default"
    claims = [*(spec.resource_claims or ()), *(status.resource_claim_statuses or ())]
    if status.extended_resource_claim_status:
        claims.append(status.extended_resource_claim_status)
    for claim in claims:
        if claim.resource_claim_name:
            yield "resourceclaims", namespace, claim.resource_claim_name
    for plural, name in _mounted(spec):
        if name:
            yield plural, namespace, name


def _mounted(spec: _PodSpec) -> Iterator[tuple[str, str]]:
    for pull in spec.image_pull_secrets or ():
        yield "secrets", pull.name
    for container in (*(spec.containers or ()), *(spec.init_containers or ()), *(spec.ephemeral_containers or ())):
        for source in container.env_from or ():
            yield "configmaps", source.config_map_ref.name if source.config_map_ref else ""
            yield "secrets", source.secret_ref.name if source.secret_ref else ""
        for variable in container.env or ():
            origin = variable.value_from or _KeyRef()
            yield "configmaps", origin.config_map_key_ref.name if origin.config_map_key_ref else ""
            yield "secrets", origin.secret_key_ref.name if origin.secret_key_ref else ""
    for volume in spec.volumes or ():
        yield "secrets", volume.secret.secret_name if volume.secret else ""
        yield "configmaps", volume.config_map.name if volume.config_map else ""
        for projected in (volume.projected.sources if volume.projected else None) or ():
            yield "secrets", projected.secret.name if projected.secret else ""
            yield "configmaps", projected.config_map.name if projected.config_map else ""
