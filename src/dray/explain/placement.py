"""Why a pod is on its node, and why it has these devices: in words, from the verdicts of all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dray.explain.request_counts import RequestCounts
from dray.explain.verdicts import NodeVerdict

DEVICES_NAMED = 4


def why_this_node(node: str, verdicts: Sequence[NodeVerdict]) -> str:
    """Compares the node with the best of the others, as if the pod were placed now."""
    own = next((verdict for verdict in verdicts if verdict.node == node), None)
    if own is None:
        return f"{node} is not there any more"
    if not own.fits:
        return f"{node} would refuse the pod now: {own.message}"
    others = [verdict for verdict in verdicts if verdict.fits and verdict.node != node]
    if not others:
        return f"{node} is the only one of {len(verdicts)} nodes that fits"
    best = max(others, key=lambda verdict: verdict.score)
    if own.score > best.score:
        return (
            f"{node} wins with {own.score} points over the runner-up {best.node} with {best.score}: {_lead(own, best)}"
        )
    if own.score == best.score:
        alike = sum(verdict.score == own.score for verdict in others)
        return (
            f"{node} and {alike} {'other' if alike == 1 else 'others'} are equal with {own.score} points, the most of "
            f"{len(others) + 1} nodes that fit; the scheduler takes equals in turn"
        )
    return (
        f"{node} has {own.score} points now, and {best.node} would win with {best.score}: {_lead(best, own)}; "
        "it was chosen from what was there then"
    )


def _lead(winner: NodeVerdict, other: NodeVerdict) -> str:
    """The plugins that tell the two apart, the largest difference first."""
    scores = dict(other.scores)
    apart = [(plugin, points, scores.get(plugin, 0)) for plugin, points in winner.scores]
    apart = sorted((row for row in apart if row[1] != row[2]), key=lambda row: row[2] - row[1])
    return ", ".join(f"{plugin} {points} to {others}" for plugin, points, others in apart)


def why_these_devices(claim: str, request: str, devices: Sequence[str], counts: Iterable[RequestCounts]) -> str:
    would_do = [each.by_stage["satisfy"] for each in counts if (each.claim, each.request) == (claim, request)]
    said = f"claim {claim.rpartition('/')[2]}, request {request}: {device_names(devices)}"
    if not would_do:
        return said
    if not would_do[0]:
        return f"{said} (none would do now)"
    return f"{said} ({would_do[0]} would do; devices are tried in the order in which they are published)"


def device_names(devices: Sequence[str], most: int = DEVICES_NAMED) -> str:
    """`driver/pool/gpu-0, gpu-1`: devices of one pool after its first are told by their last name."""
    names: list[str] = []
    pool = ""
    for device in devices[:most]:
        place, _, name = device.rpartition("/")
        names.append(name if place == pool else device)
        pool = place
    more = len(devices) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
