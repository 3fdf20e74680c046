"""Volumes of pods in real containers: empty folders, folders of the node, ConfigMaps, Secrets, tokens and the downward API as files.

A container mounts them through its runtime. Files are written when a container starts, so that a restart sees values as they are then;
tokens are renewed before they end.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dray.api import scheme
from dray.api.core import Container, HostPathVolumeSource, Pod, ServiceAccountTokenProjection, Volume
from dray.atomic_files import make_folder, private_folder
from dray.client import ApiError, Client, ServerUnreachable
from dray.kubelet import sub_paths
from dray.kubelet.environment import CONFIG_ERROR, EnvironmentSources, downward_value
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.interface import VolumeFiles
from dray.kubelet.volume_objects import DEFAULT_MODE, ReadDocument, VolumeObject, objects_of, projected_objects

log = logging.getLogger(__name__)

TOKEN_S = 3600
# As a kubelet: a token is renewed when four fifths of its time are over.
RENEW_AT = 0.8
RENEW_RETRY_S = 30.0


class PodVolumes:
    """The volumes of this node's pods, below one folder for each pod."""

    def __init__(self, client: Client, root: Path, read: ReadDocument) -> None:
        self._client = client
        self._root = root
        self._read = read
        self._renewals: dict[tuple[str, Path], asyncio.Task[None]] = {}

    async def mounts(self, pod: Pod, container: Container, sources: EnvironmentSources) -> tuple[VolumeFiles, ...]:
        volumes = {each.name: each for each in pod.spec.volumes}
        found = []
        for number, mount in enumerate(container.volume_mounts):
            path = await self._path(pod, container, volumes[mount.name], sources)
            if mount.sub_path:
                # As a kubelet, so that a container that starts again finds the same part.
                point = self._root / pod.metadata.uid / sub_paths.FOLDER / container.name / str(number)
                path = await asyncio.to_thread(
                    sub_paths.mounted_part, path, checked_path(mount.sub_path, "subPath"), point
                )
            is_writable = volumes[mount.name].empty_dir is not None or volumes[mount.name].host_path is not None
            found.append(
                VolumeFiles(path, mount.mount_path, is_required=True, is_read_only=mount.read_only or not is_writable)
            )
        return tuple(found)

    def forget(self, pod_uid: str) -> None:
        """Stops renewing the tokens of a pod that has left."""
        for key in [key for key in self._renewals if key[0] == pod_uid]:
            self._renewals.pop(key).cancel()

    async def _path(self, pod: Pod, container: Container, volume: Volume, sources: EnvironmentSources) -> Path:
        if volume.host_path is not None:
            return await asyncio.to_thread(host_path, volume.host_path, volume.name)
        folder = self._root / pod.metadata.uid / volume.name
        group = pod.spec.security_context.fs_group if pod.spec.security_context is not None else None
        if volume.empty_dir is not None:
            await asyncio.to_thread(self._make, folder, 0o777, group)
            return folder
        files = await self._files(pod, container, volume, sources, folder)
        await asyncio.to_thread(self._write, folder, files, group)
        return folder

    def _make(self, folder: Path, mode: int, group: int | None) -> None:
        private_folder(self._root)
        make_folder(folder, mode)
        folder.chmod(mode)
        if group is not None:
            os.chown(folder, -1, group)
            folder.chmod(mode | stat.S_ISGID)

    def _write(self, folder: Path, files: Mapping[str, tuple[bytes, int]], group: int | None) -> None:
        self._make(folder, 0o755, group)
        for path, (content, mode) in files.items():
            write_file(inside(folder, path), content, mode if group is None else mode | 0o040, group)

    # --- contents

    async def _files(
        self, pod: Pod, container: Container, volume: Volume, sources: EnvironmentSources, folder: Path
    ) -> dict[str, tuple[bytes, int]]:
        """Path to content and mode."""
        namespace = pod.metadata.namespace
        if volume.config_map is not None or volume.secret is not None:
            return await self._files_of_objects(objects_of(volume), namespace)
        if volume.downward_api is not None:
            items = volume.downward_api.items
            return dict(_downward(pod, container, items, volume.downward_api.default_mode, sources))
        if volume.projected is not None:
            return await self._projected(pod, container, volume, sources, folder)
        text = f'volume "{volume.name}" is of a type that this node agent does not serve'
        raise ContainerError(CONFIG_ERROR, text)

    async def _projected(
        self, pod: Pod, container: Container, volume: Volume, sources: EnvironmentSources, folder: Path
    ) -> dict[str, tuple[bytes, int]]:
        assert volume.projected is not None
        mode, namespace = volume.projected.default_mode, pod.metadata.namespace
        files: dict[str, tuple[bytes, int]] = {}
        for source in volume.projected.sources:
            files |= await self._files_of_objects(projected_objects(source, mode), namespace)
            if source.downward_api is not None:
                files |= dict(_downward(pod, container, source.downward_api.items, mode, sources))
            if source.service_account_token is not None:
                wanted = source.service_account_token
                token = await self._token(pod, wanted)
                files[wanted.path] = (token.encode(), mode if mode is not None else DEFAULT_MODE)
                self._renew(pod, wanted, inside(folder, wanted.path))
        return files

    async def _files_of_objects(self, objects: Iterable[VolumeObject], namespace: str) -> dict[str, tuple[bytes, int]]:
        files: dict[str, tuple[bytes, int]] = {}
        for each in objects:
            files |= await each.files(self._read, namespace)
        return files

    # --- tokens

    async def _token(self, pod: Pod, wanted: ServiceAccountTokenProjection) -> str:
        metadata = pod.metadata
        account = pod.spec.service_account_name or "default"
        path = scheme.by_kind("ServiceAccount", "").path(metadata.namespace, account, "token")
        spec = {
            "audiences": [wanted.audience] if wanted.audience else [],
            "expirationSeconds": wanted.expiration_seconds or TOKEN_S,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid},
        }
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        try:
            answer = await self._client.raw("POST", path, body=msgspec.json.encode(body))
        except (ApiError, ServerUnreachable) as error:
            raise ContainerError(CONFIG_ERROR, f"token of service account {account}: {error}") from error
        token: str = msgspec.json.decode(answer.body)["status"]["token"]
        return token

    def _renew(self, pod: Pod, wanted: ServiceAccountTokenProjection, path: Path) -> None:
        key = pod.metadata.uid, path
        if key not in self._renewals:
            self._renewals[key] = asyncio.create_task(self._keep_renewed(pod, wanted, path), name=f"token {path}")

    async def _keep_renewed(self, pod: Pod, wanted: ServiceAccountTokenProjection, path: Path) -> None:
        wait_s = RENEW_AT * (wanted.expiration_seconds or TOKEN_S)
        while True:
            await self._client.clock.sleep(wait_s)
            try:
                token = await self._token(pod, wanted)
                status = await asyncio.to_thread(path.stat)
                await asyncio.to_thread(write_file, path, token.encode(), stat.S_IMODE(status.st_mode), status.st_gid)
            except (ContainerError, OSError) as error:
                log.warning("pod %s: its token could not be renewed: %s", pod.metadata.name, error)
                wait_s = RENEW_RETRY_S
            else:
                wait_s = RENEW_AT * (wanted.expiration_seconds or TOKEN_S)


