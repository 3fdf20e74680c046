"""The CRI runtime against a server that keeps the contract and remembers what it was asked."""

import asyncio
import itertools
from dataclasses import replace

import grpc
import pytest

from dray.accounting import CgroupValues
from dray.api.cdi import ContainerEdits
from dray.api.codec import to_object
from dray.api.core import Pod, PodSpec
from dray.api.meta import ObjectMeta
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime import cri as cri_runtime
from dray.kubelet.runtime.cgroup import CgroupTree
from dray.kubelet.runtime.cri import CriRuntime, container_hash
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
        self.dead_sandboxes: set[str] = set()
        self.fail_starts = 0
        self.cgroup_driver = cri.CGROUPFS
        self._numbers = itertools.count(1)

    async def Version(self, request, context):
        return cri.VersionResponse(runtime_name="contract", runtime_version="1.0")

    async def RunPodSandbox(self, request, context):
        name = (request.config.metadata.uid, request.config.metadata.attempt)
        if any((each.metadata.uid, each.metadata.attempt) == name for each in self.sandboxes.values()):
            await context.abort(grpc.StatusCode.UNKNOWN, "failed to reserve sandbox name")
        id_ = f"sandbox-{next(self._numbers)}"
        self.sandboxes[id_] = request.config
        return cri.RunPodSandboxResponse(pod_sandbox_id=id_)

    async def ListPodSandbox(self, request, context):
        wanted = dict(request.filter.label_selector)
        items = [
            cri.PodSandbox(
                id=id_,
                metadata=config.metadata,
                state=cri.SANDBOX_NOTREADY if id_ in self.dead_sandboxes else cri.SANDBOX_READY,
                labels=config.labels,
            )
            for id_, config in self.sandboxes.items()
            if wanted.items() <= dict(config.labels).items()
        ]
        return cri.ListPodSandboxResponse(items=items)

    async def PodSandboxStatus(self, request, context):
        network = cri.PodSandboxNetworkStatus(ip="10.1.2.3")
        return cri.PodSandboxStatusResponse(status=cri.PodSandboxStatus(id=request.pod_sandbox_id, network=network))

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
        name = (request.pod_sandbox_id, request.config.metadata.name, request.config.metadata.attempt)
        if name in [(each["sandbox"], *_name(each["config"])) for each in self.containers.values()]:
            await context.abort(grpc.StatusCode.UNKNOWN, "failed to reserve container name")
        id_ = f"container-{next(self._numbers)}"
        state = {"sandbox": request.pod_sandbox_id, "config": request.config, "state": cri.CONTAINER_CREATED, "code": 0}
        self.containers[id_] = state
        return cri.CreateContainerResponse(container_id=id_)

    async def StartContainer(self, request, context):
        container = self.containers[request.container_id]
        assert container["state"] == cri.CONTAINER_CREATED
        if self.fail_starts:
            self.fail_starts -= 1
            await context.abort(grpc.StatusCode.UNKNOWN, "exec format error")
        container["state"] = cri.CONTAINER_RUNNING
        return cri.StartContainerResponse()

    async def ExecSync(self, request, context):
        text = f"{' '.join(request.cmd)} within {request.timeout} s".encode()
        return cri.ExecSyncResponse(stdout=text, stderr=b"!", exit_code=4)

    async def StopContainer(self, request, context):
        self.containers[request.container_id] |= {"state": cri.CONTAINER_EXITED, "code": 143, "grace": request.timeout}
        return cri.StopContainerResponse()

    async def RemoveContainer(self, request, context):
        assert self.containers[request.container_id]["state"] != cri.CONTAINER_RUNNING
        del self.containers[request.container_id]
        return cri.RemoveContainerResponse()

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

    async def ListContainerStats(self, request, context):
        usage = cri.MemoryUsage(working_set_bytes=cri.UInt64Value(value=1000))
        stats = [
            cri.ContainerStats(attributes=cri.ContainerAttributes(id=id_, labels=each["config"].labels), memory=usage)
            for id_, each in self.containers.items()
        ]
        return cri.ListContainerStatsResponse(stats=stats)

    async def RuntimeConfig(self, request, context):
        return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=self.cgroup_driver))

    async def ImageStatus(self, request, context):
        known = request.image.image in self.images
        return cri.ImageStatusResponse(image=cri.Image(id="sha") if known else None)

    async def PullImage(self, request, context):
        if request.image.image == "bad":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such image")
        self.images.add(request.image.image)
        return cri.PullImageResponse(image_ref="sha")


