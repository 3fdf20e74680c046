"""The pod-level budget, claims used by several pods, and the rows behind an amount."""

import pytest
from tests.accounting.builders import World, allocated_device, demanding_pod, quantities

from dray.accounting import NodeLedger, PodRef, budget_problems, charges_in_status, pod_demand, sharing_conflict
from dray.api.codec import to_object
from dray.api.reasons import texts
from dray.api.resource import ResourceClaim


def mapped(*containers: str, **amounts: str) -> dict:
    entries = [{"name": name.replace("_", "-"), "quantity": text} for name, text in amounts.items()]
    return {"resourceClaimName": "x", "containers": list(containers), "mapping": entries}


def request_text(name: str) -> str:
    return (
        f"pod level request for {name} is insufficient to cover "
        "the aggregated container and node-allocatable DRA requests"
    )


def container_text(name: str, container: str) -> str:
    return f"pod level limit for {name} is insufficient to cover the limit and DRA overhead for container {container}"


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(
            {"containers": {"c": {"requests": {"cpu": "9"}}}, "status": [mapped("c", cpu="4")]}, (), id="no-budget"
        ),
        pytest.param({"resources": {"requests": {"cpu": "1"}}}, (), id="no-claims"),
        pytest.param(
            {"resources": {"requests": {"cpu": "4"}}, "status": [mapped("c", cpu="4")]}, (), id="exactly-enough"
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "3999m"}}, "status": [mapped("c", cpu="4")]},
            (request_text("cpu"),),
            id="cpu-short",
        ),
        pytest.param(
            {
                "resources": {"requests": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Mi"}},
                "status": [mapped("c", cpu="4", memory="2Gi", hugepages_2Mi="4Mi")],
            },
            (request_text("cpu"), request_text("hugepages-2Mi"), request_text("memory")),
            id="everything-short",
        ),
        pytest.param(
            {
                "resources": {"requests": {"cpu": "4"}},
                "overhead": {"cpu": "2"},
                "status": [mapped("c", cpu="4")],
            },
            (),
            id="pod-overhead-is-beside-the-budget",
        ),
        pytest.param(
            {
                "resources": {"requests": {"memory": "1Gi"}},
                "status": [
                    {
                        "resourceClaimName": "g",
                        "containers": ["c", "d"],
                        "overhead": [{"name": "memory", "perPod": "512Mi", "perContainer": "257Mi"}],
                    }
                ],
            },
            (request_text("memory"),),
            id="claim-overhead-counts-per-reference",
        ),
        pytest.param(
            {"resources": {"requests": {"memory": "1Gi"}}, "status": [mapped("c", cpu="4")]},
            (),
            id="resource-without-budget",
        ),
        pytest.param(
            {
                "containers": {"c": {"limits": {"cpu": "2"}}, "d": {"limits": {"cpu": "5"}}},
                "resources": {"limits": {"cpu": "6"}},
                "status": [mapped("c", cpu="4")],
            },
            (),
            id="limits-overcommitted-but-each-fits",
        ),
        pytest.param(
            {
                "containers": {"c": {"limits": {"cpu": "3"}}, "d": {"limits": {"cpu": "1"}}},
                "resources": {"limits": {"cpu": "6"}},
                "status": [mapped("c", "d", cpu="4")],
            },
            (container_text("cpu", "c"),),
            id="limit-of-one-container-too-high",
        ),
        pytest.param(
            {
                "containers": {"c": {}},
                "resources": {"limits": {"cpu": "1"}},
                "status": [mapped("c", cpu="4")],
            },
            (),
            id="container-without-limit",
        ),
        pytest.param(
            {
                "containers": {"c": {"limits": {"hugepages-2Mi": "2Mi"}}, "d": {"limits": {"hugepages-2Mi": "2Mi"}}},
                "resources": {"limits": {"hugepages-2Mi": "6Mi"}},
                "status": [mapped("c", hugepages_2Mi="4Mi")],
            },
            (
                "pod level limit for hugepages-2Mi is insufficient to cover "
                "the aggregated container and node-allocatable DRA limits",
            ),
            id="hugepages-are-never-overcommitted",
        ),
    ],
)
def test_budget(pod, expected):
    built = demanding_pod(**pod)
    charges = charges_in_status(built.status.node_allocatable_resource_claim_statuses)
    assert texts(budget_problems(built, charges)) == expected


