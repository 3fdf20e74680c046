"""The files of prepared claims: CDI files and device metadata for containers, and the checkpoint for a restart of the driver.

CDI files: one per claim and driver, written whole or not at all. Metadata files: the attributes of a claim's devices, readable inside the
container, one file per request and driver, mounted through CDI. The checkpoint says which claims are prepared: after a restart the driver
answers as before and can still unprepare them. Records are what a driver itself has to remember of a claim.
"""

import json
import logging
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from dray.api.cdi import CdiDevice, ContainerEdits, Mount, make_spec, qualified_name
from dray.api.resource import POD_CLAIM_NAME_ANNOTATION, DeviceAttribute
from dray.atomic_files import remove_with_unfinished, write_atomically
from dray.driver.plugin import AllocatedDevice, ClaimReference, ClaimToPrepare, PreparedDevice

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)


class CdiFiles:
    """The files of one driver in the CDI directory."""

    def __init__(self, directory: Path, driver: str) -> None:
        self._directory = directory
        self._driver = driver
        self.kind = f"{driver}/claim"

    def write(self, claim_uid: str, edits_by_device: Sequence[tuple[str, ContainerEdits]]) -> dict[str, str]:
        """Write the claim's devices; the answer has the qualified CDI name for each device that needs edits.

        Names carry the claim's UID and are never used again, since runtimes cache what they read under a name.
        """
        devices = [
            CdiDevice(name=f"{claim_uid}-{name}", container_edits=edits)
            for name, edits in edits_by_device
            if not edits.is_empty
        ]
        if not devices:
            return {}
        write_atomically(self._path(claim_uid), msgspec.json.encode(make_spec(self.kind, devices)))
        names = [name for name, edits in edits_by_device if not edits.is_empty]
        return {name: qualified_name(self.kind, device.name) for name, device in zip(names, devices, strict=True)}

    def has(self, claim_uid: str, names: Collection[str]) -> bool:
        """Whether the claim's file is there, if any of `names` needs it."""
        is_needed = any(name.startswith(f"{self.kind}=") for name in names)
        return not is_needed or self._path(claim_uid).is_file()

    def remove(self, claim_uid: str) -> None:
        remove_with_unfinished(self._directory, escape(self._path(claim_uid).name))

    def _path(self, claim_uid: str) -> Path:
        return self._directory / f"{self._driver}-{safe_file_part(claim_uid)}.json"


_UNSAFE = re.compile(r"[^\w-]")


def safe_file_part(text: str) -> str:
    """Makes unchecked text safe as a part of a file name: no separators, and no dots that lead to another folder."""
    return _UNSAFE.sub("_", text)


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
        remove_with_unfinished(self._cdi_dir, f"{escape(self._driver)}_metadata_{safe_file_part(reference.uid)}_*.json")

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


class StoredDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One prepared device, as the kubelet was told."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_device_ids: tuple[str, ...] = ()
    share_id: str | None = None
    is_exclusive: bool = True


class StoredClaim(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    devices: tuple[StoredDevice, ...]


@dataclass(frozen=True, slots=True)
class ClaimUser:
    """The claim that already uses a device which another claim asks for."""

    claim_uid: str
    claim: StoredClaim


class _CheckpointFile(msgspec.Struct, frozen=True):
    """`begun` holds the claims whose preparation has started and not ended."""

    claims: dict[str, StoredClaim]
    begun: dict[str, StoredClaim] = {}
    version: int = 1


class Checkpoint:
    """Prepared claims by UID. Every change is on disk before it is answered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = load_or_set_aside(path, _CheckpointFile, _CheckpointFile({}))

    def reload(self) -> None:
        """Another instance of the driver may have written since."""
        self._file = load_or_set_aside(self._path, _CheckpointFile, _CheckpointFile({}))

    def get(self, claim_uid: str) -> StoredClaim | None:
        return self._file.claims.get(claim_uid)

    def begin(self, claim_uid: str, claim: StoredClaim) -> None:
        """Notes that the driver is about to prepare the claim."""
        if claim_uid not in self._file.begun:
            self._save(_CheckpointFile(self._file.claims, self._file.begun | {claim_uid: claim}))

    def put(self, claim_uid: str, claim: StoredClaim) -> None:
        self._save(_CheckpointFile(self._file.claims | {claim_uid: claim}, _without(self._file.begun, claim_uid)))

    def remove(self, claim_uid: str) -> None:
        if claim_uid in self._file.claims or claim_uid in self._file.begun:
            self._save(_CheckpointFile(_without(self._file.claims, claim_uid), _without(self._file.begun, claim_uid)))

    def claims(self) -> dict[str, StoredClaim]:
        """The prepared claims, and those that were begun."""
        return self._file.begun | self._file.claims

    def holder_of(self, pool: str, device: str, *, besides: str) -> ClaimUser | None:
        """Another claim that holds this device for itself alone."""
        for uid, claim in self._file.claims.items():
            if uid != besides and any(d.is_exclusive and d.pool == pool and d.device == device for d in claim.devices):
                return ClaimUser(uid, claim)
        return None

    def _save(self, file: _CheckpointFile) -> None:
        write_atomically(self._path, msgspec.json.encode(file), mode=0o600)
        self._file = file


def _without(claims: dict[str, StoredClaim], claim_uid: str) -> dict[str, StoredClaim]:
    return {uid: claim for uid, claim in claims.items() if uid != claim_uid}


class ClaimWithPods(msgspec.Struct, frozen=True):
    """The beginning of a record whose claim is named in metrics."""

    namespace: str
    name: str
    pods: tuple[str, ...] = ()

    @property
    def metric_labels(self) -> tuple[dict[str, str], ...]:
        """The labels of numbers that belong to the claim: one set for each pod that uses it."""
        return tuple({"namespace": self.namespace, "claim": self.name, "pod": pod} for pod in self.pods or ("",))


class ClaimRecords(Generic[R]):
    """What a driver itself notes about its claims, by their UID; every change is on disk when the call returns."""

    def __init__(self, path: Path, record_type: type[R]) -> None:
        self._path = path
        self._record_type = record_type
        self._records: dict[str, R] = {}
        self.reload()

    def reload(self) -> None:
        """Another instance of the driver may have written since."""
        self._records = load_or_set_aside(self._path, dict[str, self._record_type], {})  # type: ignore[name-defined]

    def get(self, uid: str) -> R | None:
        return self._records.get(uid)

    def put(self, uid: str, record: R) -> None:
        if self._records.get(uid) != record:
            self._save(self._records | {uid: record})

    def remove(self, uid: str) -> None:
        if uid in self._records:
            self._save({each: record for each, record in self._records.items() if each != uid})

    def records(self) -> tuple[R, ...]:
        return tuple(self._records.values())

    def by_uid(self) -> Mapping[str, R]:
        return self._records

    def _save(self, records: dict[str, R]) -> None:
        write_atomically(self._path, msgspec.json.encode(records), mode=0o600)
        self._records = records


def load_or_set_aside(path: Path, wanted: type[T], empty: T) -> T:
    """What the file holds; `empty` without a file, and for one that cannot be read, which is kept under another name."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=wanted)
    except FileNotFoundError:
        return empty
    except (OSError, ValueError) as error:
        aside = path.with_suffix(".corrupt")
        log.error(
            "checkpoint %s cannot be read (%s); kept as %s, starting empty: claims are prepared again when asked for",
            path,
            error,
            aside,
        )
        path.replace(aside)
        return empty
