"""QoS class, cgroup values and OOM score: by Kubernetes' rules of today, and with claims as KEP-5517 asks."""

import pytest
from tests.accounting.builders import demanding_pod

from dray.accounting import Enforcement, container_cgroup, oom_score_adj, pod_cgroup, qos_class
from dray.accounting.enforcement import cpu_quota, cpu_shares, cpu_weight, kernel_page_size, runtime_cpu_weight

TODAY, KEP = Enforcement.KUBERNETES, Enforcement.KEP
GI = 2**30


def claim(*containers: str, name: str = "x", policy: str | None = None, overhead: list | None = None, **mapped: str):
    """A claim as the pod's status shows it."""
    accounting = [{"name": k, "quantity": v, "accountingPolicy": policy} for k, v in mapped.items()] if policy else []
    return {
        "resourceClaimName": name,
        "containers": list(containers),
        "resources": mapped,
        "accounting": accounting,
        "overhead": overhead or [],
    }


def both(cpu: str, memory: str) -> dict:
    return {"cpu": cpu, "memory": memory}


@pytest.mark.parametrize(
    ("containers", "status", "today", "kep"),
    [
        pytest.param({"c": {}}, [], "BestEffort", "BestEffort", id="nothing"),
        pytest.param({"c": {}}, [claim("c", cpu="4")], "BestEffort", "Burstable", id="cpu-claim-only"),
        pytest.param(
            {"c": {}}, [claim("c", cpu="4", memory="8Gi")], "BestEffort", "Guaranteed", id="cpu-and-memory-claimed"
        ),
        pytest.param(
            {"c": {}, "d": {}},
            [claim("c", cpu="4", memory="8Gi")],
            "BestEffort",
            "Burstable",
            id="one-container-without-claim",
        ),
        pytest.param(
            {"c": {}, "d": {}},
            [claim("c", "d", cpu="4", memory="8Gi")],
            "BestEffort",
            "Guaranteed",
            id="claim-shared-by-all",
        ),
        pytest.param(
            {"c": {"requests": both("1", "1Gi"), "limits": both("1", "1Gi")}},
            [claim("c", cpu="4")],
            "Guaranteed",
            "Guaranteed",
            id="guaranteed-stays",
        ),
        pytest.param(
            {"c": {"requests": both("1", "1Gi"), "limits": both("2", "1Gi")}},
            [claim("c", cpu="4")],
            "Burstable",
            "Burstable",
            id="burstable-stays",
        ),
        pytest.param({"c": {}}, [claim(cpu="4")], "BestEffort", "Burstable", id="unreferenced-claim"),
        pytest.param(
            {"c": {}},
            [claim("c", overhead=[{"name": "memory", "perPod": "1Gi"}, {"name": "cpu", "perPod": "1"}])],
            "BestEffort",
            "Burstable",
            id="overhead-is-no-limit",
        ),
        pytest.param(
            {"c": {"requests": {"cpu": "1"}}},
            [claim("c", cpu="4", memory="1Gi")],
            "Burstable",
            "Burstable",
            id="own-request-without-limit",
        ),
        pytest.param(
            {"c": {}}, [claim("c", policy="ConsumeFrom", cpu="4", memory="1Gi")], "BestEffort", "BestEffort", id="pool"
        ),
        pytest.param(
            {"c": {}}, [claim("c", policy="Max", cpu="4", memory="1Gi")], "BestEffort", "Guaranteed", id="max"
        ),
        pytest.param({"c": {}}, [claim("c", **{"hugepages-2Mi": "64Mi"})], "BestEffort", "BestEffort", id="hugepages"),
    ],
)
def test_qos_class(containers, status, today, kep):
    pod = demanding_pod(containers=containers, status=status)
    assert qos_class(pod, TODAY) == today
    assert qos_class(pod) == kep


def test_pod_level_resources_decide_the_class_alone():
    level = both("8", "8Gi")
    pod = demanding_pod(status=[claim("c", cpu="4")], resources={"requests": level, "limits": level})
    assert qos_class(pod) == qos_class(pod, TODAY) == "Guaranteed"


