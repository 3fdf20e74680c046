"""What a container gets of its pod's claims: CDI device names, and the edits that CDI files describe under them."""

import logging
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from dray.api.cdi import CdiError, CdiRegistry, CdiSpec, ContainerEdits, decode_spec, make_registry, spec_from_document
from dray.api.core import Container, Pod
from dray.kubelet.claims import ClaimCache, ClaimRefused, claims_of_pod
from dray.kubelet.errors import ContainerError
from dray.kubelet.prepare import devices_of_container

log = logging.getLogger(__name__)


def wanted_claims(pod: Pod, container: Container) -> list[tuple[str, str]]:
    """(claim name, request) pairs that the container uses; an empty request means the whole claim."""
    names = {each.entry: each.claim_name for each in claims_of_pod(pod) if each.entry}
    wanted = [(names[use.name], use.request) for use in container.resources.claims if use.name in names]
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        wanted += [
            (extended.resource_claim_name, mapping.request_name)
            for mapping in extended.request_mappings
            if mapping.container_name == container.name and _asks_for(container, mapping.resource_name)
        ]
    return wanted


def _asks_for(container: Container, resource: str) -> bool:
    amount = container.resources.requests.get(resource) or container.resources.limits.get(resource)
    return amount is not None and amount.nanos != 0


def cdi_device_ids(pod: Pod, container: Container, cache: ClaimCache) -> tuple[str, ...]:
    """CDI names for the container, in the order of its claims."""
    try:
        devices = devices_of_container(cache, pod.metadata.namespace, wanted_claims(pod, container))
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
