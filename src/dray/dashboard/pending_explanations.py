"""Explains the waiting pods for the page: in a thread, again whenever the cluster has changed, and with most of the time left to others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from dray.api.core import Pod
from dray.api.dra.pod_phase import is_waiting_for_node
from dray.dashboard.watched_cluster import WatchedCluster, key_of
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.verdicts import PodVerdict
from dray.features import FeatureGates

log = logging.getLogger(__name__)

# Pods of the highest priority, and of these the oldest, are explained; the page shows the scheduler's words for the others.
MOST_PODS = 50
# Between two rounds at least this long, and so many times as long as a round took.
PAUSE_S = 1.0
PAUSE_FACTOR = 5

PodName = tuple[str, str]


class PodExplainer(Protocol):
    """Explains pods of a live cluster; a pod that does not exist has no answer."""

    def __call__(
        self, objects: ClusterObjects, pods: Collection[PodName], gates: FeatureGates, /
    ) -> Mapping[PodName, PodVerdict]: ...


class PendingExplanations:
    """`by_pod` has the answers of the last round, by namespace/name."""

    def __init__(self, cluster: WatchedCluster, explain: PodExplainer, gates: FeatureGates) -> None:
        self._cluster = cluster
        self._explain = explain
        self._gates = gates
        self._changed = asyncio.Event()
        self.by_pod: dict[str, PodVerdict] = {}

    def note_change(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            pods = list(self._waiting())
            started = time.monotonic()
            try:
                answers = (
                    await asyncio.to_thread(self._explain, self._cluster.world(), pods, self._gates) if pods else {}
                )
            except Exception:
                log.exception("dashboard: waiting pods cannot be explained")
                answers = {}
            self._keep({"/".join(pod): verdict for pod, verdict in answers.items()})
            await asyncio.sleep(PAUSE_S + PAUSE_FACTOR * (time.monotonic() - started))

    def _waiting(self) -> Iterator[PodName]:
        waiting = [pod for pod in self._cluster.pods if is_waiting_for_node(pod)]
        for pod in sorted(waiting, key=_urgency)[:MOST_PODS]:
            yield pod.metadata.namespace, pod.metadata.name

    def _keep(self, answers: dict[str, PodVerdict]) -> None:
        before, self.by_pod = self.by_pod, answers
        self._cluster.look_again(
            key
            for key in before.keys() | answers.keys()
            if before.get(key) is None or answers.get(key) is None or before[key].headline != answers[key].headline
        )


def _urgency(pod: Pod) -> tuple[int, str, str]:
    return -(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", key_of(pod)
