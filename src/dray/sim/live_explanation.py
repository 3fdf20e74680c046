"""Explains a pod of a live cluster through its API server."""

from __future__ import annotations

import asyncio

from dray.client import Client
from dray.client.cluster_listing import list_cluster
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.verdicts import PodVerdict
from dray.features import FeatureGates
from dray.sim.pod_explanation import explain_live_pod


async def explain_in_cluster(client: Client, namespace: str, name: str, gates: FeatureGates) -> PodVerdict:
    """Why the pod waits or does not start, and what would help; `explain.pod_text.short_text_of` makes a few lines of it.

    Lists everything that an explanation reads, and computes in a thread. Raises `PodNotFound`.
    """
    objects = ClusterObjects.of(await list_cluster(client, with_events=True))
    return await asyncio.to_thread(explain_live_pod, objects, namespace, name, gates)
