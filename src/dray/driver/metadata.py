"""Device metadata files: the attributes of a claim's devices, readable inside the container.

Written by the driver while it prepares a claim, mounted through CDI, one file per request and driver.
"""

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dray.api.cdi import CdiDevice, ContainerEdits, Mount, make_spec, qualified_name
from dray.api.resource import POD_CLAIM_NAME_ANNOTATION, DeviceAttribute
from dray.atomic_files import write_atomically
from dray.driver.cdi import safe_file_part
from dray.driver.plugin import AllocatedDevice, ClaimReference, ClaimToPrepare, PreparedDevice

log = logging.getLogger(__name__)

GROUP, KIND = "metadata.resource.k8s.io", "DeviceMetadata"
VERSIONS = ("v1beta1", "v1alpha1")
CONTAINER_ROOT = "/var/run/kubernetes.io/dra-device-attributes"

AttributesOf = Callable[[AllocatedDevice], Mapping[str, DeviceAttribute]]


class DeviceMetadata:
    """Writes and removes the metadata files of one driver."""

    def __init__(self, driver: str, data_dir: Path, cdi_dir: Path, attributes_of: AttributesOf) -> None:
        self._driver = driver
        self._root = data_dir / "dra-device-metadata"
        self._cdi_dir = cdi_dir
        self._attributes_of = attributes_of

    def add(
        self, claim: ClaimToPrepare, prepared: Sequence[PreparedDevice], ids: Sequence[Iterable[str]]
    ) -> list[tuple[str, ...]]:
        """The CDI ids with one more on the first device of each request; unchanged where the file cannot be written."""
        answer = [tuple(each) for each in ids]
        written: set[str] = set()
        for index, item in enumerate(prepared):
            request = item.device.base_request
            if request in written:
                continue
            written.add(request)
            try:
                answer[index] += (self._write(claim, request, prepared),)
            except OSError as error:
                log.error("device metadata of claim %s, request %s: %s", claim.reference, request, error)
        return answer

    def has(self, names: Iterable[str]) -> bool:
        """Whether the CDI files behind those of `names` that are metadata are there."""
        prefix = f"{self._driver}/metadata="
        parts = (name.removeprefix(prefix).partition("_") for name in names if name.startswith(prefix))
        return all((self._cdi_dir / self._file_name(uid, request)).is_file() for uid, _, request in parts)

    def remove(self, reference: ClaimReference) -> None:
        if self._claim_dir(reference).exists():
            shutil.rmtree(self._claim_dir(reference))
        for path in self._cdi_dir.glob(f"{self._driver}_metadata_{safe_file_part(reference.uid)}_*.json"):
            path.unlink(missing_ok=True)

    def _write(self, claim: ClaimToPrepare, request: str, prepared: Sequence[PreparedDevice]) -> str:
        host_file = self._claim_dir(claim.reference) / safe_file_part(request) / "metadata.json"
        documents = self._documents(claim, request, [item.device for item in prepared])
        write_atomically(host_file, b"".join(json.dumps(document).encode() + b"\n" for document in documents))
        mount = Mount(
            host_path=str(host_file), container_path=self._container_path(claim, request), options=("ro", "bind")
        )
        device = CdiDevice(name=f"{claim.uid}_{request}", container_edits=ContainerEdits(mounts=(mount,)))
        kind = f"{self._driver}/metadata"
        write_atomically(
            self._cdi_dir / self._file_name(claim.uid, request), msgspec.json.encode(make_spec(kind, [device]))
        )
        return qualified_name(kind, device.name)

    def _file_name(self, claim_uid: str, request: str) -> str:
        return f"{self._driver}_metadata_{safe_file_part(claim_uid)}_{safe_file_part(request)}.json"

    def _documents(
        self, claim: ClaimToPrepare, request: str, devices: Sequence[AllocatedDevice]
    ) -> list[dict[str, Any]]:
        """The same data once per version, newest first."""
        metadata = {
            "name": claim.reference.name,
            "namespace": claim.reference.namespace,
            "uid": claim.uid,
            "generation": 1,
        }
        requests: dict[str, list[dict[str, Any]]] = {}
        for device in devices:
            if device.base_request == request:
                requests.setdefault(device.request, []).append(self._device_document(device))
        content: dict[str, Any] = {"metadata": metadata}
        pod_claim = claim.claim.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION)
        if pod_claim:
            content["podClaimName"] = pod_claim
        content["requests"] = [{"name": name, "devices": entries} for name, entries in requests.items()]
        return [{"apiVersion": f"{GROUP}/{version}", "kind": KIND, **content} for version in VERSIONS]

    def _device_document(self, device: AllocatedDevice) -> dict[str, Any]:
        document: dict[str, Any] = {"driver": self._driver, "pool": device.pool, "name": device.device}
        attributes = self._attributes_of(device)
        if attributes:
            document["attributes"] = msgspec.to_builtins(dict(attributes))
        return document

    def _container_path(self, claim: ClaimToPrepare, request: str) -> str:
        pod_claim = claim.claim.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION)
        folder = f"resourceclaimtemplates/{pod_claim}" if pod_claim else f"resourceclaims/{claim.reference.name}"
        return f"{CONTAINER_ROOT}/{folder}/{request}/{self._driver}-metadata.json"

    def _claim_dir(self, reference: ClaimReference) -> Path:
        return self._root / f"{safe_file_part(reference.namespace)}_{reference.name.replace('/', '_')}"
