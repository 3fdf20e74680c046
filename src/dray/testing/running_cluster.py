"""A cluster in a thread, with helpers that wait."""

import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from dray.api import scheme
from dray.api.core import Event, Pod
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_claims import claim_names_of_entries
from dray.api.dra.pod_phase import is_finished
from dray.api.dra.pools import device_id
from dray.api.resource import ResourceClaim
from dray.client import CLAIMS, EVENTS, NAMESPACES, PODS, ApiError, Client
from dray.client.rest import APPLY_PATCH
from dray.client.transport import Call
from dray.driver import Driver
from dray.explain.pod_text import short_text_of
from dray.explain.verdicts import PodNotFound, PodVerdict
from dray.features import FeatureGates
from dray.kubelet.node import NodeDescription
from dray.kubelet.simulated_kubelets import SimulatedKubelets
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from dray.sim.live_explanation import explain_in_cluster
from dray.sim.node_pools import DriverSource, NodePool, check_node_pools, read_node_pools
from dray.sim.nodes import Nodes, make_nodes
from dray.testing.manifests import Manifest, ObjectPath, documents_of, paths_of

T = TypeVar("T")
FIELD_MANAGER = "dray-testing"
START_WITHIN_S = 60.0
LOG_LINES = 5


class TimedOut(AssertionError):
    """What was waited for did not happen; the text says why, and what would help."""


