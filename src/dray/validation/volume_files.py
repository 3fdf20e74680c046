"""Rules for the files of volumes: where they may lie in the volume, what their modes may be, and which paths of the node a pod may name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dray.validation.errors import Document, Errors
from dray.validation.pods import DEVICE_ATTRIBUTE_SOURCE

LARGEST_MODE = 0o777
WRONG_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
BACKSTEP = "must not contain '..'"
# Lists of files, as volumes of their own and as parts of a projected one.
SOURCES = ("configMap", "secret", "downwardAPI")
HOST_PATH_TYPES = ("BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket", "")


def check_volume_files(volumes: Iterable[Document], path: str, errors: Errors) -> None:
    for i, volume in enumerate(volumes):
        here = f"{path}[{i}]"
        if (host := volume.get("hostPath")) is not None:
            _check_host_path(host, f"{here}.hostPath", errors)
        for kind in (*SOURCES, "projected"):
            if (source := volume.get(kind)) is not None:
                _check_mode(source, "defaultMode", f"{here}.{kind}", errors)
                _check_files(source, f"{here}.{kind}", is_downward=kind == "downwardAPI", errors=errors)
        for j, projection in enumerate((volume.get("projected") or {}).get("sources") or ()):
            _check_projection(projection, f"{here}.projected.sources[{j}]", errors)


def _check_host_path(source: Document, path: str, errors: Errors) -> None:
    said, kind = source.get("path") or "", source.get("type") or ""
    if not said:
        errors.required(f"{path}.path")
    elif ".." in said.split("/"):
        errors.invalid(f"{path}.path", said, BACKSTEP)
    if kind not in HOST_PATH_TYPES:
        errors.not_supported(f"{path}.type", kind, HOST_PATH_TYPES)


def _check_projection(projection: Document, path: str, errors: Errors) -> None:
    for kind in SOURCES:
        if (source := projection.get(kind)) is not None:
            _check_files(source, f"{path}.{kind}", is_downward=kind == "downwardAPI", errors=errors)
    if (token := projection.get("serviceAccountToken")) is not None:
        _check_path(token, f"{path}.serviceAccountToken", errors)


def _check_files(source: Document, path: str, *, is_downward: bool, errors: Errors) -> None:
    for i, item in enumerate(source.get("items") or ()):
        here = f"{path}.items[{i}]"
        if not is_downward and not item.get("key"):
            errors.required(f"{here}.key")
        # Files of attributes of devices are looked at with the claims.
        if item.get(DEVICE_ATTRIBUTE_SOURCE) is None:
            _check_path(item, here, errors)
        _check_mode(item, "mode", here, errors)


def _check_path(item: Document, path: str, errors: Errors) -> None:
    said = item.get("path") or ""
    if not said:
        errors.required(f"{path}.path")
    errors.each_invalid(f"{path}.path", said, _path_problems(said))


def _path_problems(said: str) -> Iterator[str]:
    if said.startswith("/"):
        yield "must be a relative path"
    if ".." in said.split("/"):
        yield BACKSTEP
    if said.startswith("..") and not said.startswith("../"):
        yield "must not start with '..'"


def _check_mode(holder: Document, field: str, path: str, errors: Errors) -> None:
    mode = holder.get(field)
    if mode is not None and not 0 <= mode <= LARGEST_MODE:
        errors.invalid(f"{path}.{field}", mode, WRONG_MODE)
