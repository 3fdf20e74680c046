"""A conformance run for any driver: a cluster of one node in this process, the driver a process of its own.

The run plays the kubelet's part on the real sockets. Each check is told apart, so that a driver author sees what is missing.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import grpc
import msgspec

from dray.api.cdi import ContainerEdits, decode_spec
from dray.api.core import Node
from dray.api.dra.consumption import allocation_results
from dray.api.meta import Status
from dray.api.quantity import Quantity
from dray.api.resource import DeviceRequestAllocationResult, ResourceSlice
from dray.apiserver.http.listener import request_of
from dray.client import CLAIMS, DEVICE_CLASSES, NAMESPACES, PODS, SLICES, ApiError, Client
from dray.clock import RealClock
from dray.http.connection import HttpRequest
from dray.http.responses import Response
from dray.kubelet.claims import PREPARE, UNPREPARE, CheckpointedDevice, PreparedClaim, new_claim_state
from dray.kubelet.container_specs import CdiDirectories
from dray.kubelet.drivers import DriverClient, Drivers
from dray.kubelet.errors import ContainerError, DriverError
from dray.kubelet.node import NodeDescription, NodeRegistration
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from dray.testing.driver_process import DriverProcess, Target

NODE = "conformance"
NAMESPACE = "default"
ADMIN_NAMESPACE = "driver-test-admin"
CLASS = "under-test"
REQUEST = "device"


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """What became of one check: it passed if `problem` and `skipped` are empty, with something to say if `warning` is not."""

    check: str
    problem: str = ""
    skipped: str = ""
    warning: str = ""


class CheckFailed(Exception):
    """The driver did something it should not."""


class Skipped(Exception):
    """The check cannot be made with this driver."""


class NotCalled(Skipped):
    """The kubelet leaves the driver alone with such devices."""


@dataclass(frozen=True, slots=True)
class WantedDevices:
    """What a claim of the run asks for: one device for each of its requests, any unless `selector` says which."""

    selector: str = ""
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    parameters: Mapping[str, object] | None = None
    requests: int = 1
    has_admin_access: bool = False
    tolerates_taints: bool = False
    is_prioritized: bool = False

    @property
    def namespace(self) -> str:
        return ADMIN_NAMESPACE if self.has_admin_access else NAMESPACE

    def devices(self, driver: str) -> dict[str, object]:
        """`spec.devices` of the claim."""
        asked = {"deviceClassName": CLASS, "count": 1, **dict(self._details())}
        names = [REQUEST, *(f"{REQUEST}-{number}" for number in range(2, self.requests + 1))]
        requests: list[dict[str, object]] = [
            {"name": name, "firstAvailable": [{"name": "first", **asked}]}
            if self.is_prioritized
            else {"name": name, "exactly": asked}
            for name in names
        ]
        if self.parameters is None:
            return {"requests": requests}
        return {
            "requests": requests,
            "config": [{"opaque": {"driver": driver, "parameters": dict(self.parameters)}}],
        }

    def _details(self) -> Iterator[tuple[str, object]]:
        if self.selector:
            yield "selectors", [{"cel": {"expression": self.selector}}]
        if self.capacity:
            yield "capacity", {"requests": {name: str(amount) for name, amount in self.capacity.items()}}
        if self.has_admin_access:
            yield "adminAccess", True
        if self.tolerates_taints:
            yield "tolerations", [{"operator": "Exists"}]


ANY_DEVICE = WantedDevices()
T = TypeVar("T")
Answers = dict[str, list[CheckpointedDevice] | str]


class SliceRefusals:
    """Stands before the API server for ResourceSlices, and notes which writes of the driver the server refuses."""

    PATHS = tuple(f"/apis/resource.k8s.io/{version}/resourceslices" for version in ("v1", "v1beta2", "v1beta1"))
    # A conflict or a missing object is a race that the driver tries to win again.
    CODES = frozenset({400, 413, 422})

    def __init__(self, plane: ControlPlane) -> None:
        self.texts: list[str] = []
        self._server = plane.running.server
        for path in self.PATHS:
            plane.running.mount(path, self._handle)

    async def _handle(self, request: HttpRequest) -> Response:
        response = await self._server.handle(request_of(request))
        if response.status in self.CODES and request.method in ("POST", "PUT", "PATCH"):
            text = msgspec.json.decode(response.body, type=Status).message
            if text not in self.texts:
                self.texts.append(text)
        return response


class Rig:
    """The driver, the cluster around it, and the kubelet's side of its sockets."""

    def __init__(
        self,
        plane: ControlPlane,
        process: DriverProcess,
        refusals: SliceRefusals,
        root: Path,
        cdi_dir: Path,
        timeout_s: float,
    ) -> None:
        self.client: Client = plane.client("driver-test")
        self.process = process
        self.refusals = refusals
        self.root = root
        self.cdi_dir = cdi_dir
        self.timeout_s = timeout_s
        self.drivers = Drivers(root / "plugins_registry", RealClock(), self._leave_slices)
        self.driver = ""
        self.slices: Sequence[ResourceSlice] = ()
        # What the check that runs now wants to be said although nothing is broken.
        self.warnings: list[str] = []
        self._looking: asyncio.Task[None] | None = None
        self._count = 0
        self._open: dict[tuple[str, str], PreparedClaim | None] = {}

    async def _leave_slices(self, driver: str) -> None:
        """A kubelet would remove the slices of a driver that stays away; here the next check looks at them."""

    async def start(self) -> None:
        self._looking = asyncio.create_task(self.drivers.run(), name="registration")
        await self.process.start()

    async def stop(self) -> None:
        await self.process.kill()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    async def registered(self, before: DriverClient | None = None) -> DriverClient:
        """The endpoint that the driver registered, other than the one `before` a restart."""

        async def endpoint() -> DriverClient | None:
            found = self._newest_endpoint()
            return found if found is not None and found is not before and found.is_connected else None

        what = "the driver to register in plugins_registry and to serve its endpoint"
        return await self.until(endpoint, what, lambda: self._why_not_registered(before))

    def _why_not_registered(self, before: DriverClient | None) -> str:
        if problems := self.drivers.problems():
            return "; ".join(problems)
        found = self._newest_endpoint()
        if found is not None and found is before:
            return "since its restart it has not made its registration socket anew"
        if found is not None and not found.is_connected:
            return f"{found.driver} is registered, and nobody listens at {found.path}"
        registry = self.root / "plugins_registry"
        if found is None and not any(path.is_socket() for path in registry.iterdir()):
            return "no socket is there"
        return ""

    def _newest_endpoint(self) -> DriverClient | None:
        names = self.drivers.names()
        return self.drivers.endpoint(names[0]) if names else None

    @property
    def endpoint(self) -> DriverClient:
        return self.drivers.endpoint(self.driver)

    async def until(
        self, ask: Callable[[], Awaitable[T | None]], what: str, why_not: Callable[[], str] = lambda: ""
    ) -> T:
        """The first answer that is something; CheckFailed after the time is up or when the driver has ended."""
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        while True:
            found = await ask()
            if found:
                return found
            if self.process.has_ended:
                raise CheckFailed(self.end())
            if asyncio.get_running_loop().time() > deadline:
                reason = why_not()
                raise CheckFailed(f"waited {self.limit} for {what}" + (f": {reason}" if reason else ""))
            await asyncio.sleep(0.05)

    @property
    def limit(self) -> str:
        """The time limit of each step, with the option that sets it."""
        return f"{self.timeout_s:g} s (--timeout)"

    def end(self) -> str:
        """How the driver ended."""
        silent = (
            "no output"
            if self.process.exit_code
            else "no output; a driver must serve until SIGTERM, such as by run(...)"
        )
        why = self.process.fatal_exception() or self.process.last_words() or silent
        return f"the driver ended with exit code {self.process.exit_code}: {why}"

    async def restart(self) -> None:
        """As after a crash: no warning, and everything only on disk stays.

        The endpoint from before connects by itself as soon as the driver listens again, and is closed when the driver
        registers anew: a call in between would be cut off. So only the new registration counts.
        """
        before = self._newest_endpoint()
        await self.process.kill()
        await self.process.start()
        await self.registered(before)

    # --- claims

    async def a_claim(self, ask: WantedDevices = ANY_DEVICE) -> PreparedClaim:
        """A claim that the scheduler has given devices of the driver to, for a pod of this node."""
        name = self._new_name(ask.namespace)
        metadata = {"name": name, "namespace": ask.namespace}
        await self._create_claim(metadata, ask)
        uses = {"claims": [{"name": "device"}]}
        spec = {
            "containers": [{"name": "main", "image": "none", "resources": uses}],
            "resourceClaims": [{"name": "device", "resourceClaimName": name}],
        }
        await self._create_pod({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        told = ""

        async def allocated() -> PreparedClaim | None:
            nonlocal told
            claim = await self.client.get(CLAIMS, name, ask.namespace)
            if claim.status.allocation is not None and claim.status.reserved_for:
                return replace(new_claim_state(claim), claim=claim)
            conditions = (await self.client.get(PODS, name, ask.namespace)).status.conditions
            told = next((each.message for each in conditions if each.type == "PodScheduled"), "")
            return None

        try:
            claim = await self.until(allocated, f"a device for {name}", lambda: told)
        except CheckFailed as error:
            await self._remove(ask.namespace, name)
            raise Skipped(f"no device could be allocated: {error}") from error
        if claim.drivers[self.driver].skips(PREPARE):
            await self._remove(ask.namespace, name)
            raise NotCalled(f"its slices list {PREPARE} in skipNodeOperations, so that no kubelet calls it")
        self._open[ask.namespace, name] = claim
        return claim

    def _new_name(self, namespace: str) -> str:
        self._count += 1
        name = f"claim-{self._count}"
        self._open[namespace, name] = None
        return name

    async def _create_claim(self, metadata: dict[str, str], ask: WantedDevices) -> None:
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": metadata,
            "spec": {"devices": ask.devices(self.driver)},
        }
        await self.client.create(CLAIMS, document)

    async def a_claim_for_missing_device(self) -> PreparedClaim:
        """A claim whose allocation names a device that is in none of the driver's slices."""
        name = self._new_name(NAMESPACE)
        await self._create_claim({"name": name, "namespace": NAMESPACE}, ANY_DEVICE)
        result = {
            "request": REQUEST,
            "driver": self.driver,
            "pool": self.slices[0].spec.pool.name,
            "device": "no-such-device",
        }
        status = {"allocation": {"devices": {"results": [result]}}}
        await self.client.patch(CLAIMS, name, {"status": status}, NAMESPACE, subresource="status")
        self._open[NAMESPACE, name] = claim = new_claim_state(await self.client.get(CLAIMS, name, NAMESPACE))
        return claim

    async def _create_pod(self, pod: dict[str, Any]) -> None:
        """A new namespace has no service account for a moment, and no pods until then."""

        async def created() -> bool:
            try:
                await self.client.create(PODS, pod)
            except ApiError as error:
                if error.code != 403:
                    raise
                return False
            return True

        await self.until(created, "the namespace to take pods")

    async def drop(self, claim: PreparedClaim) -> None:
        """The pod and its claim go, as after the end of a pod; controllers give the device back."""
        await self._remove(claim.namespace, claim.name)

    async def _remove(self, namespace: str, name: str) -> None:
        self._open.pop((namespace, name), None)
        for kind in (PODS, CLAIMS):
            with contextlib.suppress(ApiError):
                await self.client.delete(kind, name, namespace, grace_seconds=0)

    async def give_back(self, claim: PreparedClaim) -> None:
        await self.unprepare(claim)
        await self.drop(claim)

    async def clear(self) -> None:
        """What a failed check left behind must not fail the next."""
        for (namespace, name), claim in list(self._open.items()):
            with contextlib.suppress(CheckFailed, DriverError):
                if claim is not None:
                    await self.unprepare(claim)
            await self._remove(namespace, name)

    # --- calls

    async def prepare(self, *claims: PreparedClaim) -> Answers:
        with self._in_time(PREPARE):
            return await self.endpoint.prepare(claims, self.timeout_s)

    async def prepared(self, claim: PreparedClaim) -> list[CheckpointedDevice]:
        answer = (await self.prepare(claim)).get(claim.uid)
        if answer is None:
            raise CheckFailed(f"the answer has no entry for claim {claim.name}")
        if isinstance(answer, str):
            raise CheckFailed(f"claim {claim.name} was refused: {answer}")
        return answer

    async def unprepare(self, *claims: PreparedClaim) -> None:
        with self._in_time(UNPREPARE):
            answers = await self.endpoint.unprepare(claims, self.timeout_s)
        for claim in claims:
            if claim.uid not in answers:
                raise CheckFailed(f"the answer to unprepare has no entry for claim {claim.name}")
            if answers[claim.uid]:
                raise CheckFailed(f"claim {claim.name} was not given back: {answers[claim.uid]}")

    @contextlib.contextmanager
    def _in_time(self, method: str) -> Iterator[None]:
        try:
            yield
        except DriverError as error:
            if not _is_late(error):
                raise
            raise CheckFailed(f"{method} gave no answer within {self.limit}") from error

    async def usable(self, claim: PreparedClaim) -> list[CheckpointedDevice]:
        """The answer for a claim, once it was seen to fit the claim and to be of use to a container runtime."""
        devices = await self.prepared(claim)
        self._compare(claim, devices)
        self.resolve(devices)
        return devices

    def _compare(self, claim: PreparedClaim, devices: Sequence[CheckpointedDevice]) -> None:
        given = self.given(claim)
        for device in devices:
            results = [each for each in given if (each.pool, each.device) == (device.pool, device.device)]
            if not results:
                raise CheckFailed(f"the answer has device {device.pool}/{device.device}, which the claim was not given")
            _compare_requests(device, results)
            if device.share_id and device.share_id not in {each.share_id for each in results}:
                raise CheckFailed(f"the answer has share {device.share_id}, which the claim was not given")
            if not device.share_id and any(each.share_id for each in results):
                self.warn(f"the answer for {device.pool}/{device.device} leaves the share's ID out")
        told = len({(each.pool, each.device, each.share_id, each.requests) for each in devices})
        if told < len(given):
            names = {(each.pool, each.device) for each in devices}
            missing = [f"{each.pool}/{each.device}" for each in given if (each.pool, each.device) not in names]
            self.warn(
                f"the answer has {told} of the {len(given)} devices that the claim was given"
                + (f", without {', '.join(missing)}" if missing else "")
                + "; Kubernetes takes it, but containers get nothing of the rest and nobody is told of its health"
            )

    def given(self, claim: PreparedClaim) -> list[DeviceRequestAllocationResult]:
        """What the scheduler gave the claim of this driver's devices."""
        results = allocation_results(claim.claim) if claim.claim is not None else ()
        return [each for each in results if each.driver == self.driver]

    # --- what containers would get

    def cdi_files(self) -> set[str]:
        return {path.name for path in self.cdi_dir.glob("*") if not path.name.startswith(".")}

    def resolve(self, devices: Sequence[CheckpointedDevice]) -> None:
        names = [name for device in devices for name in device.cdi_device_ids]
        try:
            edits = CdiDirectories([self.cdi_dir]).edits_for(names)
        except ContainerError as error:
            broken = "".join(f"; CDI file {name}: {problem}" for name, problem in self._broken_cdi_files())
            raise CheckFailed(f"a container runtime could not use the answer: {error}{broken}") from error
        for what, path in _host_files(edits):
            if not path.exists():
                raise CheckFailed(f"no container could start with the answer: {what} {path} does not exist")

    def _broken_cdi_files(self) -> Iterator[tuple[str, str]]:
        for path in sorted(self.cdi_dir.glob("*.json")):
            try:
                decode_spec(path.read_bytes())
            except (OSError, ValueError) as error:
                yield path.name, str(error)

    async def published(self) -> Sequence[ResourceSlice]:
        return (await self.client.list(SLICES, field_selector=f"spec.driver={self.driver}")).items

    async def revisions(self) -> dict[str, str]:
        return {each.metadata.name: each.metadata.resource_version for each in await self.published()}


def _is_late(error: DriverError) -> bool:
    cause = error.__cause__
    if isinstance(cause, grpc.aio.AioRpcError):
        return cause.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return isinstance(cause, TimeoutError)


def _compare_requests(device: CheckpointedDevice, results: Sequence[DeviceRequestAllocationResult]) -> None:
    """A driver may name a request with the chosen alternative or without."""
    names = {each.request for each in results}
    allowed = names | {name.partition("/")[0] for name in names}
    if wrong := sorted(set(device.requests) - allowed):
        raise CheckFailed(
            f"device {device.pool}/{device.device} is said to be for request {', '.join(wrong)}; "
            f"the claim was given it for request {', '.join(sorted(names))}"
        )


def _host_files(edits: ContainerEdits) -> Iterator[tuple[str, Path]]:
    """Files of this machine that a runtime needs to start a container with these edits."""
    for mount in edits.mounts:
        if mount.type in ("", "bind"):
            yield "the source of a mount,", Path(mount.host_path)
    for node in edits.device_nodes:
        if not (node.type and node.major):
            yield "device node", Path(node.host_path or node.path)
    for hook in edits.hooks:
        yield "the program of a hook,", Path(hook.path)


@contextlib.asynccontextmanager
async def rig_for(target: Target, timeout_s: float) -> AsyncIterator[Rig]:
    """A control plane, a Node, and the driver told of both."""
    # Short: the path of a socket may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="dray-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        plane = ControlPlane(ControlPlaneOptions(root / "data"))
        await plane.start()
        refusals = SliceRefusals(plane)
        await plane.listen()
        kubeconfig = root / "kubeconfig"
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(plane.kubeconfig())
        await _make_node(plane.client("driver-test"))
        (root / "n" / "plugins_registry").mkdir(parents=True)
        cdi_dir = root / "cdi"
        cdi_dir.mkdir()
        process = DriverProcess(target, root / "driver.log", kubeconfig, NODE, root / "n", cdi_dir)
        rig = Rig(plane, process, refusals, root / "n", cdi_dir, timeout_s)
        try:
            await rig.start()
            yield rig
        finally:
            await rig.stop()
            await plane.stop()


async def _make_node(client: Client) -> Node:
    """With all that devices may be counted in."""
    node = NodeDescription.simple(NODE, "64", "256Gi")
    huge_pages = dict.fromkeys(("hugepages-2Mi", "hugepages-1Gi"), Quantity.parse("64Gi"))
    return await NodeRegistration(client, replace(node, capacity={**node.capacity, **huge_pages})).register()


async def make_class(rig: Rig) -> None:
    """The class that claims of the run name, and a namespace whose claims may have admin access."""
    selector = {"cel": {"expression": f'device.driver == "{rig.driver}"'}}
    await rig.client.create(
        DEVICE_CLASSES,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": CLASS},
            "spec": {"selectors": [selector]},
        },
    )
    labels = {"resource.kubernetes.io/admin-access": "true"}
    await rig.client.create(
        NAMESPACES,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ADMIN_NAMESPACE, "labels": labels}},
    )
