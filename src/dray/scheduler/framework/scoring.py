"""Which of the feasible nodes is best: the scores of many plugins become one total per node."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from dray.api.core import Pod
from dray.scheduler.framework.filtering import NodeChangeLog, ScoreAnswers
from dray.scheduler.framework.interface import (
    BulkScorePlugin,
    CycleState,
    NormalizePlugin,
    PluginStatus,
    PreScorePlugin,
    RememberedScore,
    ScorePlugin,
    StatusCode,
    error,
    status_word,
)

if TYPE_CHECKING:
    from dray.scheduler.snapshot import Snapshot

MAX_SCORE = 100


@dataclass(frozen=True, slots=True)
class WeightedScores:
    """One plugin's normalized scores: nodes by score."""

    plugin: str
    weight: int
    nodes_by_score: Mapping[int, int]


def totals(feasible: int, scores: Iterable[WeightedScores]) -> dict[int, int]:
    """`feasible` sorted by the weighted sum over all plugins.

    Works on groups of nodes with equal scores, so nodes that look alike cost nothing extra.
    """
    cells: dict[int, int] = {0: feasible}
    for row in scores:
        if len(cells) == 1:
            # Most pods have no wishes: all nodes are equal so far.
            [total] = cells
            cells = {total + score * row.weight: cells[total] & nodes for score, nodes in row.nodes_by_score.items()}
            continue
        refined: dict[int, int] = {}
        for score, nodes in row.nodes_by_score.items():
            for total, members in cells.items():
                both = members & nodes
                if both:
                    summed = total + score * row.weight
                    refined[summed] = refined.get(summed, 0) | both
        cells = refined
    return cells


def first_from(mask: int, start: int) -> int:
    """The first set position at or after `start`, going round."""
    ahead = mask >> start
    if ahead:
        return start + (ahead & -ahead).bit_length() - 1
    return (mask & -mask).bit_length() - 1


def best_node(cells: Mapping[int, int], start: int) -> int:
    """The node with the highest total; among equals the one met first in this attempt's walk."""
    return first_from(cells[max(cells)], start)


_NO_CHANGES = NodeChangeLog()


AnyScorePlugin = ScorePlugin | BulkScorePlugin


class ScoreRun:
    """PreScore, Score and Normalize of one attempt."""

    def __init__(
        self,
        cycle: CycleState,
        pod: Pod,
        snapshot: "Snapshot",
        feasible: int,
        timer: Callable[[str, str, str], None] | None = None,
    ) -> None:
        self._timer = timer
        self._cycle = cycle
        self._pod = pod
        self._snapshot = snapshot
        self._feasible = feasible

    def pre_score(self, plugins: tuple[PreScorePlugin, ...]) -> PluginStatus | None:
        for plugin in plugins:
            status = plugin.pre_score(self._cycle, self._pod, self._snapshot, self._feasible)
            if self._timer is not None:
                self._timer(plugin.name, "PreScore", status_word(status))
            if status is None or status.code is StatusCode.SUCCESS:
                continue
            if status.code is not StatusCode.SKIP:
                return error(status.as_one_reason(f'running PreScore plugin "{plugin.name}"')).by(plugin.name)
            self._cycle.skipped_scores.add(plugin.name)
        return None

    def rows(self, plugins: tuple[AnyScorePlugin, ...], weights: Mapping[str, int]) -> list[WeightedScores]:
        return [
            WeightedScores(plugin.name, weights[plugin.name], self._timed(plugin))
            for plugin in plugins
            if plugin.name not in self._cycle.skipped_scores
        ]

    def totals(self, plugins: tuple[AnyScorePlugin, ...], weights: Mapping[str, int]) -> dict[int, int]:
        return totals(self._feasible, self.rows(plugins, weights))

    def _timed(self, plugin: AnyScorePlugin) -> dict[int, int]:
        scores = self._normalized(plugin)
        if self._timer is not None:
            self._timer(plugin.name, "Score", StatusCode.SUCCESS.value)
        return scores

    def _normalized(self, plugin: AnyScorePlugin) -> dict[int, int]:
        if hasattr(plugin, "scores"):
            bulk = cast(BulkScorePlugin, plugin)
            raw = bulk.scores(self._cycle, self._pod, self._snapshot, self._feasible)
        else:
            raw = self._answers(plugin).ask(self._feasible, self._question(plugin))
        if not hasattr(plugin, "normalize"):
            return raw
        nodes_by_score: dict[int, int] = {}
        for score, normalized in cast(NormalizePlugin, plugin).normalize(raw).items():
            nodes_by_score[normalized] = nodes_by_score.get(normalized, 0) | raw[score]
        return nodes_by_score

    def _answers(self, plugin: ScorePlugin) -> ScoreAnswers:
        remembered = cast(RememberedScore, plugin) if hasattr(plugin, "score_shape") else None
        shape = remembered.score_shape(self._cycle, self._pod) if remembered is not None else None
        if remembered is None or shape is None:
            return ScoreAnswers(_NO_CHANGES, frozenset())
        return self._snapshot.score_answers.for_shape(plugin.name, shape, remembered.score_depends_on)

    def _question(self, plugin: ScorePlugin) -> Callable[[int], int]:
        nodes, cycle, pod, score = self._snapshot.nodes, self._cycle, self._pod, plugin.score

        def question(position: int) -> int:
            return score(cycle, pod, nodes[position])

        return question
