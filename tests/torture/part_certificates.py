"""Certificates of the parts: renewed in files while the parts run, in time or too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from dray.apiserver.security.certificates import LIFETIME, Authority, Pair
from dray.apiserver.security.credentials import kubeconfig_text
from dray.atomic_files import write_private

# A server whose clock is wrong by as much as the rig sets it wrong shall still take them.
LASTS_S = 36 * 3600.0
RENEWED_EVERY_S = 240.0


class PartCertificates:
    """By name of the kubeconfig: who it is for. `renew_all` is for the clock, `let_end` for the fault."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._users: dict[str, tuple[Authority, str, tuple[str, ...]]] = {}
        # Somebody lets these end; nobody else renews them meanwhile.
        self._withheld: set[str] = set()

    @property
    def names(self) -> list[str]:
        return list(self._users)

    def add(self, name: str, authority: Authority, user: str, groups: tuple[str, ...] = ()) -> Path:
        """The file of a certificate and its key: one for both, so that nobody sees halves."""
        self._users[name] = authority, user, groups
        self.renew(name)
        return self._file(name)

    def kubeconfig(self, name: str, server: str, authority: Authority, user: str, groups: tuple[str, ...]) -> str:
        file = str(self.add(name, authority, user, groups))
        config = yaml.safe_load(kubeconfig_text(server, authority.certificate_pem, user))
        config["users"][0]["user"] = {"client-certificate": file, "client-key": file}
        return str(yaml.safe_dump(config, sort_keys=False))

    def renew_all(self) -> None:
        for name in self._users:
            if name not in self._withheld:
                self.renew(name)

    def let_end(self, name: str, seconds: float) -> bool:
        """It will not be renewed in time; False if that is going on already."""
        if name in self._withheld:
            return False
        self._withheld.add(name)
        self._write(name, seconds)
        return True

    def renew(self, name: str) -> None:
        self._withheld.discard(name)
        self._write(name, LASTS_S)

    def _write(self, name: str, seconds: float) -> None:
        authority, user, groups = self._users[name]
        pair = authority.issue_client(user, groups, ending_in(seconds))
        write_private(self._file(name), pair.certificate_pem + pair.key_pem)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.pem"


def ending_in(seconds: float) -> datetime:
    """When a certificate that ends in so many seconds was issued."""
    return datetime.now(UTC) - LIFETIME + timedelta(seconds=seconds)


def write_pair(path: Path, pair: Pair) -> None:
    write_private(path.with_name(f"{path.name}.crt"), pair.certificate_pem)
    write_private(path.with_name(f"{path.name}.key"), pair.key_pem)
