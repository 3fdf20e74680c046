"""The text that goes with each printed column, word for word as clients of Kubernetes receive it."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import msgspec

from dray.api.scheme import Resource


@cache
def _texts() -> dict[str, Any]:
    data = resources.files(__package__).joinpath("column_descriptions.json").read_bytes()
    texts: dict[str, Any] = msgspec.json.decode(data)
    return texts


def description(row: Resource, column: str) -> str:
    own = _texts()["columns"].get(row.plural, {}).get(column)
    return str(own or _texts()["common"].get(column) or f"{column} of the {row.singular}.")