@pytest.mark.parametrize(
    ("milli", "shares", "weight", "runtime_weight", "quota"),
    [
        (0, 2, 1, 1, 0),
        (1, 2, 1, 1, 1000),
        (100, 102, 4, 17, 10_000),
        (1000, 1024, 39, 100, 100_000),
        (4100, 4198, 161, 309, 410_000),
        (64_000, 65_536, 2500, 3023, 6_400_000),
        (256_000, 262_144, 10_000, 10_000, 25_600_000),
        (999_000, 262_144, 10_000, 10_000, 99_900_000),
    ],
)
def test_cpu_values(milli, shares, weight, runtime_weight, quota):
    assert cpu_shares(milli) == shares
    assert cpu_weight(shares) == weight
    assert runtime_cpu_weight(shares) == runtime_weight
    assert cpu_quota(milli) == quota


WORKED = demanding_pod(
    containers={
        "c1": {"requests": both("1", "1Gi"), "limits": both("2", "2Gi")},
        "c2": {"requests": both("500m", "512Mi"), "limits": both("1", "1Gi")},
    },
    status=[
        {
            "resourceClaimName": "x",
            "containers": ["c1", "c2"],
            "mapping": [{"name": "cpu", "quantity": "4"}],
            "overhead": [{"name": "memory", "perPod": "512Mi", "perContainer": "256Mi"}],
        }
    ],
)


def test_worked_case_of_a_shared_claim_by_todays_rules():
    values = pod_cgroup(WORKED, TODAY)
    assert (values.cpu_shares, values.cpu_weight, values.cpu_max) == (5632, 215, "700000 100000")
    assert values.memory_max == 4 * GI
    c1, c2 = (container_cgroup(WORKED, container, TODAY) for container in WORKED.spec.containers)
    assert (c1.cpu_shares, c1.cpu_quota_us, c1.memory_max) == (1024, 600_000, 2952790016)
    assert (c2.cpu_shares, c2.cpu_quota_us, c2.memory_max) == (512, 500_000, 1879048192)
    assert [oom_score_adj(WORKED, c, 16 * GI, TODAY) for c in WORKED.spec.containers] == [907, 938]
    assert values.memory_min == 0


def test_worked_case_with_claims_in_the_weights_and_memory_protected():
    pod = pod_cgroup(WORKED)
    c1, c2 = (container_cgroup(WORKED, container) for container in WORKED.spec.containers)
    assert (c1.cpu_shares, c2.cpu_shares) == (3072, 2560), "the claim's 4 cpus, half each, beside 1 and 0.5"
    assert c1.cpu_shares + c2.cpu_shares == pod.cpu_shares
    assert pod.memory_min == c1.memory_min + c2.memory_min == 2560 * 2**20
    assert (c1.cpu_quota_us, c1.memory_max) == (600_000, 2952790016)
    assert pod.files() == {
        "cpu.weight": "215",
        "cpu.max": "700000 100000",
        "memory.min": str(2560 * 2**20),
        "memory.max": str(4 * GI),
    }


@pytest.mark.parametrize(
    ("pod", "enforcement", "cpu_max", "memory_max"),
    [
        pytest.param(demanding_pod(), KEP, "max 100000", None, id="best-effort"),
        pytest.param(
            demanding_pod(containers={"c": {"requests": both("1", "1Gi")}}),
            KEP,
            "max 100000",
            None,
            id="burstable-no-limit",
        ),
        pytest.param(
            demanding_pod(containers={"c": {"limits": both("1", "1Gi")}, "d": {"limits": {"cpu": "1"}}}),
            KEP,
            "200000 100000",
            None,
            id="memory-limit-of-one-container-only",
        ),
        pytest.param(
            demanding_pod(resources={"requests": both("1", "1Gi"), "limits": both("3", "2Gi")}),
            KEP,
            "300000 100000",
            2 * GI,
            id="pod-level",
        ),
        pytest.param(
            demanding_pod(status=[claim("c", cpu="4", memory="8Gi")]),
            KEP,
            "400000 100000",
            8 * GI,
            id="claims-are-the-limit",
        ),
        pytest.param(
            demanding_pod(status=[claim("c", cpu="4", memory="8Gi")]), TODAY, "max 100000", None, id="best-effort-today"
        ),
        pytest.param(
            demanding_pod(status=[claim("c", overhead=[{"name": "memory", "perPod": "1Gi"}])]),
            KEP,
            "max 100000",
            None,
            id="overhead-sets-no-limit",
        ),
        pytest.param(
            demanding_pod(
                containers={"c": {"requests": {"cpu": "10"}, "limits": {"cpu": "10"}}},
                status=[claim("c", policy="ConsumeFrom", cpu="100")],
            ),
            KEP,
            "1000000 100000",
            None,
            id="a-pool-gives-what-is-drawn",
        ),
    ],
)
def test_pod_limits_in_the_cgroup(pod, enforcement, cpu_max, memory_max):
    values = pod_cgroup(pod, enforcement)
    assert (values.cpu_max, values.memory_max) == (cpu_max, memory_max)


