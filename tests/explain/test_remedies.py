"""What is suggested where a node lacks cpu: an amount that can work."""

import pytest

from dray.explain.node_remedies import remedies_of
from dray.explain.node_shortage import ShortRow
from dray.explain.verdicts import NodeVerdict, Refusal


@pytest.mark.parametrize(
    ("asked", "free", "allocatable", "text"),
    [
        pytest.param("2", "1", "4", "free cpu or ask for at most 1 (then n fits)", id="others-take-the-rest"),
        pytest.param("6", "4", "4", "ask for at most 4 cpu, the node has no more (then n fits)", id="empty-node"),
        pytest.param(
            "6",
            "1",
            "4",
            "ask for at most 1 cpu, or at most 4 and free as much (then n fits)",
            id="freeing-alone-never-suffices",
        ),
        pytest.param("6", "0", "4", "ask for at most 4 cpu and free as much (then n fits)", id="nothing-is-free"),
    ],
)
def test_amounts_that_can_work(asked, free, allocatable, text):
    row = ShortRow("cpu", asked, "", free, allocatable, ())
    verdict = NodeVerdict("n", (Refusal("node-resources", "", "NodeResourcesFit", (row,)),))
    assert [remedy.text for remedy in remedies_of([verdict])] == [text]
