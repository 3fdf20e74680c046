"""The CRI runtime against a server that keeps the contract and remembers what it was asked."""

import asyncio
import itertools

import grpc
import pytest

from dray.accounting import CgroupValues
from dray.api.cdi import ContainerEdits
from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime import cri as cri_runtime
from dray.kubelet.runtime.cri import CriRuntime
from dray.kubelet.runtime.interface import ContainerSpec
from dray.proto import cri_v1_pb2 as cri
from dray.proto import cri_v1_pb2_grpc

POD = Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="pod-uid", labels={"app": "x"}))


class ContractRuntime(cri_v1_pb2_grpc.RuntimeServiceServicer, cri_v1_pb2_grpc.ImageServiceServicer):
    """States as CRI demands: a container is created, started, stopped; nothing runs in a sandbox that is gone."""

    def __init__(self):
        self.images: set[str] = set()
        self.sandboxes: dict[str, cri.PodSandboxConfig] = {}
        self.containers: dict[str, dict] = {}
        self._numbers = itertools.count(1)

    async def RunPodSandbox(self, request, context):
        id_ = f"sandbox-{next(self._numbers)}"
        self.sandboxes[id_] = request.config
        return cri.RunPodSandboxResponse(pod_sandbox_id=id_)

    async def ListPodSandbox(self, request, context):
        wanted = dict(request.filter.label_selector)
        items = [
            cri.PodSandbox(id=id_, metadata=config.metadata, state=cri.SANDBOX_READY, labels=config.labels)
            for id_, config in self.sandboxes.items()
            if wanted.items() <= dict(config.labels).items()
        ]
        return cri.ListPodSandboxResponse(items=items)

    async def StopPodSandbox(self, request, context):
        return cri.StopPodSandboxResponse()

    async def RemovePodSandbox(self, request, context):
        self.sandboxes.pop(request.pod_sandbox_id, None)
        self.containers = {k: v for k, v in self.containers.items() if v["sandbox"] != request.pod_sandbox_id}
        return cri.RemovePodSandboxResponse()

    async def CreateContainer(self, request, context):
        if request.pod_sandbox_id not in self.sandboxes:
            await context.abort(grpc.StatusCode.NOT_FOUND, "sandbox not found")
        if any("missing" in device.name for device in request.config.CDI_devices):
            await context.abort(grpc.StatusCode.UNKNOWN, "unresolvable CDI devices v/c=missing")
        id_ = f"container-{next(self._numbers)}"
        state = {"sandbox": request.pod_sandbox_id, "config": request.config, "state": cri.CONTAINER_CREATED, "code": 0}
        self.containers[id_] = state
        return cri.CreateContainerResponse(container_id=id_)

    async def StartContainer(self, request, context):
        container = self.containers[request.container_id]
        assert container["state"] == cri.CONTAINER_CREATED
        container["state"] = cri.CONTAINER_RUNNING
        return cri.StartContainerResponse()

    async def StopContainer(self, request, context):
        self.containers[request.container_id] |= {"state": cri.CONTAINER_EXITED, "code": 143, "grace": request.timeout}
        return cri.StopContainerResponse()

    async def ContainerStatus(self, request, context):
        container = self.containers.get(request.container_id)
        if container is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such container")
        status = cri.ContainerStatus(
            id=request.container_id,
            state=container["state"],
            exit_code=container["code"],
            started_at=10**18,
            finished_at=10**18,
        )
        return cri.ContainerStatusResponse(status=status)

    async def ListContainers(self, request, context):
        wanted = dict(request.filter.label_selector)
        items = [
            cri.Container(id=id_, metadata=each["config"].metadata, state=each["state"])
            for id_, each in self.containers.items()
            if wanted.items() <= dict(each["config"].labels).items()
        ]
        return cri.ListContainersResponse(containers=items)

    async def ImageStatus(self, request, context):
        known = request.image.image in self.images
        return cri.ImageStatusResponse(image=cri.Image(id="sha") if known else None)

    async def PullImage(self, request, context):
        if request.image.image == "bad":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such image")
        self.images.add(request.image.image)
        return cri.PullImageResponse(image_ref="sha")


