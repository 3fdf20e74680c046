"""The work that one pod with a claim makes in a whole control plane, counted: created, bound, deleted, gone with its claim.

Counts do not depend on how fast the machine is. A number that grows fails here; one that shrinks is written down in `WORK`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dray.client import CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES, TEMPLATES, Client
from dray.controllers.node_lifecycle import NodeLifecycleController
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from tests.builders.manifests import a_class, a_device, a_node, a_pod, a_slice, a_template
from tests.waiting import eventually

LIVES = 5

# What is counted, how often it may happen in the life of one pod, and the functions that do it; those of C begin with "C ".
WORK = {
    "decodes of JSON": (32, ("C Decoder.decode", "C decode")),
    "encodes of JSON": (30, ("C Encoder.encode", "C encode")),
    "documents brought into shape": (9, ("shape_document",)),
    "structs brought into shape": (57, ("StructShape.__call__",)),
    "comparisons for managedFields": (8, ("compare",)),
    "validations": (8, ("validate_create", "validate_update", "validate_status_update")),
    "commits": (9, ("GroupCommit.submit",)),
    "events offered to watchers": (9, ("Watcher.offer",)),
    "informer updates": (9, ("Informer._put", "Informer._delete")),
    "tasks": (3, ("create_task", "ensure_future")),
}
COUNTED = {name: what for what, (_, names) in WORK.items() for name in names}


@contextmanager
def counting(counts: Counter[str]) -> Iterator[None]:
    def note(frame: Any, event: str, function: Any) -> None:
        if event == "call":
            name = frame.f_code.co_qualname
        elif event == "c_call":
            name = f"C {getattr(function, '__qualname__', '')}"
        else:
            return
        if name in COUNTED:
            counts[COUNTED[name]] += 1

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


async def a_cluster(client: Client) -> None:
    await client.create(NODES, a_node("n1", {"cpu": "8", "memory": "8Gi", "pods": "10"}))
    await client.patch(NODES, "n1", {"spec": {"taints": None}})
    await client.create(DEVICE_CLASSES, a_class())
    await client.create(SLICES, a_slice("s", *(a_device(f"gpu-{at}") for at in range(8))))
    await client.create(TEMPLATES, a_template("one"))


async def life(plane: ControlPlane, client: Client, name: str) -> None:
    """One pod after the other, so that nothing depends on how much happens at the same time."""
    assert plane.scheduler is not None
    informers = plane.scheduler.informers
    pods, claims = informers.of(PODS), informers.of(CLAIMS)

    await client.create(PODS, a_pod(name, templates={"gpu": "one"}))
    await eventually(lambda: any(pod.spec.node_name for pod in pods), "the pod to be bound")
    await client.delete(PODS, name, "default", grace_seconds=0)
    await eventually(lambda: not len(pods) and not len(claims), "the pod and its claim to be gone")


async def test_work_of_a_pod(tmp_path: Path) -> None:
    options = ControlPlaneOptions(tmp_path / "data", controllers=("*", f"-{NodeLifecycleController.name}"))
    plane = ControlPlane(options)
    await plane.start()
    client = plane.client("user")
    await a_cluster(client)
    await life(plane, client, "warm")
    lives: list[Counter[str]] = []
    for number in range(LIVES):
        lives.append(Counter())
        with counting(lives[-1]):
            await life(plane, client, f"pod-{number}")
    await plane.stop()
    # What else happens meanwhile, such as a renewed lease, only adds to one of them.
    found = {what: min(counts[what] for counts in lives) for what in WORK}
    assert all(found.values()), found
    assert {what: number for what, number in found.items() if number > WORK[what][0]} == {}