def test_example_b_budget_of_5_for_6100m():
    pod = demanding_pod(
        init={"s": {"requests": {"cpu": "100m"}, "sidecar": True}, "i": {"requests": {"cpu": "2"}}},
        containers={"a": {"requests": {"cpu": "500m"}}, "b": {"requests": {"cpu": "250m"}}},
        overhead={"cpu": "50m"},
        resources={"requests": {"cpu": "5"}},
        status=[mapped("a", cpu="4")],
    )
    charges = charges_in_status(pod.status.node_allocatable_resource_claim_statuses)
    assert pod_demand(pod).milli_cpu == 5050
    assert texts(budget_problems(pod, charges)) == (request_text("cpu"),)


# --- sharing ---------------------------------------------------------------------------------------------------------

MAPPED = mapped("c", cpu="4")
OVERHEAD = {"resourceClaimName": "x", "containers": ["c"], "overhead": [{"name": "cpu", "perPod": "1"}]}
BOTH = MAPPED | {"overhead": OVERHEAD["overhead"]}
POOL = {
    "resourceClaimName": "x",
    "accounting": [{"name": "cpu", "quantity": "4", "accountingPolicy": "ConsumeFrom"}],
}
TEXT = "node allocatable resource claim x has a mapped device and cannot be shared across pods"


@pytest.mark.parametrize(
    ("status", "reserved_for", "expected"),
    [
        pytest.param(MAPPED, [], None, id="first-pod"),
        pytest.param(MAPPED, ["me"], None, id="this-pod"),
        pytest.param(MAPPED, ["my-group"], None, id="this-pods-group"),
        pytest.param(MAPPED, ["other"], TEXT, id="another-pod"),
        pytest.param(MAPPED, ["other-group"], TEXT, id="another-group"),
        pytest.param(OVERHEAD, ["other"], None, id="overhead-only"),
        pytest.param(BOTH, ["other"], TEXT, id="mapping-and-overhead"),
        pytest.param(POOL, ["other"], None, id="pool"),
    ],
)
def test_sharing(status, reserved_for, expected):
    (charge,) = charges_in_status(demanding_pod(status=[status]).status.node_allocatable_resource_claim_statuses)
    users = [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved_for]
    claim = to_object({"metadata": {"name": "x"}, "status": {"reservedFor": users}}, ResourceClaim)
    conflict = sharing_conflict(claim, charge, {"me", "my-group"})
    assert (conflict and conflict.text) == expected


# --- why -------------------------------------------------------------------------------------------------------------


def test_rows_name_pod_container_claim_and_device():
    world = World.of(
        """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: cpu.example.com
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices:
    - {name: core-0, nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: "2"}}}
    - {name: core-1, nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: "2"}}}
"""
    )
    results = [allocated_device(f"core-{i}", driver="cpu.example.com", pool="node-1") for i in range(2)]
    world.allocate("cores", *results)
    world.pods["web"] = demanding_pod(
        "web",
        containers={"app": {"requests": {"cpu": "1"}, "claims": ["c"]}, "log": {}},
        claims={"c": "cores"},
        overhead={"cpu": "50m"},
    )
    ledger = NodeLedger("n", quantities(cpu="8"))
    ledger.add(PodRef("default", "web"), pod_demand(world.pods["web"], world.charges("web")))
    rows = [(row.kind, row.container, row.claim, row.device, str(row.quantity)) for row in ledger.why("cpu")]
    assert rows == [
        ("container", "app", "", "", "1"),
        ("claim", "", "cores", "cpu.example.com/node-1/core-0", "2"),
        ("claim", "", "cores", "cpu.example.com/node-1/core-1", "2"),
        ("pod overhead", "", "", "", "50m"),
    ]
    assert ledger.why("memory") == []


def test_rows_show_the_moment_that_counts():
    pod = demanding_pod(
        init={"s": {"requests": {"cpu": "1"}, "sidecar": True}, "i": {"requests": {"cpu": "5"}}},
        containers={"c": {"requests": {"cpu": "2"}}},
    )
    ledger = NodeLedger("n", quantities(cpu="8"))
    ledger.add(PodRef("default", "p"), pod_demand(pod))
    assert [(row.kind, row.container) for row in ledger.why("cpu")] == [("sidecar", "s"), ("init container", "i")]


def test_a_pool_is_one_row_of_all_its_pods():
    pod = demanding_pod(containers={"c": {"requests": {"cpu": "1"}}}, status=[POOL | {"containers": ["c"]}])
    ledger = NodeLedger("n", quantities(cpu="8"))
    for name in ("a", "b"):
        ledger.add(PodRef("default", name), pod_demand(pod))
    (row,) = ledger.why("cpu")
    assert (row.kind, row.claim, str(row.quantity), [str(p) for p in row.pods]) == (
        "pool",
        "x",
        "4",
        ["default/a", "default/b"],
    )
