"""`dray scheduler --policy` as a process against a real API server: the mix from a file, and the mix that it learns."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders.manifests import a_class, a_device, a_node, a_pod, a_slice, a_template
from tests.waiting import eventually

from dray.client import DEVICE_CLASSES, NODES, PODS, SLICES, TEMPLATES, Client
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions

# A process may need a while to start on a busy machine.
PATIENCE_S = 60.0


def with_device(name: str) -> dict[str, Any]:
    return a_pod(name, templates={"gpu": "one"}, requests={"cpu": "4"})


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    plane = ControlPlane(ControlPlaneOptions(tmp_path / "data", with_scheduler=False))
    await plane.start()
    await plane.listen()
    (tmp_path / "kubeconfig").write_text(plane.kubeconfig())
    yield plane
    await plane.stop()


@contextmanager
def scheduler(folder: Path, *options: str) -> Iterator[None]:
    common = ("--kubeconfig", str(folder / "kubeconfig"), "--secure-port", "0", "--no-leader-elect")
    command = (sys.executable, "-m", "dray", "scheduler", *common, "--policy", "least-fragmentation", *options)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


async def small_and_large(client: Client) -> None:
    await client.create(DEVICE_CLASSES, a_class())
    await client.create(TEMPLATES, a_template("one"))
    for name, cpu in (("small", "4"), ("large", "16")):
        await client.create(NODES, a_node(name, {"cpu": cpu, "memory": "8Gi", "pods": "10"}))
        await client.patch(NODES, name, {"spec": {"taints": None}})
        await client.create(SLICES, a_slice(name, *(a_device(f"gpu-{at}") for at in range(4)), node=name))


async def node_of(client: Client, name: str) -> str:
    async def bound() -> str:
        node: str = (await client.get(PODS, name, "default")).spec.node_name
        return node

    found: str = await eventually(bound, within_s=PATIENCE_S)
    return found


@pytest.mark.parametrize(
    ("mix", "expected"), [((), "small"), ((with_device("expected"),), "large")], ids=["no-mix", "mix-of-a-file"]
)
async def test_the_mix_may_come_from_a_file(
    plane: ControlPlane, tmp_path: Path, mix: tuple[Any, ...], expected: str
) -> None:
    """Without a mix the fuller node is as good as the other; pods to come that want 4 cpu and a device need the small node."""
    client = plane.client("user")
    await small_and_large(client)
    await client.create(PODS, a_pod("plain", requests={"cpu": "2"}))
    file = tmp_path / "mix.yaml"
    file.write_text(yaml.safe_dump_all([a_template("one"), *mix]))
    with scheduler(tmp_path, "--mix", str(file)):
        assert await node_of(client, "plain") == expected


async def test_the_mix_is_learnt_from_the_queue(plane: ControlPlane, tmp_path: Path) -> None:
    """A pod that has been tried counts, also one that waits."""
    client = plane.client("user")
    await small_and_large(client)
    waiting = with_device("waiting")
    waiting["spec"]["nodeSelector"] = {"nowhere": "yes"}
    await client.create(PODS, waiting)

    async def was_tried() -> bool:
        conditions = (await client.get(PODS, "waiting", "default")).status.conditions
        return any(each.type == "PodScheduled" and "didn't match" in each.message for each in conditions)

    with scheduler(tmp_path):
        await eventually(was_tried, "the pod to be tried", PATIENCE_S)
        await client.create(PODS, a_pod("plain", requests={"cpu": "2"}))
        assert await node_of(client, "plain") == "large"
