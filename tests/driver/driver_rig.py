"""A driver with its sockets, and the claims that the API would have. Tests speak to it as a kubelet does."""

from pathlib import Path

import grpc

from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from dray.client import ApiError
from dray.clock import RealClock
from dray.driver import (
    ContainerEdits,
    DeviceHealth,
    Driver,
    PreparedDevice,
    PrepareError,
)
from dray.driver.claim_files import CdiFiles, Checkpoint, DeviceMetadata
from dray.driver.prepare import ClaimPreparer
from dray.driver.running_driver import DriverServer, HealthReports
from dray.proto import (
    dra_v1_pb2,
    dra_v1_pb2_grpc,
)

DRIVER = "gpu.example.com"


class RecordingDriver(Driver):
    name = DRIVER

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pools(self, node_name):
        return []

    def prepare(self, claim):
        self.calls.append(f"prepare {claim.reference.name}")
        if claim.reference.name == "bad":
            raise PrepareError("fan is broken")
        if claim.reference.name == "bug":
            return 1 / 0
        return [
            PreparedDevice(
                device,
                ContainerEdits(
                    env=(f"GPU={device.device}", *(f"{k}={v}" for c in device.config for k, v in c.parameters.items()))
                ),
            )
            for device in claim.devices
        ]

    async def unprepare(self, claim):
        self.calls.append(f"unprepare {claim.name}")

    def health(self):
        return [DeviceHealth("node-1", "gpu-0", "Unhealthy", "hot", 30)]


def result(device="gpu-0", request="req", driver=DRIVER, **fields):
    return DeviceRequestAllocationResult(request=request, driver=driver, pool="node-1", device=device, **fields)


def allocated_claim(name="c", uid="", *results, config=(), annotations=None):
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results or (result(),), config=config))
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="ns", uid=uid or f"uid-{name}", annotations=annotations or {}),
        status=ResourceClaimStatus(allocation=allocation),
    )


class DriverRig:
    """A driver with its sockets, and the claims the API would have."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.driver = RecordingDriver()
        self.claims: dict[str, ResourceClaim] = {}
        self.service_socket = root / "plugins" / DRIVER / "dra.sock"
        self.registration_socket = root / "registry" / f"{DRIVER}-reg.sock"
        self.cdi_dir = root / "cdi"
        self.server: DriverServer | None = None
        self.missing_devices: set[str] = set()

    async def fetch(self, reference):
        try:
            return self.claims[f"{reference.namespace}/{reference.name}"]
        except KeyError:
            raise ApiError(404, "NotFound", f"{reference.name} not found") from None

    def has(self, claim: ResourceClaim) -> ResourceClaim:
        self.claims[f"{claim.metadata.namespace}/{claim.metadata.name}"] = claim
        return claim

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        assert self.server is not None
        await self.server.stop()

    async def start(self):
        data = self.root / "plugins" / DRIVER
        metadata = DeviceMetadata(DRIVER, data, self.cdi_dir, lambda device: {})
        preparer = ClaimPreparer(
            self.driver,
            self.fetch,
            Checkpoint(data / "prepared.json"),
            CdiFiles(self.cdi_dir, DRIVER),
            metadata,
            has_device=lambda pool, device: device not in self.missing_devices,
        )
        health = HealthReports(self.driver, RealClock(), 0.01)
        self.server = DriverServer(DRIVER, preparer, self.service_socket, self.registration_socket, health)
        await self.server.start()

    async def prepare(self, *claims, messages=dra_v1_pb2, stubs=dra_v1_pb2_grpc):
        async with grpc.aio.insecure_channel(
            f"unix://{self.service_socket}", options=(("grpc.use_local_subchannel_pool", 1),)
        ) as channel:
            stub = stubs.DRAPluginStub(channel)
            return await stub.NodePrepareResources(
                messages.NodePrepareResourcesRequest(claims=[self._message(messages, c) for c in claims]), timeout=10
            )

    async def unprepare(self, *claims):
        async with grpc.aio.insecure_channel(
            f"unix://{self.service_socket}", options=(("grpc.use_local_subchannel_pool", 1),)
        ) as channel:
            stub = dra_v1_pb2_grpc.DRAPluginStub(channel)
            return await stub.NodeUnprepareResources(
                dra_v1_pb2.NodeUnprepareResourcesRequest(claims=[self._message(dra_v1_pb2, c) for c in claims]),
                timeout=10,
            )

    @staticmethod
    def _message(messages, claim):
        return messages.Claim(namespace=claim.metadata.namespace, name=claim.metadata.name, uid=claim.metadata.uid)