class Cluster:
    """A running control plane with nodes. Made by `cluster()`.

    Helpers raise without the frames of Dray in a test's traceback.
    """

    def __init__(
        self,
        plane: ControlPlane,
        nodes: Nodes,
        loop: asyncio.AbstractEventLoop,
        kubeconfig: Path,
        gates: FeatureGates,
    ) -> None:
        self.plane = plane
        self.nodes = nodes
        self.kubeconfig = kubeconfig
        self.url = plane.url
        self.client: Client = plane.client("dray-testing")
        self._loop = loop
        self._gates = gates

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = 30.0) -> T:
        """Run a coroutine in the cluster's own loop and wait for its answer."""
        __tracebackhide__ = True
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        """As `run`, without the way of an exception through Dray."""
        __tracebackhide__ = True
        try:
            return self.run(work)
        except Exception as error:
            raise error.with_traceback(None) from None

    # --- objects

    def apply(self, *manifests: Manifest, namespace: str = "default") -> list[dict[str, Any]]:
        """Server-side apply of files, YAML text or documents, in order; the answer holds them as stored."""
        __tracebackhide__ = True
        stored = []
        for path, document in _read(
            lambda: [(ObjectPath.of(each, namespace), each) for each in documents_of(manifests)]
        ):
            stored.append(self._ask(self._apply(path, document)))
        return stored

    async def _apply(self, path: ObjectPath, document: dict[str, Any]) -> dict[str, Any]:
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        call = Call("PATCH", path.url, query, msgspec.json.encode(document), APPLY_PATCH)
        answer = await self.client.transport.request(call)
        if answer.status >= 400:
            raise ApiError.from_answer(answer.status, answer.body)
        stored: dict[str, Any] = msgspec.json.decode(answer.body)
        return stored

    def delete(self, *manifests: Manifest, namespace: str = "default", timeout_s: float = 30.0) -> None:
        """Delete what `apply` would make of these, the last one first, or objects by `kind/name`; wait until they are gone.

        Objects that are not there are fine.
        """
        __tracebackhide__ = True
        paths = _read(lambda: list(paths_of(manifests, namespace))[::-1])
        for path in paths:
            self._ask(self._delete(path))
        for path in paths:
            self.wait_until(lambda path=path: not self._ask(self._exists(path)), f"{path} to be gone", timeout_s)  # type: ignore[misc]

    async def _delete(self, path: ObjectPath) -> None:
        try:
            await self.client.raw("DELETE", path.url)
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def _exists(self, path: ObjectPath) -> bool:
        try:
            await self.client.raw("GET", path.url)
        except ApiError as error:
            if error.is_not_found:
                return False
            raise
        return True

    def objects(self, kind: str, namespace: str = "") -> list[dict[str, Any]]:
        """Documents of a kind, by any name of it that kubectl knows; of all namespaces unless one is named."""
        __tracebackhide__ = True
        row = scheme.find(kind)
        if row is None:
            raise ValueError(f"{kind!r} is no kind that the API server knows")
        found = msgspec.json.decode(self._ask(self.client.raw("GET", row.path(namespace))).body)
        documents: list[dict[str, Any]] = found["items"]
        return documents

    def make_namespace(self, name: str) -> str:
        """A namespace in which pods can be made at once."""
        __tracebackhide__ = True
        self._ask(self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        account = ObjectPath.parse("serviceaccount/default", name)
        self.wait_until(lambda: self._ask(self._exists(account)), f"namespace {name} to take pods")
        return name

    # --- pods and what is known of them

    def pod(self, name: str, namespace: str = "default") -> Pod:
        __tracebackhide__ = True
        return self._ask(self.client.get(PODS, name, namespace))

    def claims_of(self, name: str, namespace: str = "default") -> list[ResourceClaim]:
        """The claims of a pod, in the order of its spec."""
        __tracebackhide__ = True
        claims = []
        for each in claim_names_of_entries(self.pod(name, namespace)):
            claims.append(self._ask(self.client.get(CLAIMS, each, namespace)))
        return claims

    def devices_of(self, name: str, namespace: str = "default") -> list[str]:
        """What a pod was given: `driver/pool/device`, claim by claim."""
        __tracebackhide__ = True
        return [str(device_id(row)) for claim in self.claims_of(name, namespace) for row in allocation_results(claim)]

    def logs(self, name: str, namespace: str = "default", container: str = "") -> str:
        """What a container has printed so far, as `kubectl logs` shows it."""
        __tracebackhide__ = True
        path = f"{ObjectPath.parse(f'pod/{name}', namespace).url}/log"
        query = {"container": container} if container else None
        return self._ask(self.client.raw("GET", path, query=query)).body.decode(errors="replace")

    def events(self, name: str = "", namespace: str = "default") -> list[Event]:
        """Events about the object of this name, or about all, in the order of their time."""
        __tracebackhide__ = True
        found = self._ask(self.client.list(EVENTS, namespace)).items
        about = [event for event in found if name in ("", event.involved_object.name)]
        return sorted(about, key=lambda event: event.last_timestamp or event.event_time or "")

    def explain(self, name: str, namespace: str = "default") -> str:
        """Why a pod waits or does not start, and what would help, in a few lines; `dray explain` says more."""
        __tracebackhide__ = True
        return short_text_of(self.verdict(name, namespace))

    def verdict(self, name: str, namespace: str = "default") -> PodVerdict:
        """The explanation as data: its `code`, `headline`, `helps`, and a verdict for each node."""
        __tracebackhide__ = True
        return self._ask(explain_in_cluster(self.client, namespace, name, self._gates))

    def driver(self, name: str, node: str = "") -> Driver:
        """The driver of this name that serves on a node; on the first that has it, unless the node is named."""
        __tracebackhide__ = True
        for each in self.nodes.drivers:
            if each.driver.name == name and node in ("", each.node_name):
                return each.driver
        raise LookupError(f"no driver {name} serves on {node or 'any node'}")

    # --- waiting

    def wait_until_running(self, name: str, namespace: str = "default", timeout_s: float = 20.0) -> Pod:
        __tracebackhide__ = True
        return self.wait_for_pod(name, lambda pod: pod.status.phase == "Running", "Running", namespace, timeout_s)

    def wait_until_succeeded(self, name: str, namespace: str = "default", timeout_s: float = 20.0) -> Pod:
        __tracebackhide__ = True
        return self.wait_for_pod(name, lambda pod: pod.status.phase == "Succeeded", "Succeeded", namespace, timeout_s)

    def wait_until_unschedulable(self, name: str, namespace: str = "default", timeout_s: float = 20.0) -> str:
        """The scheduler's message once it has said no."""
        __tracebackhide__ = True

        def said_no(pod: Pod) -> bool:
            return any(each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions)

        pod = self.wait_for_pod(name, said_no, "unschedulable", namespace, timeout_s)
        return next(each.message for each in pod.status.conditions if each.type == "PodScheduled")

    def wait_until_gone(self, name: str, namespace: str = "default", timeout_s: float = 20.0) -> None:
        __tracebackhide__ = True
        pod = ObjectPath.parse(f"pod/{name}", namespace)
        self.wait_until(lambda: not self._ask(self._exists(pod)), f"pod {name} to be gone", timeout_s)

    def wait_for_log(self, name: str, text: str, namespace: str = "default", timeout_s: float = 20.0) -> str:
        """The log of a pod once `text` is in it."""
        __tracebackhide__ = True
        found = ""

        def is_there() -> bool:
            nonlocal found
            found = self._logs_so_far(name, namespace)
            return text in found

        self.wait_until(is_there, f"pod {name} to print {text!r}", timeout_s, lambda: self._why(name, namespace))
        return found

    def delete_pod(self, name: str, namespace: str = "default") -> None:
        """Begin the deletion of a pod; `delete` also waits for its end."""
        __tracebackhide__ = True
        self._ask(self.client.delete(PODS, name, namespace))

    def wait_for_pod(
        self, name: str, holds: Callable[[Pod], bool], what: str, namespace: str = "default", timeout_s: float = 20.0
    ) -> Pod:
        """The pod once it `holds`; TimedOut explains why it does not, at once if the pod has finished without it."""
        __tracebackhide__ = True
        found: list[Pod] = []

        def check() -> bool:
            __tracebackhide__ = True
            pod = self._ask(self.client.find(PODS, name, namespace))
            found[:] = [pod] if pod is not None else []
            if pod is None or holds(pod):
                return pod is not None
            if is_finished(pod):
                raise TimedOut(f"pod {name} has finished without being {what}\n{self._why(name, namespace)}")
            return False

        self.wait_until(check, f"pod {name} to be {what}", timeout_s, lambda: self._why(name, namespace))
        return found[0]

    def wait_until(
        self, holds: Callable[[], bool], what: str, timeout_s: float = 20.0, state: Callable[[], str] = lambda: ""
    ) -> None:
        """Look again and again until it holds; TimedOut says what was waited for and what is there instead."""
        __tracebackhide__ = True
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                why = state()
                text = f"waited {timeout_s:g} s for {what}"
                raise TimedOut(f"{text}\n{why}" if "\n" in why else f"{text}: {why.strip()}" if why else text)
            time.sleep(0.02)

    def _why(self, name: str, namespace: str) -> str:
        """The explanation of a pod, and the end of what it has printed."""
        try:
            lines = self.explain(name, namespace).splitlines()
        except PodNotFound:
            pods = [each.metadata.name for each in self._ask(self.client.list(PODS, namespace)).items]
            return f"there is no such pod in namespace {namespace}; pods there: {', '.join(pods) or 'none'}"
        printed = self._logs_so_far(name, namespace).splitlines()[-LOG_LINES:]
        lines += [f"  printed: {line}" for line in printed] if printed else []
        return "\n".join(f"  {line}" for line in lines)

    def _logs_so_far(self, name: str, namespace: str) -> str:
        """Nothing, where there are none yet."""
        try:
            return self.logs(name, namespace)
        except ApiError:
            return ""


def _read(read: Callable[[], T]) -> T:
    """What is read of manifests, without the way of an exception through Dray."""
    __tracebackhide__ = True
    try:
        return read()
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise error.with_traceback(None) from None


# --- start and end --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def cluster(
    nodes: int | str | Path | Sequence[NodePool] = 1,
    devices: Sequence[str] | None = None,
    *,
    drivers: Sequence[DriverSource] = (),
    gates: FeatureGates | None = None,
    data: Path | None = None,
    runtime_config: str = "",
    simulated: Sequence[NodeDescription] = (),
    with_controllers: bool = True,
    with_scheduler: bool = True,
) -> Iterator[Cluster]:
    """A cluster for as long as the block runs; with `data` its state stays there.

    `nodes` is their number, a sequence of node pools, or the file that `dray up --node-pools` takes. Nodes of a mere number
    have `devices`, which names drivers that come with Dray (the gpu driver unless `drivers` are given), and `drivers` of
    your own: `MyDriver()` for one node, the class or another function that makes one for several.

    `simulated` nodes come on top: pods on them run on paper. Without controllers or scheduler you bring your own.
    """
    __tracebackhide__ = True
    gates = gates or FeatureGates.default()
    pools = _pools(nodes, devices, drivers)
    with tempfile.TemporaryDirectory(prefix="dray-t", ignore_cleanup_errors=True) as folder, _loop_in_thread() as loop:
        root = Path(folder)
        options = ControlPlaneOptions(
            data or root / "data",
            gates=gates,
            runtime_config=runtime_config,
            with_controllers=with_controllers,
            with_scheduler=with_scheduler,
        )
        starting = _started(ControlPlane(options), pools, simulated, root / "n", gates)
        parts = asyncio.run_coroutine_threadsafe(starting, loop).result(START_WITHIN_S)
        try:
            kubeconfig = root / "kubeconfig"
            kubeconfig.touch(mode=0o600)
            kubeconfig.write_text(parts.plane.kubeconfig())
            yield Cluster(parts.plane, parts.nodes, loop, kubeconfig, gates)
        finally:
            asyncio.run_coroutine_threadsafe(parts.stop(), loop).result(30)


