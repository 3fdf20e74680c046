"""The devices that a container gets from its pod's claims: CDI names, and the edits that CDI files describe for them."""

import logging
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from dray.api.cdi import CdiError, CdiRegistry, CdiSpec, ContainerEdits, decode_spec, make_registry, spec_from_document
from dray.api.core import Container, Pod
from dray.api.dra.pod_claims import requests_of_container
from dray.kubelet.claims import ClaimCache, ClaimRefused, created_claims
from dray.kubelet.errors import ContainerError
from dray.kubelet.prepare import devices_of_container

log = logging.getLogger(__name__)


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
