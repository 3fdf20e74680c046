"""What keeps each pod of a simulation waiting, by the codes of `explain`: one code for each pod."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from dray.api import codec
from dray.explain.reason_codes import FITS
from dray.sim.pod_explanation import ExplainedCluster, ExplainOptions
from dray.sim.simulation import Placed, Simulation

# So many nodes are looked at in all, each some half a millisecond. Pods that are alike are explained once; where more would have to be looked at, the scheduler's own
# record decides, which names the refusal of the nearest node without weighing refusals against each other.
MOST_NODES = 4_000


def with_causes(simulation: Simulation, placed: Sequence[Placed]) -> Iterator[Placed]:
    """The same pods; those that the scheduler turned away have the code that `dray explain` gives them."""
    explained: ExplainedCluster | None = None
    known: dict[Hashable, str] = {}
    left = MOST_NODES
    for row in placed:
        # A selector that fails is an error to the scheduler; `explain` says which selector, and why.
        if not was_turned_away(simulation, row) and row.outcome != "error":
            yield row
            continue
        alike = (row.message, codec.encode(row.pod.spec), *(codec.encode(claim.spec) for claim in row.claims))
        if alike not in known and left > 0:
            left -= len(simulation.ledgers())
            options = ExplainOptions(gates=simulation.gates, config=simulation.config, is_brief=True)
            explained = explained or ExplainedCluster(simulation.world(), options)
            known[alike] = explained.explain(row.pod.metadata.namespace, row.pod.metadata.name).code
        code = known.get(alike, row.code)
        yield replace(row, code=code if code != FITS else row.code)


def was_turned_away(simulation: Simulation, row: Placed) -> bool:
    """Whether nodes were asked and refused the pod."""
    return row.outcome == "unschedulable" and simulation.scheduler.explanations.get(row.pod.metadata.uid) is not None
