"""Which of the feasible nodes is best: the scores of many plugins become one total per node."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

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


class WeightedScores(msgspec.Struct, frozen=True):
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


_NO_CHANGES = NodeChangeLog()


AnyScorePlugin = ScorePlugin | BulkScorePlugin


@dataclass(frozen=True, slots=True)
class ScoreStep:
    """A score plugin, its weight, and the Protocols that it implements, found out once for each profile and not for each pod."""

    name: str
    weight: int
    bulk: BulkScorePlugin | None
    single: ScorePlugin | None
    remembered: RememberedScore | None
    normalizing: NormalizePlugin | None


def score_steps(plugins: tuple[AnyScorePlugin, ...], weights: Mapping[str, int]) -> tuple[ScoreStep, ...]:
    return tuple(
        ScoreStep(
            plugin.name,
            weights[plugin.name],
            plugin if isinstance(plugin, BulkScorePlugin) else None,
            plugin if isinstance(plugin, ScorePlugin) else None,
            plugin if isinstance(plugin, RememberedScore) else None,
            plugin if isinstance(plugin, NormalizePlugin) else None,
        )
        for plugin in plugins
    )


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

    def rows(self, steps: Sequence[ScoreStep]) -> list[WeightedScores]:
        return [WeightedScores(step.name, step.weight, self._scores(step)) for step in self._asked(steps)]

    def _asked(self, steps: Sequence[ScoreStep]) -> list[ScoreStep]:
        return [step for step in steps if step.name not in self._cycle.skipped_scores]

    def best(self, steps: tuple[ScoreStep, ...]) -> int:
        """The nodes with the highest total.

        Of the plugin that is asked last only the highest scores matter, so one that gives every node another score costs no more.
        """
        asked = self._asked(steps)
        if not asked:
            return self._feasible
        last = asked[-1]
        if last.single is None or last.normalizing is not None or last.weight <= 0:
            cells = totals(self._feasible, self.rows(asked))
            return cells[max(cells)]
        cells = totals(self._feasible, self.rows(asked[:-1]))
        answers = self._known_scores(last)
        self._note(last)
        return _best_of(cells, answers, last.weight)

    def _scores(self, step: ScoreStep) -> dict[int, int]:
        if step.bulk is not None:
            scores = step.bulk.scores(self._cycle, self._pod, self._snapshot, self._feasible)
        elif step.single is not None:
            scores = self._known_scores(step).sorted_by_score(self._feasible)
        else:
            raise TypeError(f"{step.name} has neither score nor scores")
        if step.normalizing is not None:
            scores = _normalized(step.normalizing, scores)
        self._note(step)
        return scores

    def _known_scores(self, step: ScoreStep) -> ScoreAnswers:
        """What the plugin gives every feasible node, before normalizing."""
        assert step.single is not None
        answers = self._answers(step)
        if self._feasible & ~answers.known:
            answers.ask(self._feasible, self._question(step.single))
        return answers

    def _note(self, step: ScoreStep) -> None:
        if self._timer is not None:
            self._timer(step.name, "Score", "Success")

    def _answers(self, step: ScoreStep) -> ScoreAnswers:
        remembered = step.remembered
        shape = remembered.score_shape(self._cycle, self._pod) if remembered is not None else None
        if remembered is None or shape is None:
            return ScoreAnswers(_NO_CHANGES, frozenset())
        return self._snapshot.score_answers.for_shape(step.name, shape, remembered.score_depends_on)

    def _question(self, plugin: ScorePlugin) -> Callable[[int], int]:
        nodes, cycle, pod, score = self._snapshot.nodes.in_order, self._cycle, self._pod, plugin.score

        def question(position: int) -> int:
            return score(cycle, pod, nodes[position])

        return question


def _best_of(cells: Mapping[int, int], answers: ScoreAnswers, weight: int) -> int:
    """The nodes with the highest total of a cell's and their own score."""
    best: dict[int, int] = {}
    for total, members in cells.items():
        score, nodes = answers.highest(members)
        total += score * weight
        best[total] = best.get(total, 0) | nodes
    return best[max(best)]


def _normalized(plugin: NormalizePlugin, raw: dict[int, int]) -> dict[int, int]:
    nodes_by_score: dict[int, int] = {}
    for score, normalized in plugin.normalize(raw).items():
        nodes_by_score[normalized] = nodes_by_score.get(normalized, 0) | raw[score]
    return nodes_by_score