def _name(config):
    return config.metadata.name, config.metadata.attempt


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
        env={"A": "1"},
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
    assert container.id == "contract://container-2"
    config = contract.containers["container-2"]["config"]
    assert [device.name for device in config.CDI_devices] == ["v/c=d"]
    assert {env.key: env.value for env in config.envs} == {"A": b"1"}
    assert (list(config.command), list(config.args), config.working_dir) == (["run"], ["fast"], "/w")
    resources = config.linux.resources
    assert (resources.cpu_shares, resources.cpu_quota, resources.memory_limit_in_bytes) == (1024, 50_000, 1 << 30)
    assert (resources.oom_score_adj, resources.hugepage_limits[0].page_size) == (900, "2MB")
    assert contract.sandboxes[sandbox].linux.resources.cpu_shares == 2048


@pytest.mark.parametrize(("driver", "parent"), [(cri.CGROUPFS, "/ours/burstable/podpod-uid"), (cri.SYSTEMD, "")])
async def test_a_pod_is_put_below_the_group_of_its_qos_class(rig, cgroup_mount, driver, parent):
    """Its own group has the pod's weight and memory.min, as with processes."""
    runtime, contract = rig
    contract.cgroup_driver = driver
    runtime._cgroups = CgroupTree.open("ours", cgroup_mount)
    sandbox = await runtime.start_pod(POD, CgroupValues(2048, memory_min=4096, qos_class="Burstable"))
    assert contract.sandboxes[sandbox].linux.cgroup_parent == parent
    if parent:
        assert (cgroup_mount / parent[1:] / "memory.min").read_text() == "4096"
        await runtime.stop_pod(POD.metadata.uid)
        assert not (cgroup_mount / parent[1:]).exists()


async def test_the_memory_of_pods_is_the_sum_of_their_containers(rig, tmp_path):
    runtime, _ = rig
    sandbox = await runtime.start_pod(POD, None)
    for attempt in range(2):
        await runtime.start_container(POD, sandbox, a_spec(tmp_path, attempt=attempt))
    assert await runtime.memory_used() == {POD.metadata.uid: 2000}


async def test_the_end_of_a_container_is_noticed(rig, tmp_path):
    runtime, contract = rig
    sandbox = await runtime.start_pod(POD, None)
    container = await runtime.start_container(POD, sandbox, a_spec(tmp_path))
    waiting = asyncio.ensure_future(container.wait())
    await container.stop(7)
    assert (await waiting).code == 143
    assert contract.containers["container-2"]["grace"] == 7


async def test_sandboxes_and_containers_are_found_again(rig, tmp_path):
    runtime, _ = rig
    sandbox = await runtime.start_pod(POD, None)
    assert await runtime.start_pod(POD, None) == sandbox
    for attempt in range(3):
        await runtime.start_container(POD, sandbox, a_spec(tmp_path, attempt=attempt))
    found, attempt = await runtime.find_container(POD, "c")
    assert (found.id, attempt) == ("contract://container-4", 2)
    assert await runtime.known_pods() == {"pod-uid"}
    await runtime.stop_pod("pod-uid")
    await runtime.stop_pod("pod-uid")
    assert await runtime.known_pods() == set()
    assert await runtime.find_container(POD, "c") is None
    assert (await found.wait()).reason == "ContainerStatusUnknown"


async def test_what_the_runtime_cannot_resolve_is_told(rig, tmp_path):
    runtime, _ = rig
    sandbox = await runtime.start_pod(POD, None)
    with pytest.raises(ContainerError, match="unresolvable CDI devices") as caught:
        await runtime.start_container(POD, sandbox, a_spec(tmp_path, devices=("v/c=missing",)))
    assert caught.value.reason == "CreateContainerError"


async def test_a_runtime_that_ignores_cdi_names_still_gets_the_containers_own_environment(rig, tmp_path):
    """What devices would set is not passed on twice, and what the pod sets is never left to CDI."""
    runtime, contract = rig
    sandbox = await runtime.start_pod(POD, None)
    spec = replace(a_spec(tmp_path), env={"A": "1", "FROM_CDI": "the pod's own"})
    await runtime.start_container(POD, sandbox, spec)
    config = contract.containers["container-2"]["config"]
    assert {env.key: env.value for env in config.envs} == {"A": b"1", "FROM_CDI": b"the pod's own"}


