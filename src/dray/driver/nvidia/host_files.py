"""What a container needs of the host to use a card: device nodes, the driver's libraries and programs, hooks if present."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dray.api.cdi import ContainerEdits, DeviceNode, Hook, Mount

DRIVER_ROOTS = ("/", "/run/nvidia/driver", "/usr/local/nvidia")
_LIBRARY_DIRS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib64",
    "lib",
)
_PROGRAM_DIRS = ("usr/bin", "usr/sbin", "usr/local/bin", "bin", "sbin")
_LIBRARIES = (
    "libcuda.so*",
    "libcudadebugger.so*",
    "libnvidia-ml.so*",
    "libnvidia-ptxjitcompiler.so*",
    "libnvidia-nvvm*.so*",
    "libnvidia-gpucomp.so*",
    "libnvidia-opencl.so*",
    "libnvcuvid.so*",
    "libnvidia-encode.so*",
    "libnvidia-opticalflow.so*",
)
_PROGRAMS = ("nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
_COMMON_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_LINKER_DIRS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
HOOK_PROGRAM = "nvidia-cdi-hook"


@dataclass(frozen=True, slots=True)
class HostFiles:
    """The driver's files below one root, found once."""

    libraries: tuple[Path, ...] = ()
    programs: tuple[Path, ...] = ()
    hook: Path | None = None

    def program(self, name: str) -> Path | None:
        return next((path for path in self.programs if path.name == name), None)

    def edits(self) -> ContainerEdits:
        """Libraries and programs appear in the container where they are on the host."""
        mounts = tuple(_read_only(path) for path in (*self.libraries, *self.programs))
        folders = sorted({str(path.parent) for path in self.libraries})
        if self.hook is not None:
            arguments = (HOOK_PROGRAM, "update-ldcache", *(f"--folder={folder}" for folder in folders))
            hook = Hook(hook_name="createContainer", path=str(self.hook), args=arguments)
            return ContainerEdits(mounts=mounts, hooks=(hook,))
        unknown = [folder for folder in folders if not _is_searched(folder)]
        return ContainerEdits(mounts=mounts, env=(f"LD_LIBRARY_PATH={':'.join(unknown)}",) if unknown else ())


def find_host_files(root: str = "") -> HostFiles:
    """The first of the usual driver roots that has the CUDA library; a given root is the only one that is looked at."""
    for candidate in (root,) if root else DRIVER_ROOTS:
        found = _below(Path(candidate))
        if any(path.name.startswith("libcuda.so") for path in found.libraries):
            return found
    return HostFiles()


def device_nodes(minor: int, dev: Path = Path("/dev")) -> tuple[DeviceNode, ...]:
    """The card's own node and those that all cards share, as far as the host has them."""
    paths = (dev / name for name in (f"nvidia{minor}", *_COMMON_NODES))
    return tuple(DeviceNode(path=str(path)) for path in paths if path.exists())


def capability_nodes(
    gpu_instance: int, compute_instance: int, minor: int, dev: Path = Path("/dev")
) -> tuple[DeviceNode, ...]:
    """The nodes that open a MIG instance: the kernel lists their numbers by the path of the capability."""
    numbers = _capability_numbers()
    wanted = (
        f"gpu{minor}/gi{gpu_instance}/access",
        f"gpu{minor}/gi{gpu_instance}/ci{compute_instance}/access",
    )
    paths = (dev / "nvidia-caps" / f"nvidia-cap{numbers[name]}" for name in wanted if name in numbers)
    return tuple(DeviceNode(path=str(path)) for path in paths if path.exists())


def _capability_numbers(table: Path = Path("/proc/driver/nvidia-caps/mig-minors")) -> dict[str, int]:
    try:
        lines = table.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.rsplit(" ", 1) for line in lines if " " in line)
    return {name: int(number) for name, number in pairs}


def _below(root: Path) -> HostFiles:
    libraries = tuple(_first_of_each(_matches(root, _LIBRARY_DIRS, _LIBRARIES)))
    programs = tuple(_first_of_each(_matches(root, _PROGRAM_DIRS, _PROGRAMS)))
    hook = next(_matches(root, _PROGRAM_DIRS, (HOOK_PROGRAM,)), None)
    return HostFiles(libraries, programs, hook)


def _matches(root: Path, folders: Iterable[str], patterns: Iterable[str]) -> Iterator[Path]:
    for folder in folders:
        for pattern in patterns:
            yield from sorted((root / folder).glob(pattern))


def _first_of_each(paths: Iterable[Path]) -> Iterator[Path]:
    """Folders may be links to each other (`lib64` to `usr/lib64`): a name counts where it is found first."""
    seen: set[str] = set()
    for path in paths:
        if path.name not in seen and path.is_file():
            seen.add(path.name)
            yield path


def _is_searched(folder: str) -> bool:
    """Whether the dynamic linker looks there without being told."""
    return folder in _LINKER_DIRS or folder.endswith("-linux-gnu")


def _read_only(path: Path) -> Mount:
    return Mount(host_path=str(path), container_path=str(path), options=("ro", "nosuid", "nodev", "bind"))
