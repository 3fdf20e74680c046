"""Which claims are prepared, on disk: after a restart the driver answers as before and can still unprepare them."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dray.atomic_files import write_atomically

log = logging.getLogger(__name__)


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


class Checkpoint:
    """Prepared claims by UID. Every change is on disk before it is answered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._claims = _load(path)

    def reload(self) -> None:
        """Another instance of the driver may have written since."""
        self._claims = _load(self._path)

    def get(self, claim_uid: str) -> StoredClaim | None:
        return self._claims.get(claim_uid)

    def put(self, claim_uid: str, claim: StoredClaim) -> None:
        self._save(self._claims | {claim_uid: claim})

    def remove(self, claim_uid: str) -> None:
        if claim_uid in self._claims:
            self._save({uid: claim for uid, claim in self._claims.items() if uid != claim_uid})

    def claims(self) -> dict[str, StoredClaim]:
        return dict(self._claims)

    def holder_of(self, pool: str, device: str, *, besides: str) -> ClaimUser | None:
        """Another claim that holds this device for itself alone."""
        for uid, claim in self._claims.items():
            if uid != besides and any(d.is_exclusive and d.pool == pool and d.device == device for d in claim.devices):
                return ClaimUser(uid, claim)
        return None

    def _save(self, claims: dict[str, StoredClaim]) -> None:
        write_atomically(self._path, msgspec.json.encode({"version": 1, "claims": claims}), mode=0o600)
        self._claims = claims


def _load(path: Path) -> dict[str, StoredClaim]:
    try:
        document = json.loads(path.read_bytes())
        return msgspec.convert(document["claims"], dict[str, StoredClaim])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        aside = path.with_suffix(".corrupt")
        log.error(
            "checkpoint %s cannot be read (%s); kept as %s, starting empty: claims are prepared again when asked for",
            path,
            error,
            aside,
        )
        path.replace(aside)
        return {}
