"""Names that the server makes up."""

from __future__ import annotations

from random import Random
from typing import Any

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX = 5
MAX_PREFIX = 58


def fill_name(metadata: dict[str, Any], random: Random) -> None:
    """generateName becomes a name, unless there is one."""
    prefix = metadata.get("generateName")
    if prefix and not metadata.get("name"):
        metadata["name"] = prefix[:MAX_PREFIX] + "".join(random.choices(ALPHABET, k=SUFFIX))
