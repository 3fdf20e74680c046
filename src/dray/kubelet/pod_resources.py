"""The pod-resources API: which pods of this node hold which devices, for monitoring agents on the node."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grpc

from dray.api.core import Container, Pod
from dray.atomic_files import private_folder
from dray.kubelet.claims import ClaimCache, ClaimRefused, PreparedClaim
from dray.kubelet.container_specs import requests_of_created_claims
from dray.proto import podresources_v1_pb2 as messages
from dray.proto import podresources_v1_pb2_grpc

SOCKET = Path("pod-resources") / "kubelet.sock"
MAX_SOCKET_PATH = 107


class PodResourcesServer(podresources_v1_pb2_grpc.PodResourcesListerServicer):
    """`v1.PodResourcesLister` on a unix socket below the agent's root directory."""

    def __init__(self, root_dir: Path, pods: Callable[[], Iterable[Pod]], cache: ClaimCache) -> None:
        self.socket = root_dir / SOCKET
        self._pods = pods
        self._cache = cache
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        if len(str(self.socket)) > MAX_SOCKET_PATH:
            raise OSError(f"socket path {self.socket} is longer than {MAX_SOCKET_PATH} characters")
        private_folder(self.socket.parent)
        self.socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        podresources_v1_pb2_grpc.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()
        self.socket.chmod(0o600)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self.socket.unlink(missing_ok=True)

    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802
        return messages.ListPodResourcesResponse(pod_resources=[self._of_pod(pod) for pod in self._pods()])

    async def Get(self, request: Any, context: Any) -> Any:  # noqa: N802
        for pod in self._pods():
            if (pod.metadata.name, pod.metadata.namespace) == (request.pod_name, request.pod_namespace):
                return messages.GetPodResourcesResponse(pod_resources=self._of_pod(pod))
        text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        return await context.abort(grpc.StatusCode.NOT_FOUND, text)

    def _of_pod(self, pod: Pod) -> Any:
        containers = [
            messages.ContainerResources(name=each.name, dynamic_resources=self._of_container(pod, each))
            for each in (*pod.spec.init_containers, *pod.spec.containers)
            if each in pod.spec.containers or each.restart_policy == "Always"
        ]
        return messages.PodResources(name=pod.metadata.name, namespace=pod.metadata.namespace, containers=containers)

    def _of_container(self, pod: Pod, container: Container) -> list[Any]:
        try:
            wanted = requests_of_created_claims(pod, container)
        except ClaimRefused:
            return []
        requests: dict[str, list[str]] = {}
        for claim_name, request in wanted:
            requests.setdefault(claim_name, []).append(request)
        states = ((self._cache.get(f"{pod.metadata.namespace}/{name}"), asked) for name, asked in requests.items())
        return [
            messages.DynamicResource(
                claim_name=state.name, claim_namespace=state.namespace, claim_resources=_resources(state, asked)
            )
            for state, asked in states
            if state is not None
        ]


def _resources(state: PreparedClaim, requests: list[str]) -> list[Any]:
    return [
        messages.ClaimResource(
            cdi_devices=[messages.CDIDevice(name=name) for name in device.cdi_device_ids],
            driver_name=driver,
            pool_name=device.pool,
            device_name=device.device,
            share_id=device.share_id,
        )
        for driver, driver_state in state.drivers.items()
        for device in driver_state.devices
        if any(device.serves(request) for request in requests)
    ]
