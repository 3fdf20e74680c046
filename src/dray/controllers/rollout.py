"""How many pods the old and the new editions of a Deployment may have next. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dray.api.workloads import ReplicaSet, RollingUpdate

DEFAULT_PART = "25%"


def surge_and_unavailable(rolling: RollingUpdate | None, wanted: int) -> tuple[int, int]:
    """How many pods more, and how many fewer ready ones, than wanted are fine on the way; never none of both."""
    max_surge = rolling.max_surge if rolling else None
    max_unavailable = rolling.max_unavailable if rolling else None
    surge = _amount(DEFAULT_PART if max_surge is None else max_surge, wanted, math.ceil)
    unavailable = _amount(DEFAULT_PART if max_unavailable is None else max_unavailable, wanted, math.floor)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, wanted)


def _amount(value: int | str, of: int, rounded: Callable[[float], int]) -> int:
    if isinstance(value, int):
        return max(0, value)
    text = value.removesuffix("%")
    return max(0, rounded(int(text) * of / 100)) if text.isdigit() else 0


def next_sizes(
    wanted: int, surge: int, unavailable: int, new: ReplicaSet, old: Sequence[ReplicaSet]
) -> tuple[int, list[int]]:
    """The next sizes of the new set and of the old ones.

    The new set grows as far as the surge allows; old ones shrink by pods that do not work, and then by as many as the
    new set's available pods make up for.
    """
    new_size = new.spec.replicas or 0
    old_sizes = [item.spec.replicas or 0 for item in old]
    room = wanted + surge - new_size - sum(old_sizes)
    grown = wanted if new_size > wanted else min(wanted, new_size + max(0, room))
    spare = sum(old_sizes) + grown - (wanted - unavailable)
    new_unavailable = grown - min(grown, new.status.available_replicas)
    may_go = max(0, spare - new_unavailable)
    shrunk: list[int] = []
    for item, size in zip(old, old_sizes, strict=True):
        broken = max(0, size - item.status.available_replicas)
        gone = min(size, max(min(broken, max(0, spare)), min(size, may_go)))
        may_go = max(0, may_go - gone)
        spare = max(0, spare - gone)
        shrunk.append(size - gone)
    return grown, shrunk
