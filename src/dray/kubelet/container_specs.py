"""Turns a container of a pod into a spec that a runtime can start: environment, devices, cgroup values and log path."""

import base64
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from dray.accounting import CgroupValues, ClaimCharge, Enforcement, container_cgroup, oom_score_adj, pod_cgroup
from dray.api import scheme
from dray.api.cdi import ContainerEdits
from dray.api.core import Container, Pod
from dray.api.quantity import Quantity
from dray.api.resource import ResourceClaim
from dray.client import CLAIMS, ApiError, Client, ServerUnreachable
from dray.kubelet.claims import ClaimCache, ClaimRefused, created_claims
from dray.kubelet.container_devices import CdiDirectories, cdi_device_ids
from dray.kubelet.environment import EnvironmentSources, FindDevice, container_environment, expand
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.interface import ContainerSpec


class ContainerSpecs:
    """Makes container specs for one node."""

    def __init__(
        self,
        client: Client,
        cache: ClaimCache,
        cdi: CdiDirectories | None,
        log_root: Path,
        find_device: FindDevice,
        *,
        host_ip: str = "",
        allocatable: Mapping[str, Quantity] | None = None,
        device_attributes_enabled: bool = True,
        enforcement: Enforcement = Enforcement.KEP,
        counts_claims: bool = True,
    ) -> None:
        self._client = client
        self._cache = cache
        self._cdi = cdi
        self._log_root = log_root
        self._sources = EnvironmentSources(
            find_device=find_device,
            host_ip=host_ip,
            pod_ip=host_ip,
            node_allocatable=allocatable or {},
            device_attributes_enabled=device_attributes_enabled,
        )
        self._enforcement = enforcement
        # What claims take of the node: as the pod's status says, or nothing.
        self._charges: tuple[ClaimCharge, ...] | None = None if counts_claims else ()

    def pod_cgroup(self, pod: Pod) -> CgroupValues:
        sizes = [
            name.removeprefix("hugepages-") for name in self._sources.node_allocatable if name.startswith("hugepages-")
        ]
        return pod_cgroup(pod, self._enforcement, self._charges, page_sizes=sizes)

    async def of(self, pod: Pod, container: Container, attempt: int, pod_ip: str = "") -> ContainerSpec:
        """Everything resolved now: a container that restarts sees values as they are then."""
        names = cdi_device_ids(pod, container, self._cache)
        # Without directories it is the runtime that knows what is behind the names.
        edits = self._cdi.edits_for(names) if self._cdi is not None else ContainerEdits()
        sources = await self._sources_for(pod, container, pod_ip)
        environment = container_environment(pod, container, sources)
        return ContainerSpec(
            name=container.name,
            image=container.image,
            command=tuple(expand(each, environment) for each in container.command),
            args=tuple(expand(each, environment) for each in container.args),
            working_dir=container.working_dir,
            env=environment,
            cdi_device_ids=names,
            edits=edits,
            log_path=log_path(self._log_root, pod, container.name, attempt),
            attempt=attempt,
            cgroup=container_cgroup(pod, container, self._enforcement, self._charges),
            oom_score_adj=self._oom_score_adj(pod, container),
        )

    def _oom_score_adj(self, pod: Pod, container: Container) -> int:
        memory = self._sources.node_allocatable.get("memory")
        return oom_score_adj(pod, container, memory.value() if memory else 0, self._enforcement, self._charges)

    async def _sources_for(self, pod: Pod, container: Container, pod_ip: str) -> EnvironmentSources:
        config_maps, secrets, needs_claims = _references(container)
        namespace = pod.metadata.namespace
        return replace(
            self._sources,
            pod_ip=pod_ip or self._sources.pod_ip,
            config_maps=await self._key_values("ConfigMap", config_maps, namespace),
            secrets=await self._key_values("Secret", secrets, namespace),
            claims=await self._claims(pod) if needs_claims else {},
        )

    async def _key_values(self, kind: str, names: set[str], namespace: str) -> dict[str, Mapping[str, str]]:
        found: dict[str, Mapping[str, str]] = {}
        for name in names:
            document = await self._document(kind, name, namespace)
            if document is not None:
                found[name] = _plain_values(kind, document)
        return found

    async def _document(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        path = scheme.by_kind(kind, "").path(namespace, name)
        try:
            answer = await self._client.raw("GET", path)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise ContainerError("CreateContainerConfigError", str(error)) from error
        except ServerUnreachable as error:
            raise ContainerError("CreateContainerConfigError", str(error)) from error
        document: dict[str, Any] = msgspec.json.decode(answer.body)
        return document

    async def _claims(self, pod: Pod) -> dict[str, ResourceClaim]:
        claims: dict[str, ResourceClaim] = {}
        try:
            for each in created_claims(pod):
                if each.entry:
                    claims[each.entry] = await self._client.get(CLAIMS, each.claim_name, pod.metadata.namespace)
        except (ApiError, ServerUnreachable, ClaimRefused) as error:
            raise ContainerError("CreateContainerConfigError", str(error)) from error
        return claims


def log_path(root: Path, pod: Pod, container: str, attempt: int) -> Path:
    """Where the node keeps a container's output, by the kubelet's convention."""
    metadata = pod.metadata
    return root / f"{metadata.namespace}_{metadata.name}_{metadata.uid}" / container / f"{attempt}.log"


def _references(container: Container) -> tuple[set[str], set[str], bool]:
    """Config maps and secrets that the environment names, and whether it names claims."""
    config_maps = {each.config_map_ref.name for each in container.env_from if each.config_map_ref}
    secrets = {each.secret_ref.name for each in container.env_from if each.secret_ref}
    sources = [each.value_from for each in container.env if each.value_from is not None]
    config_maps |= {each.config_map_key_ref.name for each in sources if each.config_map_key_ref}
    secrets |= {each.secret_key_ref.name for each in sources if each.secret_key_ref}
    return config_maps, secrets, any(each.resource_slice_attribute_ref for each in sources)


def _plain_values(kind: str, document: Mapping[str, Any]) -> Mapping[str, str]:
    data: Mapping[str, str] = document.get("data") or {}
    if kind == "ConfigMap":
        return data
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}
