"""A conformance run for any driver: a cluster of one node in this process, the driver a process of its own.

The run plays the kubelet's part on the real sockets. Each check is told apart, so that a driver author sees what is missing.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dray.api.cdi import decode_spec
from dray.api.core import Node
from dray.client import CLAIMS, DEVICE_CLASSES, PODS, SLICES, ApiError, Client
from dray.clock import RealClock
from dray.kubelet.claims import CheckpointedDevice, PreparedClaim, new_claim_state
from dray.kubelet.container_specs import CdiDirectories
from dray.kubelet.drivers import DriverClient, Drivers
from dray.kubelet.errors import ContainerError, DriverError
from dray.kubelet.node import NodeDescription, NodeRegistration
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from dray.testing.driver_process import DriverProcess, Target

NODE = "conformance"
NAMESPACE = "default"
CLASS = "under-test"


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """What became of one check: `problem` is empty when it passed."""

    check: str
    problem: str = ""
    skipped: str = ""


class CheckFailed(Exception):
    """The driver did something it should not."""


class Skipped(Exception):
    """The check cannot be made with this driver."""


T = TypeVar("T")
Answers = dict[str, list[CheckpointedDevice] | str]


class Rig:
    """The driver, the cluster around it, and the kubelet's side of its sockets."""

    def __init__(
        self, plane: ControlPlane, process: DriverProcess, root: Path, cdi_dir: Path, timeout_s: float
    ) -> None:
        self.client: Client = plane.client("driver-test")
        self.process = process
        self.root = root
        self.cdi_dir = cdi_dir
        self.timeout_s = timeout_s
        self.drivers = Drivers(root / "plugins_registry", RealClock(), self._leave_slices)
        self.driver = ""
        self._looking: asyncio.Task[None] | None = None
        self._count = 0
        self._open: dict[str, PreparedClaim | None] = {}

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

    async def registered(self, before: DriverClient | None = None) -> DriverClient:
        """The endpoint that the driver registered, other than the one `before` a restart."""

        async def endpoint() -> DriverClient | None:
            found = self._newest_endpoint()
            return found if found is not None and found is not before and found.is_connected else None

        what = "the driver to register in plugins_registry and to serve its endpoint"
        return await self.until(endpoint, what, self._why_not_registered)

    def _why_not_registered(self) -> str:
        if problems := self.drivers.problems():
            return "; ".join(problems)
        found = self._newest_endpoint()
        if found is not None and not found.is_connected:
            return f"{found.driver} is registered, and nobody listens at {found.path}"
        registry = self.root / "plugins_registry"
        if found is None and not any(path.is_socket() for path in registry.iterdir()):
            return "no socket is there"
        return ""

    def _newest_endpoint(self) -> DriverClient | None:
        names = self.drivers.names()
        return self.drivers.endpoint(names[0]) if names else None

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
                raise CheckFailed(f"waited {self.timeout_s:g} s for {what}" + (f": {reason}" if reason else ""))
            await asyncio.sleep(0.05)

    def end(self) -> str:
        """How the driver ended."""
        return f"the driver ended with exit code {self.process.exit_code}: {self.process.last_words() or 'no output'}"

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

    async def a_claim(self, parameters: dict[str, object] | None = None) -> PreparedClaim:
        """A claim that the scheduler has given one of the driver's devices to, for a pod of this node."""
        self._count += 1
        name = f"claim-{self._count}"
        self._open[name] = None
        request = {"name": "device", "exactly": {"deviceClassName": CLASS, "count": 1}}
        devices: dict[str, object] = {"requests": [request]}
        if parameters is not None:
            devices["config"] = [{"opaque": {"driver": self.driver, "parameters": parameters}}]
        metadata = {"name": name, "namespace": NAMESPACE}
        await self.client.create(
            CLAIMS,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": metadata,
                "spec": {"devices": devices},
            },
        )
        uses = {"claims": [{"name": "device"}]}
        spec = {
            "containers": [{"name": "main", "image": "none", "resources": uses}],
            "resourceClaims": [{"name": "device", "resourceClaimName": name}],
        }
        await self._create_pod({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

        async def allocated() -> PreparedClaim | None:
            claim = await self.client.get(CLAIMS, name, NAMESPACE)
            return new_claim_state(claim) if claim.status.allocation is not None and claim.status.reserved_for else None

        try:
            self._open[name] = claim = await self.until(allocated, f"a device for {name}")
            return claim
        except CheckFailed as error:
            await self.drop(name)
            raise Skipped(f"no device could be allocated: {error}") from error

    async def a_claim_for_missing_device(self) -> PreparedClaim:
        """A claim whose allocation names a device that is in none of the driver's slices."""
        self._count += 1
        name = f"claim-{self._count}"
        self._open[name] = None
        slices = (await self.client.list(SLICES, field_selector=f"spec.driver={self.driver}")).items
        request = {"name": "device", "exactly": {"deviceClassName": CLASS, "count": 1}}
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"devices": {"requests": [request]}},
        }
        await self.client.create(CLAIMS, document)
        result = {
            "request": "device",
            "driver": self.driver,
            "pool": slices[0].spec.pool.name,
            "device": "no-such-device",
        }
        status = {"allocation": {"devices": {"results": [result]}}}
        await self.client.patch(CLAIMS, name, {"status": status}, NAMESPACE, subresource="status")
        self._open[name] = claim = new_claim_state(await self.client.get(CLAIMS, name, NAMESPACE))
        return claim

    async def _create_pod(self, pod: dict[str, object]) -> None:
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

    async def drop(self, name: str) -> None:
        """The pod and its claim go, as after the end of a pod; controllers give the device back."""
        self._open.pop(name, None)
        for kind in (PODS, CLAIMS):
            with contextlib.suppress(ApiError):
                await self.client.delete(kind, name, NAMESPACE, grace_seconds=0)

    async def clear(self) -> None:
        """What a failed check left behind must not fail the next."""
        for name, claim in list(self._open.items()):
            with contextlib.suppress(CheckFailed, DriverError):
                if claim is not None:
                    await self.unprepare(claim)
            await self.drop(name)

    async def prepare(self, *claims: PreparedClaim) -> Answers:
        return await self.drivers.endpoint(self.driver).prepare(claims, self.timeout_s)

    async def prepared(self, claim: PreparedClaim) -> list[CheckpointedDevice]:
        answer = (await self.prepare(claim)).get(claim.uid)
        if answer is None:
            raise CheckFailed(f"the answer has no entry for claim {claim.name}")
        if isinstance(answer, str):
            raise CheckFailed(f"claim {claim.name} was refused: {answer}")
        return answer

    async def unprepare(self, *claims: PreparedClaim) -> None:
        answers = await self.drivers.endpoint(self.driver).unprepare(claims, self.timeout_s)
        for claim in claims:
            if claim.uid not in answers:
                raise CheckFailed(f"the answer to unprepare has no entry for claim {claim.name}")
            if answers[claim.uid]:
                raise CheckFailed(f"claim {claim.name} was not given back: {answers[claim.uid]}")

    def cdi_files(self) -> set[str]:
        return {path.name for path in self.cdi_dir.glob("*") if not path.name.startswith(".")}

    def resolve(self, devices: Sequence[CheckpointedDevice]) -> None:
        names = [name for device in devices for name in device.cdi_device_ids]
        try:
            CdiDirectories([self.cdi_dir]).edits_for(names)
        except ContainerError as error:
            broken = "".join(f"; CDI file {name}: {problem}" for name, problem in self._broken_cdi_files())
            raise CheckFailed(f"a container runtime could not use the answer: {error}{broken}") from error

    def _broken_cdi_files(self) -> Iterator[tuple[str, str]]:
        for path in sorted(self.cdi_dir.glob("*.json")):
            try:
                decode_spec(path.read_bytes())
            except (OSError, ValueError) as error:
                yield path.name, str(error)

    async def revisions(self) -> dict[str, str]:
        found = (await self.client.list(SLICES, field_selector=f"spec.driver={self.driver}")).items
        return {each.metadata.name: each.metadata.resource_version for each in found}


@contextlib.asynccontextmanager
async def rig_for(target: Target, timeout_s: float) -> AsyncIterator[Rig]:
    """A control plane, a Node, and the driver told of both."""
    # Short: the path of a socket may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="dray-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        plane = ControlPlane(ControlPlaneOptions(root / "data"))
        await plane.start()
        await plane.listen()
        kubeconfig = root / "kubeconfig"
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(plane.kubeconfig())
        await _make_node(plane.client("driver-test"))
        (root / "n" / "plugins_registry").mkdir(parents=True)
        cdi_dir = root / "cdi"
        cdi_dir.mkdir()
        process = DriverProcess(target, root / "driver.log", kubeconfig, NODE, root / "n", cdi_dir)
        rig = Rig(plane, process, root / "n", cdi_dir, timeout_s)
        try:
            await rig.start()
            yield rig
        finally:
            await rig.stop()
            await plane.stop()


async def _make_node(client: Client) -> Node:
    return await NodeRegistration(client, NodeDescription.simple(NODE, "64", "256Gi")).register()


async def make_class(rig: Rig) -> None:
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