async def test_images_are_found_and_pulled(rig):
    runtime, contract = rig
    assert not await runtime.has_image("img")
    await runtime.pull_image("img")
    assert await runtime.has_image("img")
    with pytest.raises(ContainerError, match='failed to pull image "bad": no such image') as caught:
        await runtime.pull_image("bad")
    assert caught.value.reason == "ErrImagePull"
    assert contract.images == {"img"}


async def test_a_container_that_does_not_start_leaves_its_name_to_the_next_attempt_at_it(rig, tmp_path):
    runtime, contract = rig
    contract.fail_starts = 1
    sandbox = await runtime.start_pod(POD, None)
    with pytest.raises(ContainerError, match="exec format error"):
        await runtime.start_container(POD, sandbox, a_spec(tmp_path))
    assert contract.containers == {}
    await runtime.start_container(POD, sandbox, a_spec(tmp_path))
    assert len(contract.containers) == 1


async def test_a_container_that_was_created_and_never_started_is_made_anew(rig, tmp_path):
    """The agent was killed between the two calls: nobody else would ever start it."""
    runtime, contract = rig
    sandbox = await runtime.start_pod(POD, None)
    await runtime.start_container(POD, sandbox, a_spec(tmp_path))
    contract.containers["container-2"]["state"] = cri.CONTAINER_EXITED
    await runtime.start_container(POD, sandbox, a_spec(tmp_path, attempt=1))
    contract.containers["container-3"]["state"] = cri.CONTAINER_CREATED
    found, attempt = await runtime.find_container(POD, "c")
    assert (found.id, attempt) == ("contract://container-2", 0)
    await runtime.start_container(POD, sandbox, a_spec(tmp_path, attempt=1))


async def test_a_dead_sandbox_is_followed_by_the_next_one(rig):
    runtime, contract = rig
    first = await runtime.start_pod(POD, None)
    contract.dead_sandboxes.add(first)
    assert not await runtime.has_sandbox("pod-uid")
    second = await runtime.start_pod(POD, None)
    assert contract.sandboxes[second].metadata.attempt == 1
    await runtime.stop_pod("pod-uid")
    assert contract.sandboxes == {}


async def test_the_end_of_a_sandbox_is_noticed(rig, monkeypatch):
    monkeypatch.setattr(cri_runtime, "SANDBOX_POLL_S", 0.01)
    runtime, contract = rig
    first = await runtime.start_pod(POD, None)
    ends = [asyncio.create_task(runtime.sandbox_end(first)) for _ in range(3)]
    done, _ = await asyncio.wait(ends, timeout=0.1)
    assert not done
    contract.dead_sandboxes.add(first)
    await asyncio.wait_for(asyncio.gather(*ends), 5)


@pytest.mark.parametrize(
    ("spec", "namespaces", "hostname"),
    [
        ({}, (cri.POD, cri.CONTAINER, cri.POD), "p"),
        ({"host_network": True}, (cri.NODE, cri.CONTAINER, cri.POD), ""),
        ({"host_pid": True, "host_ipc": True}, (cri.POD, cri.NODE, cri.NODE), "p"),
    ],
)
async def test_pods_may_live_in_the_namespaces_of_the_node(rig, tmp_path, spec, namespaces, hostname):
    runtime, contract = rig
    pod = Pod(metadata=POD.metadata, spec=PodSpec(**spec))
    sandbox = await runtime.start_pod(pod, None)
    await runtime.start_container(pod, sandbox, a_spec(tmp_path))
    config = contract.sandboxes[sandbox]
    for context in (
        config.linux.security_context,
        contract.containers["container-2"]["config"].linux.security_context,
    ):
        options = context.namespace_options
        assert (options.network, options.pid, options.ipc) == namespaces
    assert config.hostname == hostname
    assert await runtime.pod_ip(sandbox) == "10.1.2.3"


async def test_the_node_tells_which_runtime_it_has(rig):
    runtime, _ = rig
    assert await runtime.version() == "contract://1.0"


def test_the_hash_of_a_container_is_the_kubelets():
    assert container_hash("test_container", "foo/image:v1") == "8e45cbd0", "as Kubernetes' own test has it"


