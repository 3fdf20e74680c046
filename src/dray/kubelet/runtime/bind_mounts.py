"""Mounts of local processes: which of them change something and can be made, and the command that makes them."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from dray.api.cdi import Mount
from dray.atomic_files import make_folder
from dray.kubelet.errors import start_error
from dray.kubelet.runtime.interface import ContainerSpec

log = logging.getLogger(__name__)

# Metadata files are mounted below this; other mount points must exist on the machine.
OWN_MOUNT_ROOT = "/var/run/kubernetes.io"


def volume_mounts(spec: ContainerSpec) -> list[Mount]:
    """A volume that the container cannot do without and that cannot be mounted fails its start."""
    for each in spec.volumes:
        if each.is_required and not (_may_mount() and _has_mount_point(each.mount_path)):
            raise start_error(
                f"volume {each.folder.name} cannot be mounted at {each.mount_path}: this needs root, unshare and a directory "
                f"that exists on this machine, or a path below {OWN_MOUNT_ROOT}"
            )
    return [Mount(str(each.folder), each.mount_path, ("ro",)) for each in spec.volumes]


def check_reachable(mounts: Iterable[Mount]) -> None:
    """Refuses a container that could not open what its devices put at its disposal.

    A pod with a user of its own sees the machine's files and may lack the permission to open them. A library that finds its
    daemon closed may go on without it: CUDA then ignores the limits of a share.
    """
    for mount in mounts:
        path = Path(mount.host_path)
        if mount.host_path == mount.container_path and not _is_open_to_all(path):
            raise start_error(
                f"a device needs {path}, which a pod with a user of its own cannot open; "
                "start the node agent with --isolation none"
            )


def _is_open_to_all(path: Path) -> bool:
    try:
        modes = [each.stat().st_mode for each in (path, *path.parents)]
    except OSError:
        return False
    may_read = bool(modes[0] & stat.S_IROTH) and (not stat.S_ISDIR(modes[0]) or bool(modes[0] & stat.S_IXOTH))
    return may_read and all(mode & stat.S_IXOTH for mode in modes[1:])


def usable_mounts(mounts: tuple[Mount, ...]) -> list[Mount]:
    """The mounts that change something and whose mount point exists or can be made."""
    # A process has the machine's files already: binding a path to itself would change nothing.
    mounts = tuple(mount for mount in mounts if mount.host_path != mount.container_path)
    usable = [mount for mount in mounts if _has_mount_point(mount.container_path)] if _may_mount() else []
    if len(usable) < len(mounts):
        log.info(
            "mounts %s are left out: they need root, unshare and an existing mount point",
            [mount.container_path for mount in mounts if mount not in usable],
        )
    if usable:
        make_folder(Path(OWN_MOUNT_ROOT), 0o755)
    return usable


def with_mounts(argv: list[str], usable: Sequence[Mount]) -> list[str]:
    """Bind mounts in a mount namespace of its own."""
    script = [f"mount -t tmpfs dray {OWN_MOUNT_ROOT}"]
    arguments: list[str] = []
    for mount in usable:
        arguments += [mount.host_path, mount.container_path]
        host, point = f"${{{len(arguments) - 1}}}", f"${{{len(arguments)}}}"
        make = f'if [ -d "{host}" ]; then mkdir -p "{point}"; else mkdir -p "$(dirname "{point}")"; [ -e "{point}" ] || : > "{point}"; fi'
        bind = f'mount --bind "{host}" "{point}"'
        read_only = f' && mount -o remount,ro,bind "{point}"' if "ro" in mount.options else ""
        script.append(f"{make}; {bind}{read_only}")
    script.append(f'shift {len(arguments)}; exec "$@"')
    return [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "/bin/sh",
        "-ec",
        "\n".join(script),
        "sh",
        *arguments,
        *argv,
    ]


def _may_mount() -> bool:
    return os.geteuid() == 0 and shutil.which("unshare") is not None


def _has_mount_point(path: str) -> bool:
    return os.path.normpath(path).startswith(f"{OWN_MOUNT_ROOT}/") or Path(path).exists()