@pytest.fixture
async def rig(tmp_path, monkeypatch):
    monkeypatch.setattr(cri_runtime, "POLL_S", 0.01)
    contract = ContractRuntime()
    server = grpc.aio.server()
    cri_v1_pb2_grpc.add_RuntimeServiceServicer_to_server(contract, server)
    cri_v1_pb2_grpc.add_ImageServiceServicer_to_server(contract, server)
    socket = tmp_path / "cri.sock"
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    runtime = CriRuntime(str(socket))
    yield runtime, contract
    await runtime.close()
    await server.stop(None)


def a_spec(tmp_path, image="img", devices=("v/c=d",), attempt=0):
    return ContainerSpec(
        name="c",
        image=image,
        command=("run",),
        args=("fast",),
        working_dir="/w",
        env={"A": "1", "FROM_CDI": "x"},
        cdi_device_ids=devices,
        edits=ContainerEdits(env=("FROM_CDI=x",)),
        log_path=tmp_path / "0.log",
        attempt=attempt,
        cgroup=CgroupValues(1024, 50_000, 0, 1 << 30, {"2MB": 4096}),
        oom_score_adj=900,
    )


async def test_a_container_gets_its_devices_by_name_and_its_limits(rig, tmp_path):
    runtime, contract = rig
    sandbox = await runtime.start_pod(POD, CgroupValues(2048))
    container = await runtime.start_container(POD, sandbox, a_spec(tmp_path))
    config = contract.containers[container.id]["config"]
    assert [device.name for device in config.CDI_devices] == ["v/c=d"]
    assert {env.key: env.value for env in config.envs} == {"A": b"1"}
    assert (list(config.command), list(config.args), config.working_dir) == (["run"], ["fast"], "/w")
    resources = config.linux.resources
    assert (resources.cpu_shares, resources.cpu_quota, resources.memory_limit_in_bytes) == (1024, 50_000, 1 << 30)
    assert (resources.oom_score_adj, resources.hugepage_limits[0].page_size) == (900, "2MB")
    assert contract.sandboxes[sandbox].linux.resources.cpu_shares == 2048
    assert contract.images == {"img"}


async def test_the_end_of_a_container_is_noticed(rig, tmp_path):
    runtime, contract = rig
    sandbox = await runtime.start_pod(POD, None)
    container = await runtime.start_container(POD, sandbox, a_spec(tmp_path))
    waiting = asyncio.ensure_future(container.wait())
    await container.stop(7)
    assert (await waiting).code == 143
    assert contract.containers[container.id]["grace"] == 7


async def test_sandboxes_and_containers_are_found_again(rig, tmp_path):
    runtime, _ = rig
    sandbox = await runtime.start_pod(POD, None)
    assert await runtime.start_pod(POD, None) == sandbox
    for attempt in range(3):
        await runtime.start_container(POD, sandbox, a_spec(tmp_path, attempt=attempt))
    found, attempt = await runtime.find_container(POD, "c")
    assert (found.id, attempt) == ("container-4", 2)
    assert await runtime.known_pods() == {"pod-uid"}
    await runtime.stop_pod("pod-uid")
    await runtime.stop_pod("pod-uid")
    assert await runtime.known_pods() == set()
    assert await runtime.find_container(POD, "c") is None
    assert (await found.wait()).reason == "ContainerStatusUnknown"


@pytest.mark.parametrize(
    ("image", "devices", "reason", "text"),
    [
        ("bad", (), "ErrImagePull", "no such image"),
        ("img", ("v/c=missing",), "CreateContainerError", "unresolvable CDI devices"),
    ],
)
async def test_what_the_runtime_refuses_is_told(rig, tmp_path, image, devices, reason, text):
    runtime, _ = rig
    sandbox = await runtime.start_pod(POD, None)
    with pytest.raises(ContainerError, match=text) as caught:
        await runtime.start_container(POD, sandbox, a_spec(tmp_path, image, devices))
    assert caught.value.reason == reason
