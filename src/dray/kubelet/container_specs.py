"""Turns a container of a pod into a spec that a runtime can start: environment, devices, volumes, cgroup values and log path.

The devices come from the pod's claims, as CDI names; CDI files on the node say which edits stand behind a name. Of volumes only those of the
downward API are served: their files are written when a container starts, and mounted into it.
"""

import asyncio
import base64
import contextlib
import logging
import shutil
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dray.accounting import (
    CgroupValues,
    ClaimCharge,
    Enforcement,
    QosClass,
    charges_in_status,
    container_cgroup,
    oom_score_adj,
    pod_cgroup,
    qos_class,
)
from dray.api import scheme
from dray.api.cdi import CdiError, CdiRegistry, CdiSpec, ContainerEdits, decode_spec, make_registry, spec_from_document
from dray.api.core import Container, DownwardAPIVolumeFile, Pod, Volume
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_claims import requests_of_container
from dray.api.quantity import Quantity
from dray.api.resource import Device, ResourceClaim
from dray.atomic_files import make_folder, private_folder
from dray.client import CLAIMS, ApiError, Client, ServerUnreachable
from dray.kubelet import sub_paths
from dray.kubelet.claims import ClaimCache, ClaimRefused, created_claims
from dray.kubelet.environment import EnvironmentSources, container_environment, downward_value, expand
from dray.kubelet.errors import ContainerError
from dray.kubelet.prepare import devices_of_container
from dray.kubelet.runtime.interface import ContainerSpec, VolumeFiles
from dray.kubelet.volume_objects import DEFAULT_MODE, why_not_mounted
from dray.kubelet.volumes import PodVolumes, inside, write_file


def downward_items(volume: Volume) -> Iterator[tuple[DownwardAPIVolumeFile, int]]:
    """The files that the volume describes, with their modes; those of other sources are left out."""
    if volume.downward_api is not None:
        for item in volume.downward_api.items:
            yield item, _mode(item, volume.downward_api.default_mode)
    if volume.projected is not None:
        for source in volume.projected.sources:
            for item in source.downward_api.items if source.downward_api is not None else ():
                yield item, _mode(item, volume.projected.default_mode)


def _mode(item: DownwardAPIVolumeFile, default_mode: int | None) -> int:
    return next((mode for mode in (item.mode, default_mode) if mode is not None), DEFAULT_MODE)


def mounted_volumes(pod: Pod, container: Container) -> list[tuple[Volume, str]]:
    """Volumes with files of the downward API that the container mounts, and where it mounts them."""
    by_name = {each.name: each for each in pod.spec.volumes if any(downward_items(each))}
    return [(by_name[mount.name], mount.mount_path) for mount in container.volume_mounts if mount.name in by_name]


def refers_to_devices(volume: Volume) -> bool:
    return any(item.resource_slice_attribute_ref is not None for item, _ in downward_items(volume))


class VolumeFolders:
    """The files of volumes on this node, below one folder per pod."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, pod: Pod, container: Container, sources: EnvironmentSources) -> tuple[VolumeFiles, ...]:
        """Writes the files of the container's volumes anew, so that a restart sees values as they are then."""
        return tuple(
            VolumeFiles(self._write_volume(pod, container, volume, sources), path, refers_to_devices(volume))
            for volume, path in mounted_volumes(pod, container)
        )

    def _write_volume(self, pod: Pod, container: Container, volume: Volume, sources: EnvironmentSources) -> Path:
        # Containers may run as another user: they see the volume, and nothing beside it.
        private_folder(self._root)
        folder = self._root / pod.metadata.uid / volume.name
        make_folder(folder, 0o755)
        for item, mode in downward_items(volume):
            value = downward_value(pod, container, item, sources)
            if value is not None:
                write_file(inside(folder, item.path), value.encode(), mode)
        return folder

    def remove(self, pod_uid: str) -> None:
        folder = self._root / pod_uid
        # What is mounted below the folder is not ours to remove.
        if not (folder / sub_paths.FOLDER).is_dir() or sub_paths.remove_parts(folder):
            shutil.rmtree(folder, ignore_errors=True)

    def pod_uids(self) -> set[str]:
        return {path.name for path in self._root.iterdir()} if self._root.is_dir() else set()


log = logging.getLogger(__name__)

LookUpDevice = Callable[[str, str, str], Awaitable[Device | None]]
"""The published device of (driver, pool, name), or None."""


def requests_of_created_claims(pod: Pod, container: Container) -> list[tuple[str, str]]:
    """(claim name, request) pairs that the container uses. ClaimRefused while a claim still has to be created."""
    created_claims(pod)
    return requests_of_container(pod, container)


def cdi_device_ids(pod: Pod, container: Container, cache: ClaimCache) -> tuple[str, ...]:
    """CDI names for the container, in the order of its claims."""
    try:
        devices = devices_of_container(cache, pod.metadata.namespace, requests_of_created_claims(pod, container))
    except ClaimRefused as error:
        raise ContainerError("CreateContainerConfigError", str(error)) from error
    return tuple(name for _, _, device in devices for name in device.cdi_device_ids)


