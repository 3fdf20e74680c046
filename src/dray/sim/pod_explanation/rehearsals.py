"""Rehearses remedies: each is applied to a copy of the cluster, the scheduler's filters are asked again, and it is taken back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dray.api.core import Node, Pod
from dray.explain.what_if import Remedy
from dray.scheduler.cycle import PreFiltered
from dray.scheduler.framework.filtering import FilterRun, Found
from dray.scheduler.framework.interface import CycleState
from dray.scheduler.framework.profile import SchedulingProfile
from dray.sim.simulation import Simulation

# Remedies that are rehearsed, and those of them that are told.
MOST_REHEARSALS = 16
MOST_TOLD = 6
NODES_NAMED = 3


@dataclass(slots=True)
class _AlikeRemedies:
    """Remedies that differ in the name of the node only, such as uncordoning one of many."""

    first: Remedy
    others: list[Remedy] = field(default_factory=list)


class Rehearsals:
    """The attempts of one waiting pod in a simulated cluster that may be changed."""

    def __init__(self, simulation: Simulation, profile: SchedulingProfile, pod: Pod) -> None:
        self._simulation = simulation
        self._profile = profile
        self._pod = pod

    def that_help(self, remedies: Iterable[Remedy]) -> list[tuple[Remedy, list[str]]]:
        """The remedies after which the pod fits, in the same order, told with the nodes that it then fits."""
        told: list[tuple[Remedy, list[str]]] = []
        for alike in list(_grouped(remedies))[:MOST_REHEARSALS]:
            opened = self._opened_by([alike.first])
            if opened:
                more = self._more_opened(alike, opened)
                text = f"{alike.first.text} ({_then(opened, more)})"
                told.append((Remedy(alike.first.code, text, alike.first.edits, alike.first.gone), opened))
            if len(told) == MOST_TOLD:
                break
        return told

    def first_that_help(self, choices: Iterable[Sequence[Remedy]]) -> list[Remedy]:
        """Of each list the first remedy after which the pod fits, if it fits after the last one, which changes most."""
        return [
            next(each for each in remedies if self._opened_by([each]))
            for remedies in choices
            if self._opened_by([remedies[-1]])
        ]

    def _more_opened(self, alike: _AlikeRemedies, opened: Sequence[str]) -> list[str]:
        return [name for name in self._opened_by(alike.others) if name not in opened] if alike.others else []

    def _opened_by(self, remedies: Sequence[Remedy]) -> list[str]:
        cluster = self._simulation.cluster
        pod = self._pod
        before: list[Any] = []
        for edited in (each for remedy in remedies for each in remedy.edits):
            known = cluster.get(type(edited), edited.metadata.name, edited.metadata.namespace)
            if isinstance(edited, Pod) and edited.metadata.uid == pod.metadata.uid:
                pod = edited
            elif known is not None:
                before.append(known)
                cluster.apply(edited)
        gone = [each for remedy in remedies for each in remedy.gone]
        for each in gone:
            cluster.delete(each)
        try:
            return self._fitting(pod)
        finally:
            cluster.apply(*before, *gone)

    def _fitting(self, pod: Pod) -> list[str]:
        scheduler = self._simulation.scheduler
        snapshot = scheduler.handle.snapshot
        snapshot.refresh()
        cycle = CycleState()
        allowed = scheduler.decider.pre_filter(self._profile, cycle, pod)
        if not isinstance(allowed, PreFiltered):
            return []
        run = FilterRun(self._profile.filter_steps, cycle, pod, snapshot, None)
        found = Found(run.passing(allowed.candidates, {}), 0)
        scheduler.decider.respect_nominations(run, pod, found)
        return [state.name for state in snapshot.nodes if state.bit & found.feasible]


def _grouped(remedies: Iterable[Remedy]) -> Iterator[_AlikeRemedies]:
    groups: dict[tuple[str, str], _AlikeRemedies] = {}
    for remedy in remedies:
        nodes = [each.metadata.name for each in remedy.edits if isinstance(each, Node)]
        key = (remedy.code, remedy.text.replace(nodes[0], "") if nodes else remedy.text)
        known = groups.get(key)
        if known is None:
            groups[key] = _AlikeRemedies(remedy)
        elif nodes:
            known.others.append(remedy)
    yield from groups.values()


def _then(opened: Sequence[str], more: Sequence[str]) -> str:
    fits = f"then {_names(opened)} {'fits' if len(opened) == 1 else 'fit'}"
    return f"{fits}; the same helps on {_names(more)}" if more else fits


def _names(names: Sequence[str]) -> str:
    if len(names) <= NODES_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:NODES_NAMED])} and {len(names) - NODES_NAMED} more"