def _pools(
    nodes: int | str | Path | Sequence[NodePool], devices: Sequence[str] | None, drivers: Sequence[DriverSource]
) -> Sequence[NodePool]:
    __tracebackhide__ = True
    if isinstance(nodes, int):
        names = tuple(devices) if devices is not None else () if drivers else ("gpu",)
        pools: Sequence[NodePool] = [NodePool(count=nodes, devices=names, drivers=tuple(drivers))]
    elif devices is not None or drivers:
        raise TypeError("devices and drivers are those of the node pools, if nodes are given as pools")
    else:
        pools = read_node_pools(Path(nodes)) if isinstance(nodes, str | Path) else nodes
    check_node_pools(pools)
    return pools


@dataclass(frozen=True, slots=True)
class _Parts:
    """What runs in the loop."""

    plane: ControlPlane
    nodes: Nodes
    kubelets: SimulatedKubelets

    async def stop(self) -> None:
        await self.nodes.stop()
        await self.kubelets.stop()
        await self.plane.stop()


async def _started(
    plane: ControlPlane,
    pools: Sequence[NodePool],
    simulated: Sequence[NodeDescription],
    root: Path,
    gates: FeatureGates,
) -> _Parts:
    """A start that fails leaves nothing behind."""
    await plane.start()
    await plane.listen()
    ca = plane.running.credentials.authority.certificate_pem
    nodes = make_nodes(plane.client("dray-testing"), pools, root, gates, ca)
    parts = _Parts(plane, nodes, SimulatedKubelets(plane.client("kubelet"), simulated))
    try:
        await asyncio.gather(parts.nodes.start(), parts.kubelets.start())
    except BaseException:
        await parts.stop()
        raise
    return parts


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