async def test_a_kubelet_that_takes_over_finds_what_it_looks_for(rig, tmp_path):
    runtime, contract = rig
    pod = Pod(metadata=POD.metadata, spec=PodSpec(termination_grace_period_seconds=7))
    sandbox = await runtime.start_pod(pod, None)
    spec = replace(a_spec(tmp_path, attempt=2), termination_message_path="/dev/x", termination_message_policy="File")
    await runtime.start_container(pod, sandbox, spec)
    assert dict(contract.containers["container-2"]["config"].annotations) == {
        "io.kubernetes.container.hash": container_hash("c", "img"),
        "io.kubernetes.container.restartCount": "2",
        "io.kubernetes.container.terminationMessagePath": "/dev/x",
        "io.kubernetes.container.terminationMessagePolicy": "File",
        "io.kubernetes.pod.terminationGracePeriod": "7",
    }


def secured(container=None, **pod):
    containers = [{"name": "c", "image": "img", **({"securityContext": container} if container else {})}]
    document = {"metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid"}, "spec": {"containers": containers}}
    document["spec"] |= {"securityContext": pod}
    return to_object({"apiVersion": "v1", "kind": "Pod", **document}, Pod)


async def started(rig, tmp_path, pod):
    runtime, contract = rig
    sandbox = await runtime.start_pod(pod, None)
    await runtime.start_container(pod, sandbox, a_spec(tmp_path))
    [container] = contract.containers.values()
    return contract.sandboxes[sandbox].linux.security_context, container["config"].linux.security_context


async def test_security_contexts_reach_the_runtime(rig, tmp_path):
    own = {
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
        "runAsUser": 7,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod = secured(own, runAsUser=5, runAsGroup=6, supplementalGroups=[8], fsGroup=9, runAsNonRoot=True)
    sandbox, container = await started(rig, tmp_path, pod)
    assert (sandbox.run_as_user.value, sandbox.run_as_group.value, list(sandbox.supplemental_groups)) == (5, 6, [8, 9])
    assert (container.run_as_user.value, container.run_as_group.value) == (7, 6)
    assert list(container.supplemental_groups) == [8, 9]
    assert list(container.capabilities.add_capabilities) == ["NET_ADMIN"]
    assert list(container.capabilities.drop_capabilities) == ["ALL"]
    assert (container.readonly_rootfs, container.no_new_privs, container.privileged) == (True, True, False)
    assert container.seccomp.profile_type == cri.SecurityProfile.RuntimeDefault
    assert "/proc/kcore" in container.masked_paths
    assert "/proc/sys" in container.readonly_paths


async def test_a_privileged_container_is_not_confined(rig, tmp_path):
    sandbox, container = await started(rig, tmp_path, secured({"privileged": True}))
    assert (sandbox.privileged, container.privileged) == (True, True)
    assert not container.masked_paths
    assert not container.readonly_paths
    assert container.seccomp.profile_type == cri.SecurityProfile.Unconfined


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"runAsNonRoot": True, "runAsUser": 0}, "container's runAsUser breaks non-root policy"),
        ({"runAsNonRoot": True}, "container has runAsNonRoot and image will run as root"),
    ],
)
async def test_a_container_that_must_not_be_root_is_not_started_as_root(rig, tmp_path, own, message):
    with pytest.raises(ContainerError, match=message) as caught:
        await started(rig, tmp_path, secured(own))
    assert caught.value.reason == "CreateContainerConfigError"


async def test_commands_of_probes_run_in_the_container(rig, tmp_path):
    runtime, _ = rig
    sandbox = await runtime.start_pod(POD, None)
    running = await runtime.start_container(POD, sandbox, a_spec(tmp_path))
    assert await running.run_command(["look", "here"], 3.0) == (4, "look here within 3 s!")


async def test_a_pod_with_users_of_its_own_is_not_started_as_the_nodes_root(rig):
    """Pod Security lets it be root, with all of /proc, because it counts on a user namespace, and this agent makes none."""
    runtime, contract = rig
    with pytest.raises(ContainerError, match="hostUsers: false") as caught:
        await runtime.start_pod(Pod(metadata=POD.metadata, spec=PodSpec(host_users=False)), None)
    assert (caught.value.reason, contract.sandboxes) == ("CreatePodSandboxError", {})
    assert await runtime.start_pod(Pod(metadata=POD.metadata, spec=PodSpec(host_users=True)), None)
    assert to_object({"spec": {"hostUsers": False}}, Pod).spec.host_users is False
