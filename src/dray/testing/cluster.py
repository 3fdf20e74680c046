"""A cluster in a thread, with helpers that wait."""

import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from dray.api import scheme
from dray.api.core import Pod
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_claims import claim_names_of_entries
from dray.api.dra.pools import device_id
from dray.api.resource import ResourceClaim
from dray.client import CLAIMS, PODS, ApiError, Client
from dray.client.rest import APPLY_PATCH
from dray.client.transport import Call
from dray.features import FeatureGates
from dray.kubelet.node import NodeDescription
from dray.kubelet.simulated_kubelets import SimulatedKubelets
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from dray.sim.nodes import NodesOptions, RealNodes, SimulatedNodes, make_nodes

T = TypeVar("T")
FIELD_MANAGER = "dray-testing"


class TimedOut(AssertionError):
    """What was waited for did not happen; the text says what the cluster looks like instead."""


class Cluster:
    """A running control plane with nodes. Made by `cluster()`."""

    def __init__(
        self, plane: ControlPlane, nodes: RealNodes | SimulatedNodes, loop: asyncio.AbstractEventLoop, kubeconfig: Path
    ) -> None:
        self.plane = plane
        self.nodes = nodes
        self.kubeconfig = kubeconfig
        self.url = plane.url
        self.client: Client = plane.client("dray-testing")
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = 30.0) -> T:
        """Run a coroutine in the cluster's own loop and wait for its answer."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def apply(self, *manifests: str | Path | dict[str, Any], namespace: str = "default") -> list[dict[str, Any]]:
        """Server-side apply of files, YAML text or documents, in order; the answer holds them as stored."""
        documents = [document for each in manifests for document in _documents(each)]
        return [self.run(self._apply(document, namespace)) for document in documents]

    async def _apply(self, document: dict[str, Any], namespace: str) -> dict[str, Any]:
        group, _, version = document["apiVersion"].rpartition("/")
        row = scheme.by_kind(document["kind"], group)
        metadata = document["metadata"]
        where = metadata.get("namespace", namespace) if row.namespaced else ""
        path = row.path(where, metadata["name"], version=version)
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        call = Call("PATCH", path, query, msgspec.json.encode(document), APPLY_PATCH)
        answer = await self.client.transport.request(call)
        if answer.status >= 400:
            raise ApiError.from_answer(answer.status, answer.body)
        stored: dict[str, Any] = msgspec.json.decode(answer.body)
        return stored

    def pod(self, name: str, namespace: str = "default") -> Pod:
        return self.run(self.client.get(PODS, name, namespace))

    def claims_of(self, name: str, namespace: str = "default") -> list[ResourceClaim]:
        """The claims of a pod, in the order of its spec."""
        pod = self.pod(name, namespace)
        return [self.run(self.client.get(CLAIMS, each, namespace)) for each in claim_names_of_entries(pod)]

    def devices_of(self, name: str, namespace: str = "default") -> list[str]:
        """What a pod was given: `driver/pool/device`, claim by claim."""
        return [str(device_id(row)) for claim in self.claims_of(name, namespace) for row in allocation_results(claim)]

    def wait_until_running(self, name: str, namespace: str = "default", timeout_s: float = 20.0) -> Pod:
        return self.wait_for_pod(name, lambda pod: pod.status.phase == "Running", "Running", namespace, timeout_s)

    def wait_until_unschedulable(self, name: str, namespace: str = "default", timeout_s: float = 20.0) -> str:
        """The scheduler's message once it has said no."""

        def said_no(pod: Pod) -> bool:
            return any(each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions)

        pod = self.wait_for_pod(name, said_no, "unschedulable", namespace, timeout_s)
        return next(each.message for each in pod.status.conditions if each.type == "PodScheduled")

    def wait_until_gone(self, name: str, namespace: str = "default", timeout_s: float = 20.0) -> None:
        self.wait_until(
            lambda: self.run(self.client.find(PODS, name, namespace)) is None, f"pod {name} to be gone", timeout_s
        )

    def delete_pod(self, name: str, namespace: str = "default") -> None:
        self.run(self.client.delete(PODS, name, namespace))

    def wait_for_pod(
        self, name: str, holds: Callable[[Pod], bool], what: str, namespace: str = "default", timeout_s: float = 20.0
    ) -> Pod:
        found: list[Pod] = []

        def check() -> bool:
            found[:] = [self.pod(name, namespace)]
            return holds(found[0])

        def state() -> str:
            conditions = [f"{each.type}={each.status} {each.message}".strip() for each in found[0].status.conditions]
            return f"phase {found[0].status.phase}, {'; '.join(conditions)}"

        self.wait_until(check, f"pod {name} to be {what}", timeout_s, state)
        return found[0]

    def wait_until(
        self, holds: Callable[[], bool], what: str, timeout_s: float = 20.0, state: Callable[[], str] = lambda: ""
    ) -> None:
        """Look again and again until it holds; TimedOut says what was waited for and what is there instead."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise TimedOut(f"waited {timeout_s:g} s for {what}: {state()}")
            time.sleep(0.02)


@contextlib.contextmanager
def cluster(
    nodes: int = 1,
    devices: tuple[str, ...] = ("gpu",),
    *,
    gates: FeatureGates | None = None,
    data: Path | None = None,
    runtime_config: str = "",
    simulated: Sequence[NodeDescription] = (),
    with_controllers: bool = True,
    with_scheduler: bool = True,
) -> Iterator[Cluster]:
    """A cluster for as long as the block runs; with `data` its state stays there.

    `simulated` nodes come on top: pods on them run on paper. Without controllers or scheduler you bring your own.
    """
    gates = gates or FeatureGates.default()
    with tempfile.TemporaryDirectory(prefix="dray-t", ignore_cleanup_errors=True) as folder, _loop_in_thread() as loop:
        root = Path(folder)
        options = ControlPlaneOptions(
            data or root / "data",
            gates=gates,
            runtime_config=runtime_config,
            with_controllers=with_controllers,
            with_scheduler=with_scheduler,
        )
        plane = ControlPlane(options)

        kubelets: SimulatedKubelets

        async def start() -> RealNodes | SimulatedNodes:
            await plane.start()
            await plane.listen()
            nonlocal kubelets
            kubelets = SimulatedKubelets(plane.client("kubelet"), simulated)
            ca = plane.running.credentials.authority.certificate_pem
            started = make_nodes(
                plane.client("dray-testing"), NodesOptions(nodes, devices, root / "n", gates, cluster_ca=ca)
            )
            await asyncio.gather(started.start(), kubelets.start())
            return started

        async def stop(started: RealNodes | SimulatedNodes) -> None:
            await started.stop()
            await kubelets.stop()
            await plane.stop()

        running = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
        try:
            kubeconfig = root / "kubeconfig"
            kubeconfig.touch(mode=0o600)
            kubeconfig.write_text(plane.kubeconfig())
            yield Cluster(plane, running, loop, kubeconfig)
        finally:
            asyncio.run_coroutine_threadsafe(stop(running), loop).result(30)


@contextlib.contextmanager
def _loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="dray cluster", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_the_rest(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _cancel_the_rest() -> None:
    """Timers and the like that nobody waits for."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def _documents(manifest: str | Path | dict[str, Any]) -> list[dict[str, Any]]:
    if isinstance(manifest, dict):
        return [manifest]
    is_text = isinstance(manifest, str) and "\n" in manifest
    text = str(manifest) if is_text else Path(manifest).read_text()
    return [document for document in yaml.safe_load_all(text) if document]
