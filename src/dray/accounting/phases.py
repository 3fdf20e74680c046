"""What a pod's containers ask for together: the highest of all moments of the pod's life.

Init containers run one after the other, sidecars (init containers that restart always) from their turn to the end,
containers last. Amounts are whole nano-units here, so that nothing is lost before the final rounding.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Role = Literal["init", "sidecar", "container", "pod"]
Amounts = tuple[tuple[str, int], ...]


class Source(NamedTuple):
    """One container and the amounts it asks for."""

    name: str
    role: Role
    amounts: Amounts


def peak_amounts(sources: Sequence[Source]) -> dict[str, int]:
    """Per resource, the most that is asked for at one moment. Sources come init containers first, in order."""
    running: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for source in sources:
        role = source.role
        if role == "init":
            for name, nanos in source.amounts:
                total = nanos + sidecars.get(name, 0)
                if name not in peak or total > peak[name]:
                    peak[name] = total
            continue
        for name, nanos in source.amounts:
            running[name] = running.get(name, 0) + nanos
            if role == "sidecar":
                sidecars[name] = sidecars.get(name, 0) + nanos
    for name, nanos in peak.items():
        if name not in running or nanos > running[name]:
            running[name] = nanos
    return running


def moments(sources: Sequence[Source]) -> list[list[Source]]:
    """Who runs together: first the containers with all sidecars, then each init container with the sidecars before it."""
    together = [[source for source in sources if source.role != "init"]]
    sidecars: list[Source] = []
    for source in sources:
        if source.role == "sidecar":
            sidecars.append(source)
        if source.role in ("init", "sidecar"):
            together.append([*(other for other in sidecars if other is not source), source])
    return together


def amount_of(sources: Sequence[Source], resource: str) -> int:
    return sum(nanos for source in sources for name, nanos in source.amounts if name == resource)
