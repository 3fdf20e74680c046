"""Parts of volumes (`subPath`), found and held so that nothing that a container changes meanwhile leads out of the volume.

The kernel resolves the path below the volume and refuses every link that leaves it, in one step. What it found is mounted at a path of the agent's own,
and the runtime gets that path: links in the volume do not matter any more. An agent without root may not mount: the runtime gets the path that was found.
"""

import ctypes
import errno
import logging
import os
import platform
import shutil
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dray.atomic_files import make_folder
from dray.kubelet.errors import ContainerError

log = logging.getLogger(__name__)

CONFIG_ERROR = "CreateContainerConfigError"
# No volume has this name.
FOLDER = ".subpaths"
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 2, 8
_MS_BIND, _MNT_DETACH, _UMOUNT_NOFOLLOW = 4096, 2, 8
_NO_LONGER_A_MOUNT = (errno.EINVAL, errno.ENOENT)
_libc = ctypes.CDLL(None, use_errno=True)


def mounted_part(volume: Path, sub_path: str, point: Path) -> Path:
    """Mounts a part of a volume, made if it is not there, at `point`, in place of what was mounted there."""
    with _opened(volume, sub_path) as descriptor:
        _remove_mount(point)
        make_folder(point.parent, 0o755)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            point.mkdir(0o755)
        else:
            point.touch(0o644)
        if _libc.mount(
            f"/proc/self/fd/{descriptor}".encode(), os.fsencode(point), None, ctypes.c_ulong(_MS_BIND), None
        ):
            problem = _last_problem()
            _remove_mount(point)
            if problem.errno != errno.EPERM:
                raise ContainerError(CONFIG_ERROR, f'subPath "{sub_path}" cannot be mounted: {problem.strerror}')
            # Without root, containers are processes of the agent's own user: no link takes them where they could not go anyway.
            return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    return point


def remove_parts(pod_folder: Path) -> bool:
    """Takes the mounts below a pod's folder away; whether none is left, so that the folder can be removed."""
    for point in pod_folder.joinpath(FOLDER).glob("*/*"):
        try:
            _remove_mount(point)
        except OSError as problem:
            log.warning("%s is still mounted: %s", point, problem)
            return False
    shutil.rmtree(pod_folder / FOLDER, ignore_errors=True)
    return True


def _remove_mount(point: Path) -> None:
    """Never removes what is mounted: only an empty folder or a file that nothing is mounted at can go."""
    while _libc.umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        pass
    problem = _last_problem()
    if problem.errno not in _NO_LONGER_A_MOUNT and not (problem.errno == errno.EPERM and not os.path.ismount(point)):
        raise problem
    if point.is_dir():
        point.rmdir()
    else:
        point.unlink(missing_ok=True)


@contextmanager
def _opened(volume: Path, sub_path: str) -> Iterator[int]:
    """A descriptor of the part. Each step begins at the volume, so that links may lead to other parts of it."""
    root = os.open(volume, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    found = os.dup(root)
    try:
        path = ""
        for part in (each for each in sub_path.split("/") if each not in ("", ".")):
            path = os.path.join(path, part)
            try:
                below = _open_or_make(root, path, found, part)
            except OSError as problem:
                if problem.errno != errno.EXDEV:
                    raise
                path = _without_links(volume, path)
                below = _open_beneath(root, path)
            os.close(found)
            found = below
        yield found
    except OSError as problem:
        leaves = problem.errno in (errno.EXDEV, errno.ELOOP, errno.EAGAIN)
        text = "must not lead out of the volume" if leaves else f"cannot be opened: {problem.strerror}"
        raise ContainerError(CONFIG_ERROR, f'subPath "{sub_path}": {text}') from problem
    finally:
        os.close(found)
        os.close(root)


def _without_links(volume: Path, path: str) -> str:
    """The kernel refuses every absolute link, also one that names the volume itself: on the node it leads to where it says.

    A container may change the links meanwhile. What is found here is therefore opened below the volume like any other path.
    """
    found = Path(os.path.realpath(volume / path))
    base = Path(os.path.realpath(volume))
    if not found.is_relative_to(base):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return str(found.relative_to(base))


def _open_or_make(root: int, path: str, parent: int, name: str) -> int:
    try:
        return _open_beneath(root, path)
    except FileNotFoundError:
        # A link to nothing is there already, and stays refused.
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            log.debug("%s was made by somebody else, or is a link", path)
        return _open_beneath(root, path)


def _open_beneath(root: int, path: str) -> int:
    if platform.system() != "Linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    found = _libc.syscall(ctypes.c_long(_OPENAT2), root, os.fsencode(path), how, ctypes.c_size_t(len(how)))
    if found < 0:
        raise _last_problem()
    return int(found)


def _last_problem() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
