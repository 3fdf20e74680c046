"""Downward API volumes: their files are written when a container starts, and mounted into it. No other volumes are served."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from dray.api.core import Container, DownwardAPIVolumeFile, Pod, Volume
from dray.kubelet.environment import CONFIG_ERROR, EnvironmentSources, downward_value
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.interface import VolumeFiles

DEFAULT_MODE = 0o644


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
        folder = self._root / pod.metadata.uid / volume.name
        folder.mkdir(parents=True, exist_ok=True)
        for item, mode in downward_items(volume):
            value = downward_value(pod, container, item, sources)
            if value is not None:
                _write_file(_inside(folder, item.path), value, mode)
        return folder

    def remove(self, pod_uid: str) -> None:
        shutil.rmtree(self._root / pod_uid, ignore_errors=True)

    def pod_uids(self) -> set[str]:
        return {path.name for path in self._root.iterdir()} if self._root.is_dir() else set()


def _inside(folder: Path, path: str) -> Path:
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ContainerError(CONFIG_ERROR, f'volume item path "{path}": must be a relative path without ".."')
    return folder / path


def _write_file(path: Path, content: str, mode: int) -> None:
    """A reader sees the old content or the new one, nothing between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(content)
    fresh.chmod(mode)
    os.replace(fresh, path)
