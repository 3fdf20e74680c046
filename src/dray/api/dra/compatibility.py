"""Compatibility groups: devices in use that draw from one counter set must have a group in common, or all have none. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Groups = frozenset[str]
CONFLICT: Groups = frozenset(["\0conflict"])

SetKey = TypeVar("SetKey")


def joined(current: Groups | None, groups: Groups) -> Groups | None:
    """The values that both have in common; None if the two cannot coexist."""
    if current is None:
        return groups
    if not current or not groups:
        return current if current == groups else None
    return (current & groups) or None


def groups_in_use(brought: Iterable[tuple[SetKey, Groups]]) -> dict[SetKey, Groups]:
    """By counter set, the groups that devices in use have in common; `brought` is what each of them brings along."""
    found: dict[SetKey, Groups] = {}
    for key, groups in brought:
        current = found.get(key)
        if current is None:
            found[key] = groups
        elif current and groups:
            found[key] = (current & groups) or CONFLICT
        # Where devices with and without groups are in use together, the first one decides, as in Kubernetes.
    return found