class CdiDirectories:
    """CDI files of this machine, read when a container starts: drivers write them just before."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._seen: dict[Path, tuple[int, CdiSpec | None]] = {}

    def edits_for(self, names: Iterable[str]) -> ContainerEdits:
        names = tuple(names)
        if not names:
            return ContainerEdits()
        try:
            return self.registry().edits_for(names)
        except CdiError as error:
            raise ContainerError("CreateContainerError", str(error)) from error

    def registry(self) -> CdiRegistry:
        return make_registry([list(self._specs_in(directory)) for directory in self._directories])

    def _specs_in(self, directory: Path) -> Iterable[CdiSpec]:
        if not directory.is_dir():
            return
        paths = sorted(directory.iterdir())
        gone = {path for path in self._seen if path.parent == directory}.difference(paths)
        for path in gone:
            del self._seen[path]
        for path in paths:
            if path.suffix in (".json", ".yaml") and not path.name.startswith("."):
                spec = self._spec(path)
                if spec is not None:
                    yield spec

    def _spec(self, path: Path) -> CdiSpec | None:
        """The spec of one file, parsed once per version of it; a broken file is reported and left out."""
        version = -1
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                return None
            version = status.st_mtime_ns
            known = self._seen.get(path)
            if known is not None and known[0] == version:
                return known[1]
            spec = _read(path)
        except FileNotFoundError:
            return None
        except (
            OSError,
            ValueError,
            yaml.YAMLError,
            RecursionError,
        ) as error:  # CdiError and all of Unicode's are values
            log.warning("CDI file %s is left out: %s", path, error)
            spec = None
        self._seen[path] = (version, spec)
        return spec


def _read(path: Path) -> CdiSpec:
    if path.suffix == ".json":
        return decode_spec(path.read_bytes())
    return spec_from_document(yaml.safe_load(path.read_text()))


class ContainerSpecs:
    """Makes container specs for one node."""

    def __init__(
        self,
        client: Client,
        cache: ClaimCache,
        cdi: CdiDirectories | None,
        log_root: Path,
        volume_root: Path,
        look_up_device: LookUpDevice,
        *,
        host_ip: str = "",
        allocatable: Mapping[str, Quantity] | None = None,
        claims_enabled: bool = True,
        device_attributes_enabled: bool = True,
        enforcement: Enforcement = Enforcement.KEP,
        counts_claims: bool = True,
        serves_volumes: bool = False,
    ) -> None:
        self._client = client
        self._cache = cache
        self._cdi = cdi
        self._log_root = log_root
        self.volumes = VolumeFolders(volume_root)
        # All kinds of volumes, for containers with a file system of their own; else files of the downward API only.
        self._pod_volumes = PodVolumes(client, volume_root, self._document) if serves_volumes else None
        self._look_up_device = look_up_device
        self._sources = EnvironmentSources(
            host_ip=host_ip,
            pod_ip=host_ip,
            node_allocatable=allocatable or {},
            device_attributes_enabled=claims_enabled and device_attributes_enabled,
        )
        self._claims_enabled = claims_enabled
        self._enforcement = enforcement
        # What claims take of the node: as the pod's status says, or nothing.
        self._charges: tuple[ClaimCharge, ...] | None = None if counts_claims else ()

    def pod_cgroup(self, pod: Pod) -> CgroupValues:
        sizes = [
            name.removeprefix("hugepages-") for name in self._sources.node_allocatable if name.startswith("hugepages-")
        ]
        return pod_cgroup(pod, self._enforcement, self._charges, page_sizes=sizes)

    def forget(self, pod_uid: str) -> None:
        """Removes the files of a pod that has left."""
        if self._pod_volumes is not None:
            self._pod_volumes.forget(pod_uid)
        self.volumes.remove(pod_uid)

    def charges_of(self, pod: Pod) -> Sequence[ClaimCharge]:
        """What the pod's claims bring along, as far as this node counts it."""
        if self._charges is not None or self._enforcement is Enforcement.KUBERNETES:
            return ()
        return charges_in_status(pod.status.node_allocatable_resource_claim_statuses)

    def qos_class(self, pod: Pod) -> QosClass:
        return qos_class(pod, self._enforcement, self._charges)

    async def of(self, pod: Pod, container: Container, attempt: int, pod_ip: str = "") -> ContainerSpec:
        """Everything resolved now: a container that restarts sees values as they are then."""
        names = cdi_device_ids(pod, container, self._cache) if self._claims_enabled else ()
        # Without directories it is the runtime that knows what is behind the names.
        edits = self._cdi.edits_for(names) if self._cdi is not None else ContainerEdits()
        sources = await self._sources_for(pod, container, pod_ip)
        environment = container_environment(pod, container, sources)
        volumes = await self._write_volumes(pod, container, sources)
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
            volumes=volumes,
            cgroup=container_cgroup(pod, container, self._enforcement, self._charges),
            oom_score_adj=self._oom_score_adj(pod, container),
            stdin=container.stdin,
            stdin_once=container.stdin_once,
            tty=container.tty,
            target_container=_target_of(pod, container),
            termination_message_path=container.termination_message_path,
            termination_message_policy=container.termination_message_policy,
        )

    async def _write_volumes(
        self, pod: Pod, container: Container, sources: EnvironmentSources
    ) -> tuple[VolumeFiles, ...]:
        if self._pod_volumes is not None:
            return await self._pod_volumes.mounts(pod, container, sources)
        # Most containers have no such volume, and start without the detour over a thread.
        if not mounted_volumes(pod, container):
            return ()
        return await asyncio.to_thread(self.volumes.write, pod, container, sources)

    def _oom_score_adj(self, pod: Pod, container: Container) -> int:
        memory = self._sources.node_allocatable.get("memory")
        return oom_score_adj(pod, container, memory.value() if memory else 0, self._enforcement, self._charges)

    async def _sources_for(self, pod: Pod, container: Container, pod_ip: str) -> EnvironmentSources:
        config_maps, secrets = _references(container)
        namespace = pod.metadata.namespace
        claims = await self._claims(pod) if self._needs_claims(pod, container) else {}
        devices = await self._devices_of(claims.values())
        return replace(
            self._sources,
            pod_ip=pod_ip or self._sources.pod_ip,
            config_maps=await self._key_values("ConfigMap", config_maps, namespace),
            secrets=await self._key_values("Secret", secrets, namespace),
            claims=claims,
            find_device=lambda driver, pool, name: devices.get((driver, pool, name)),
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

    async def why_not_mounted(self, pod: Pod) -> str:
        """What a volume of the pod lacks; empty if none lacks anything."""
        return await why_not_mounted(pod, self._document)

    async def remember_claims(self, pod: Pod) -> None:
        """Reads the claims that the pod's containers refer to, unless they are known: a restart may come without the API."""
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        if any(self._needs_claims(pod, each) for each in containers):
            with contextlib.suppress(ContainerError):
                await self._claims(pod)

    def _needs_claims(self, pod: Pod, container: Container) -> bool:
        """Whether a variable or a file of the container refers to an attribute of a device."""
        sources = [each.value_from for each in container.env if each.value_from is not None]
        return self._sources.device_attributes_enabled and (
            any(each.resource_slice_attribute_ref for each in sources)
            or any(refers_to_devices(volume) for volume, _ in mounted_volumes(pod, container))
        )

    async def _claims(self, pod: Pod) -> dict[str, ResourceClaim]:
        """The pod's claims by their entry in its spec: as they were prepared, or from the API after a restart."""
        claims: dict[str, ResourceClaim] = {}
        try:
            for each in created_claims(pod):
                if each.entry:
                    claims[each.entry] = await self._claim(pod.metadata.namespace, each.claim_name)
        except (ApiError, ServerUnreachable, ClaimRefused) as error:
            raise ContainerError("CreateContainerConfigError", str(error)) from error
        return claims

    async def _claim(self, namespace: str, name: str) -> ResourceClaim:
        known = self._cache.get(f"{namespace}/{name}")
        if known is not None and known.claim is not None:
            return known.claim
        claim = await self._client.get(CLAIMS, name, namespace)
        self._cache.remember(claim)
        return claim

    async def _devices_of(self, claims: Iterable[ResourceClaim]) -> dict[tuple[str, str, str], Device]:
        found: dict[tuple[str, str, str], Device] = {}
        for result in (result for claim in claims for result in allocation_results(claim)):
            key = (result.driver, result.pool, result.device)
            device = await self._look_up_device(*key)
            if device is not None:
                found[key] = device
        return found


def _target_of(pod: Pod, container: Container) -> str:
    found = (each.target_container_name for each in pod.spec.ephemeral_containers if each.name == container.name)
    return next(found, "")


def log_path(root: Path, pod: Pod, container: str, attempt: int) -> Path:
    """Where the node keeps a container's output, by the kubelet's convention."""
    metadata = pod.metadata
    return root / f"{metadata.namespace}_{metadata.name}_{metadata.uid}" / container / f"{attempt}.log"


def _references(container: Container) -> tuple[set[str], set[str]]:
    """Config maps and secrets that the environment names."""
    config_maps = {each.config_map_ref.name for each in container.env_from if each.config_map_ref}
    secrets = {each.secret_ref.name for each in container.env_from if each.secret_ref}
    sources = [each.value_from for each in container.env if each.value_from is not None]
    config_maps |= {each.config_map_key_ref.name for each in sources if each.config_map_key_ref}
    secrets |= {each.secret_key_ref.name for each in sources if each.secret_key_ref}
    return config_maps, secrets


def _plain_values(kind: str, document: Mapping[str, Any]) -> Mapping[str, str]:
    data: Mapping[str, str] = document.get("data") or {}
    if kind == "ConfigMap":
        return data
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}
