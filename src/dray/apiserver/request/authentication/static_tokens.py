"""Tokens from a file: one `token,user,uid[,"group1,group2"]` per line, as Kubernetes reads them."""

import csv
import io
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from dray.apiserver.request.request_info import AUTHENTICATED, User


class StaticTokens:
    """Known tokens by their digest: a lookup takes as long for a good guess as for a bad one."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = {_digest(token): user for token, user in users.items()}

    @staticmethod
    def read(path: Path) -> "StaticTokens":
        """Raises ValueError with file and line for what cannot be read as a token."""
        users: dict[str, User] = {}
        for number, row in enumerate(csv.reader(io.StringIO(path.read_text())), start=1):
            if not row or row[0].startswith("#"):
                continue
            fields = [field.strip() for field in row]
            if len(fields) < 3 or not fields[0] or not fields[1]:
                raise ValueError(f"{path}:{number}: expected token,user,uid and optionally groups")
            groups = [group.strip() for group in fields[3].split(",")] if len(fields) > 3 else []
            users[fields[0]] = User(fields[1], (*(group for group in groups if group), AUTHENTICATED), fields[2])
        return StaticTokens(users)

    def user(self, token: str) -> User | None:
        return self._users.get(_digest(token))


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