def _downward(
    pod: Pod, container: Container, items: Sequence[Any], mode: int | None, sources: EnvironmentSources
) -> Iterator[tuple[str, tuple[bytes, int]]]:
    for item in items:
        value = downward_value(pod, container, item, sources)
        if value is not None:
            own = item.mode if item.mode is not None else mode
            yield item.path, (value.encode(), own if own is not None else DEFAULT_MODE)


_CHECKS: dict[str, tuple[Callable[[Path], bool], str]] = {
    "Directory": (Path.is_dir, "is not a directory"),
    "File": (Path.is_file, "is not a file"),
    "Socket": (Path.is_socket, "is not a socket file"),
    "CharDevice": (Path.is_char_device, "is not a character device"),
    "BlockDevice": (Path.is_block_device, "is not a block device"),
}


def host_path(source: HostPathVolumeSource, volume: str) -> Path:
    """The path on the node, made if the volume says so."""
    path, wanted = Path(source.path), source.type or ""
    if wanted == "DirectoryOrCreate" and not path.exists():
        path.mkdir(0o755, parents=True)
    if wanted == "FileOrCreate" and not path.exists():
        path.touch(0o644)
    check = _CHECKS.get(wanted.removesuffix("OrCreate"))
    if check is not None and not check[0](path):
        raise ContainerError(CONFIG_ERROR, f'hostPath of volume "{volume}": {path} {check[1]}')
    return path


def checked_path(path: str, what: str) -> str:
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ContainerError(CONFIG_ERROR, f'{what} "{path}": must be a relative path without ".."')
    return path


def inside(folder: Path, path: str) -> Path:
    return folder / checked_path(path, "volume item path")


def write_file(path: Path, content: bytes, mode: int, group: int | None = None) -> None:
    """A reader sees the old content or the new one, nothing between."""
    make_folder(path.parent, 0o755)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(content)
    # Content of somebody's own must not become a program that runs as the agent's user.
    fresh.chmod(mode & 0o777)
    if group is not None:
        os.chown(fresh, -1, group)
    os.replace(fresh, path)
