"""CDI files of prepared claims: one file per claim and driver, written whole or not at all."""

from collections.abc import Collection, Sequence
from glob import escape
from pathlib import Path

import msgspec

from dray.api.cdi import CdiDevice, ContainerEdits, make_spec, qualified_name
from dray.atomic_files import write_atomically


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
        """The claim's file, and what a driver that was killed while writing it has left."""
        path = self._path(claim_uid)
        path.unlink(missing_ok=True)
        for unfinished in path.parent.glob(f".{escape(path.name)}-*"):
            unfinished.unlink(missing_ok=True)

    def _path(self, claim_uid: str) -> Path:
        return self._directory / f"{self._driver}-{safe_file_part(claim_uid)}.json"


def safe_file_part(text: str) -> str:
    """Makes unchecked text safe as a part of a file name: no separators, and no dots that lead to another folder."""
    return "".join(character if character.isalnum() or character in "-_" else "_" for character in text)