def test_a_pool_weighs_what_the_pod_draws():
    pod = demanding_pod(
        containers={"c": {"requests": {"cpu": "10"}}}, status=[claim("c", policy="ConsumeFrom", cpu="100")]
    )
    assert pod_cgroup(pod).cpu_shares == 10_240
    assert container_cgroup(pod, pod.spec.containers[0]).cpu_shares == 10_240


def test_hugepages():
    pod = demanding_pod(
        containers={"c": {"requests": {"hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}, "d": {}},
        status=[claim("c", "d", **{"hugepages-2Mi": "64Mi"})],
    )
    assert pod_cgroup(pod, page_sizes=("2Mi", "1Gi")).hugetlb == {"2MB": 68 * 2**20, "1GB": 0}
    first, second = (container_cgroup(pod, container).hugetlb for container in pod.spec.containers)
    assert (first, second) == ({"2MB": 68 * 2**20}, {"2MB": 64 * 2**20})
    assert pod_cgroup(pod).files()["hugetlb.2MB.max"] == str(68 * 2**20)


def test_pod_level_hugepages_hold_for_containers_without_a_limit():
    level = {"hugepages-2Mi": "128Mi", "cpu": "1"}
    pod = demanding_pod(
        status=[claim("c", **{"hugepages-2Mi": "64Mi"})], resources={"requests": level, "limits": level}
    )
    assert container_cgroup(pod, pod.spec.containers[0], TODAY).hugetlb == {"2MB": 128 * 2**20}


def test_page_sizes_as_the_kernel_names_them():
    assert [kernel_page_size(size) for size in ("64Ki", "2Mi", "1Gi")] == ["64KB", "2MB", "1GB"]


@pytest.mark.parametrize(
    ("pod", "today", "kep"),
    [
        pytest.param(demanding_pod(), 1000, 1000, id="best-effort"),
        pytest.param(
            demanding_pod(containers={"c": {"requests": both("1", "1Gi"), "limits": both("1", "1Gi")}}),
            -997,
            -997,
            id="guaranteed",
        ),
        pytest.param(demanding_pod(priorityClassName="system-node-critical"), -997, -997, id="node-critical"),
        pytest.param(
            demanding_pod(containers={"c": {"requests": {"cpu": "1"}}}), 999, 999, id="burstable-without-memory"
        ),
        pytest.param(demanding_pod(containers={"c": {"requests": {"memory": "64Gi"}}}), 3, 3, id="more-than-the-node"),
        pytest.param(
            demanding_pod(containers={"c": {"requests": {"memory": "4Gi"}}}, status=[claim("c", memory="4Gi")]),
            500,
            500,
            id="claim-adds",
        ),
        pytest.param(demanding_pod(status=[claim("c", memory="4Gi")]), 1000, 750, id="claim-alone"),
        pytest.param(
            demanding_pod(status=[claim("c", cpu="1", memory="4Gi")]), 1000, -997, id="claims-that-make-it-guaranteed"
        ),
        pytest.param(
            demanding_pod(
                containers={"c": {"requests": {"memory": "1Gi"}}, "d": {}}, resources={"requests": {"memory": "9Gi"}}
            ),
            1000 - 1000 * 5 // 16,
            1000 - 1000 * 5 // 16,
            id="part-of-the-pod-level-rest",
        ),
    ],
)
def test_oom_score(pod, today, kep):
    container = pod.spec.containers[0]
    assert oom_score_adj(pod, container, 16 * GI, TODAY) == today
    assert oom_score_adj(pod, container, 16 * GI) == kep


def test_a_sidecar_outlives_the_smallest_container():
    pod = demanding_pod(
        init={"s": {"requests": {"memory": "1Gi"}, "sidecar": True}, "i": {"requests": {"memory": "1Gi"}}},
        containers={"a": {"requests": {"memory": "8Gi"}}, "b": {"requests": {"memory": "4Gi"}}},
    )
    sidecar, init = pod.spec.init_containers
    assert oom_score_adj(pod, sidecar, 16 * GI) == 750
    assert oom_score_adj(pod, init, 16 * GI) == 938
