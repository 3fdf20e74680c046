"""The claims of this node on disk, in the kubelet's own format: written whole, before any driver is called."""

import json
import logging
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dray.atomic_files import write_private
from dray.kubelet.claims import CheckpointedDevice, DriverState, PreparedClaim

log = logging.getLogger(__name__)

FILE_NAME = "dra_manager_state"
KIND = "DRACheckpoint"
API_VERSION = "checkpoint.dra.kubelet.k8s.io/v1"


class CheckpointCorrupt(Exception):
    """The checkpoint file exists, but its content or checksum is wrong."""


class CheckpointFile:
    def __init__(self, root: Path) -> None:
        self.path = root / FILE_NAME

    def write(self, states: Iterable[PreparedClaim]) -> None:
        data = json.dumps(
            {"kind": KIND, "apiVersion": API_VERSION, "ClaimInfoStateList": [_to_document(state) for state in states]},
            separators=(",", ":"),
        )
        content = json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}).encode()
        write_private(self.path, content)

    def read(self) -> list[PreparedClaim]:
        """The claims of the last write; none where there is no file. CheckpointCorrupt says what is wrong with it."""
        try:
            envelope = json.loads(self.path.read_bytes())
            data = envelope["Data"]
            if zlib.crc32(data.encode()) != envelope["Checksum"]:
                raise CheckpointCorrupt(f"{self.path}: the checksum does not fit the content")
            return [_from_document(each) for each in json.loads(data)["ClaimInfoStateList"] or ()]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointCorrupt(f"{self.path}: {error!r}") from error

    def set_aside(self) -> Path:
        """Keep a corrupt file for whoever looks into it, out of the way of new ones."""
        aside = self.path.with_suffix(".corrupt")
        os.replace(self.path, aside)
        return aside


def _to_document(state: PreparedClaim) -> dict[str, Any]:
    return {
        "ClaimUID": state.uid,
        "ClaimName": state.name,
        "Namespace": state.namespace,
        "PodUIDs": {uid: {} for uid in sorted(state.pod_uids)},
        "DriverState": {driver: _driver_document(each) for driver, each in state.drivers.items()},
    }


def _driver_document(state: DriverState) -> dict[str, Any]:
    document: dict[str, Any] = {"Devices": [_device_document(device) for device in state.devices]}
    if state.skipped_operations:
        document["skipNodeOperations"] = list(state.skipped_operations)
    return document


def _device_document(device: CheckpointedDevice) -> dict[str, Any]:
    document: dict[str, Any] = {
        "PoolName": device.pool,
        "DeviceName": device.device,
        "RequestNames": list(device.requests),
        "CDIDeviceIDs": list(device.cdi_device_ids),
    }
    if device.share_id is not None:
        document["ShareID"] = device.share_id
    return document


def _from_document(document: dict[str, Any]) -> PreparedClaim:
    return PreparedClaim(
        namespace=_text(document["Namespace"]),
        name=_text(document["ClaimName"]),
        uid=_text(document["ClaimUID"]),
        pod_uids=frozenset(_texts(document.get("PodUIDs"))),
        drivers={driver: _driver_state(each) for driver, each in (document.get("DriverState") or {}).items()},
    )


def _driver_state(document: dict[str, Any]) -> DriverState:
    return DriverState(
        devices=tuple(
            CheckpointedDevice(
                pool=_text(each["PoolName"]),
                device=_text(each["DeviceName"]),
                requests=_texts(each.get("RequestNames")),
                cdi_device_ids=_texts(each.get("CDIDeviceIDs")),
                share_id=None if each.get("ShareID") is None else _text(each["ShareID"]),
            )
            for each in document.get("Devices") or ()
        ),
        skipped_operations=_texts(document.get("skipNodeOperations")),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(_text, values or ()))
