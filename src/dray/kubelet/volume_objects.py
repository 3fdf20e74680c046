"""ConfigMaps and Secrets that the volumes of a pod name: which they are, what they contain, and which of them are missing."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dray.api.core import KeyToPath, Pod, Volume, VolumeProjection
from dray.kubelet.environment import CONFIG_ERROR
from dray.kubelet.errors import ContainerError

DEFAULT_MODE = 0o644
# Admission adds it to every pod, beside the token of its service account. A controller may still be writing it for a new namespace.
ROOT_CERTIFICATE = "kube-root-ca.crt"

ReadDocument = Callable[[str, str, str], Awaitable[dict[str, Any] | None]]
"""The object of (kind, name, namespace); None if there is none."""


@dataclass(frozen=True, slots=True)
class VolumeObject:
    """A ConfigMap or Secret with the keys that a volume takes from it: all of them, where it lists none."""

    kind: str
    name: str
    items: Sequence[KeyToPath]
    default_mode: int | None
    is_optional: bool

    async def files(self, read: ReadDocument, namespace: str) -> dict[str, tuple[bytes, int]]:
        """Path to content and mode. ContainerError for an object or a key that is missing and not optional."""
        return dict(self._chosen(await self._data(read, namespace)))

    async def _data(self, read: ReadDocument, namespace: str) -> dict[str, bytes]:
        document = await read(self.kind, self.name, namespace)
        if document is None:
            if self.is_optional:
                return {}
            raise ContainerError(CONFIG_ERROR, f'{self.kind.lower()} "{self.name}" not found')
        return _decoded(self.kind, document)

    def _chosen(self, data: Mapping[str, bytes]) -> Iterator[tuple[str, tuple[bytes, int]]]:
        """All keys, or those that the volume lists, with the paths that it gives them."""
        shared = self.default_mode if self.default_mode is not None else DEFAULT_MODE
        if not self.items:
            yield from ((key, (content, shared)) for key, content in data.items())
        for item in self.items:
            if item.key in data:
                yield item.path, (data[item.key], item.mode if item.mode is not None else shared)
            elif not self.is_optional:
                text = f"{self.kind.lower()} {self.name} references non-existent key: {item.key}"
                raise ContainerError(CONFIG_ERROR, text)


def _decoded(kind: str, document: Mapping[str, Any]) -> dict[str, bytes]:
    encoded = "data" if kind == "Secret" else "binaryData"
    data = {key: base64.b64decode(value) for key, value in (document.get(encoded) or {}).items()}
    if kind == "ConfigMap":
        data |= {key: value.encode() for key, value in (document.get("data") or {}).items()}
    return data


def objects_of(volume: Volume) -> Iterator[VolumeObject]:
    """In the order of the volume's sources."""
    if volume.config_map is not None:
        own = volume.config_map
        yield VolumeObject("ConfigMap", own.name, own.items, own.default_mode, bool(own.optional))
    if volume.secret is not None:
        kept = volume.secret
        yield VolumeObject("Secret", kept.secret_name, kept.items, kept.default_mode, bool(kept.optional))
    if volume.projected is not None:
        for source in volume.projected.sources:
            yield from projected_objects(source, volume.projected.default_mode)


def projected_objects(source: VolumeProjection, default_mode: int | None) -> Iterator[VolumeObject]:
    """At most one of each kind."""
    for kind, chosen in (("ConfigMap", source.config_map), ("Secret", source.secret)):
        if chosen is not None:
            yield VolumeObject(kind, chosen.name, chosen.items, default_mode, bool(chosen.optional))


async def why_not_mounted(pod: Pod, read: ReadDocument) -> str:
    """What the first volume lacks that a container of the pod mounts, in the kubelet's words; empty if none lacks anything.

    It holds for runtimes, too, that give containers no such files: a pod waits for what it names wherever it runs.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    mounted = {mount.name for container in containers for mount in container.volume_mounts}
    for volume in pod.spec.volumes:
        for each in objects_of(volume) if volume.name in mounted else ():
            if each.name == ROOT_CERTIFICATE:
                continue
            try:
                await each.files(read, pod.metadata.namespace)
            except ContainerError as error:
                return f'MountVolume.SetUp failed for volume "{volume.name}" : {error}'
    return ""
