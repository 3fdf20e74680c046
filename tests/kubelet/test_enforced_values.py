"""What a runtime is told to enforce for pods whose claims take cpu, memory or huge pages of the node."""

import pytest
from msgspec import structs

from dray.accounting import CgroupValues, Enforcement
from dray.api import codec
from dray.api.core import Pod
from dray.api.quantity import Quantity
from dray.client import ApiError
from dray.kubelet.claims import ClaimCache
from dray.kubelet.container_specs import CdiDirectories, ContainerSpecs
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.cri import resources
from tests.builders.manifests import a_container, a_pod
from tests.kubelet.worker_rig import WorkerRig

GI = 2**30
NODE = {"cpu": Quantity.parse("16"), "memory": Quantity.parse("16Gi"), "hugepages-2Mi": Quantity.parse("1Gi")}


def pod_with_claim(resources=None, *, mapping=(), overhead=(), others=()):
    """`mapping` and `overhead` are what one claim takes, which all containers use."""
    names = ["main", *others]
    entry = {"resourceClaimName": "c", "containers": names, "mapping": list(mapping), "overhead": list(overhead)}
    containers = [a_container(name, resources=resources or {}) for name in names]
    status = {"nodeAllocatableResourceClaimStatuses": [entry] if mapping or overhead else []}
    return codec.to_object(a_pod("p", *containers, namespace="ns", uid="u", node="n", status=status), Pod)


@pytest.fixture
def specs(tmp_path):
    def make(**options):
        options = {"enforcement": Enforcement.KUBERNETES, **options}
        folders = tmp_path, tmp_path / "volumes"
        return ContainerSpecs(
            None, ClaimCache(), CdiDirectories([tmp_path]), *folders, lambda *_: None, allocatable=NODE, **options
        )

    return make


CPU_4 = ({"name": "cpu", "quantity": "4"},)
PAGES = ({"name": "hugepages-2Mi", "quantity": "64Mi"},)


async def test_with_the_gate_off_the_spec_alone_decides(specs):
    pod = pod_with_claim({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}, mapping=CPU_4)
    on, off = specs(), specs(counts_claims=False)
    assert on.pod_cgroup(pod).cpu_shares == 5 * 1024
    assert off.pod_cgroup(pod).cpu_shares == 1024
    assert (await on.of(pod, pod.spec.containers[0], 0)).cgroup.cpu_max == "600000 100000"
    assert (await off.of(pod, pod.spec.containers[0], 0)).cgroup.cpu_max == "200000 100000"


async def test_a_pod_from_before_the_gate_counts_by_its_spec(specs):
    """Nobody wrote down what its claims take; it is under-counted until it is started anew."""
    pod = pod_with_claim({"requests": {"cpu": "1"}})
    assert specs().pod_cgroup(pod).cpu_shares == 1024


def test_a_claim_of_several_containers_counts_once_and_its_overhead_for_each(specs):
    overhead = ({"name": "cpu", "perPod": "1", "perContainer": "500m"},)
    pod = pod_with_claim({"requests": {"cpu": "1"}}, mapping=CPU_4, overhead=overhead, others=("second",))
    milli = 2 * 1000 + 4000 + 1000 + 2 * 500
    assert specs().pod_cgroup(pod).cpu_shares == milli * 1024 // 1000


async def test_a_claim_never_makes_a_limit_where_there_was_none(specs):
    pod = pod_with_claim({"requests": {"cpu": "1", "memory": "1Gi"}}, mapping=CPU_4)
    values = (await specs().of(pod, pod.spec.containers[0], 0)).cgroup
    assert (values.cpu_max, values.memory_max) == ("max 100000", None)
    assert specs().pod_cgroup(pod).cpu_max == "max 100000"


async def test_huge_pages_of_a_claim_are_allowed(specs):
    pod = pod_with_claim(mapping=PAGES)
    assert specs().pod_cgroup(pod).hugetlb == {"2MB": 64 * 2**20}
    assert (await specs().of(pod, pod.spec.containers[0], 0)).cgroup.hugetlb == {"2MB": 64 * 2**20}
    assert specs(counts_claims=False).pod_cgroup(pod).hugetlb == {"2MB": 0}


async def test_a_pod_that_asks_for_nothing_itself_stays_best_effort(specs):
    pod = pod_with_claim(mapping=CPU_4)
    spec = await specs().of(pod, pod.spec.containers[0], 0)
    assert specs().pod_cgroup(pod).cpu_shares == 2
    assert spec.oom_score_adj == 1000


def test_cri_is_told_the_memory_that_stays_with_a_container(cgroup_mount):
    values = CgroupValues(cpu_shares=1024, memory_min=64 * 2**20)
    assert dict(resources(values, None, cgroup_mount).unified) == {"memory.min": str(64 * 2**20)}
    assert dict(resources(CgroupValues(cpu_shares=2), None, cgroup_mount).unified) == {}


def test_cri_is_told_nothing_that_cgroup_v1_cannot_do(tmp_path):
    values = CgroupValues(cpu_shares=1024, memory_min=64 * 2**20)
    assert dict(resources(values, None, tmp_path).unified) == {}, "runc refuses containers with such values there"


async def test_without_dra_a_container_gets_no_devices(specs):
    container = a_container("main", resources={"claims": [{"name": "c"}]})
    claims = [{"name": "c", "resourceClaimName": "c"}]
    pod = codec.to_object(a_pod("p", container, namespace="ns", uid="u", resourceClaims=claims), Pod)
    with pytest.raises(ContainerError, match="unable to get claim info"):
        await specs().of(pod, pod.spec.containers[0], 0)
    spec = await specs(claims_enabled=False).of(pod, pod.spec.containers[0], 0)
    assert spec.cdi_device_ids == ()


# --- the class in the pod's status


class WorkerRigOfKep(WorkerRig):
    """A server of ours, or one of Kubernetes', which holds the class of a pod fixed."""

    async def written_classes(self, *, holds_fixed=False):
        patch = self.api.patch

        async def refusing(kind, name, body, namespace="", **options):
            if holds_fixed and "qosClass" in body["status"]:
                raise ApiError(422, "Invalid", 'Pod "p" is invalid: status.qosClass: Invalid value: "Guaranteed"')
            await patch(kind, name, body, namespace, **options)

        self.api.patch = refusing
        mapping = ({"name": "cpu", "quantity": "1"}, {"name": "memory", "quantity": "1Gi"})
        pod = pod_with_claim(mapping=mapping)
        pod = structs.replace(pod, spec=structs.replace(pod.spec, node_name="n1"))
        await self.start(structs.replace(pod, status=structs.replace(pod.status, qos_class="BestEffort")))
        return {status.get("qosClass") for status in self.api.statuses}


async def test_the_status_has_the_class_that_the_node_applies(tmp_path):
    async with WorkerRigOfKep(tmp_path) as rig:
        assert await rig.written_classes() == {"Guaranteed"}


async def test_a_server_that_holds_the_class_fixed_gets_the_rest_of_the_status(tmp_path):
    async with WorkerRigOfKep(tmp_path) as rig:
        assert await rig.written_classes(holds_fixed=True) == {None}
        assert rig.status["phase"] == "Running"
