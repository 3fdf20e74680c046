"""placeholder until the optimistic variant lands"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dray.cel.ast import Node


def generate(root: Node, variables: list[str]) -> Callable[..., Any] | None:
    return None
