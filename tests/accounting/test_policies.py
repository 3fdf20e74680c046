"""The four policies: what each does to a pod's amounts, where it comes from, and what may meet in one container."""

import pytest
from tests.accounting.builders import World, allocated_device, demanding_pod, quantities

from dray.accounting import (
    DoesNotFit,
    Fits,
    NodeLedger,
    PodRef,
    Policy,
    Shortage,
    charges_in_status,
    check_compatibility,
    claim_statuses,
    pod_demand,
    pod_requests,
)
from dray.accounting.errors import IncompatiblePolicies, PolicyMissing, UnknownPolicy

SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: {driver}}}
spec:
  driver: {driver}
  pool: {{name: node-pool, generation: 1, resourceSliceCount: 1}}
  devices:
    - name: d
      allowMultipleAllocations: true
      capacity: {{amount: {{value: "1000"}}}}
      nodeAllocatableResourceMappings: {{cpu: {{capacityKey: amount{policy}}}}}
"""

CLASS = """
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: cls}}
spec: {spec}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: x, namespace: default}}
spec: {{devices: {{requests: [{request}]}}}}
"""
EXACT = "{name: req, exactly: {deviceClassName: cls}}"


def world_of_claims(*claims: tuple[str, Policy, int]) -> World:
    """One slice per (driver, policy); claims named c0, c1, … by position, as (driver, policy, cpus)."""
    slices = {
        f"{driver}-{policy.lower()}": SLICE.format(
            driver=f"{driver}-{policy.lower()}", policy=f", accountingPolicy: {policy}"
        )
        for driver, policy, _ in claims
    }
    world = World.of("\n---\n".join(slices.values()))
    for i, (driver, policy, cpus) in enumerate(claims):
        result = allocated_device("d", driver=f"{driver}-{policy.lower()}", consumedCapacity={"amount": str(cpus)})
        world.allocate(f"c{i}", result)
    return world


def cpu_of(world: World, containers: dict[str, dict], **more) -> int:
    names = {f"c{i}": f"c{i}" for i in range(len(world.allocations))}
    world.pods["p"] = demanding_pod("p", containers=containers, claims=names, **more)
    charges = world.charges("p")
    requests = pod_requests(world.pods["p"], charges=charges)
    return requests["cpu"].milli()


C1_C2 = {
    "c1": {"requests": {"cpu": "2"}, "claims": ["c0"]},
    "c2": {"requests": {"cpu": "5"}, "claims": ["c0"]},
}


@pytest.mark.parametrize(
    ("policy", "cpu"),
    [
        pytest.param(Policy.ADD_PER_CLAIM, 10_000, id="2+5+3"),
        pytest.param(Policy.ADD_PER_REFERENCE, 13_000, id="2+5+2*3"),
        pytest.param(Policy.MAX, 8_000, id="max(2,3)+max(5,3)"),
    ],
)
def test_arithmetic_of_a_claim_of_3_used_by_containers_of_2_and_5(policy, cpu):
    assert cpu_of(world_of_claims(("x", policy, 3)), C1_C2) == cpu


def test_a_pool_of_3_cannot_serve_containers_of_2_and_5():
    world = world_of_claims(("x", Policy.CONSUME_FROM, 3))
    world.pods["p"] = demanding_pod("p", containers=C1_C2, claims={"c0": "c0"})
    ledger = NodeLedger("n", quantities(cpu="100", pods="10"))
    refused = ledger.fits(pod_demand(world.pods["p"], world.charges("p")))
    assert isinstance(refused, DoesNotFit)
    assert refused.messages == ("Insufficient cpu in claim c0",)
    assert refused.is_unresolvable


@pytest.mark.parametrize(
    ("policy", "cpu"),
    [
        pytest.param(Policy.ADD_PER_CLAIM, 5_000, id="added"),
        pytest.param(Policy.ADD_PER_REFERENCE, 5_000, id="counted-as-one-reference"),
        pytest.param(Policy.MAX, 5_000, id="nothing-to-compare-with"),
        pytest.param(Policy.CONSUME_FROM, 5_000, id="pool-reserved"),
    ],
)
def test_an_unreferenced_claim_is_reserved_by_every_policy(policy, cpu):
    assert cpu_of(world_of_claims(("x", policy, 4)), {"c": {"requests": {"cpu": "1"}}}) == cpu


def test_several_max_claims_of_one_container_are_summed_before_comparing():
    world = world_of_claims(("x", Policy.MAX, 3), ("x", Policy.MAX, 4))
    assert cpu_of(world, {"c": {"requests": {"cpu": "5"}, "claims": ["c0", "c1"]}}) == 7_000


def test_max_and_added_claims_meet():
    """max(spec, sum of Max) + sum of Add: a base from the cpu driver, auxiliary cpu for a GPU."""
    world = world_of_claims(("cpu", Policy.MAX, 4), ("gpu", Policy.ADD_PER_CLAIM, 2))
    assert cpu_of(world, {"c": {"requests": {"cpu": "1"}, "claims": ["c0", "c1"]}}) == 6_000


def test_pool_and_added_claims_meet():
    """The container's request comes from the pool, the GPU's need from the node."""
    world = world_of_claims(("cpu", Policy.CONSUME_FROM, 40), ("gpu", Policy.ADD_PER_REFERENCE, 2))
    world.pods["p"] = demanding_pod(
        "p",
        containers={"c": {"requests": {"cpu": "12"}, "claims": ["c0", "c1"]}, "d": {"requests": {"cpu": "1"}}},
        claims={"c0": "c0", "c1": "c1"},
    )
    demand = pod_demand(world.pods["p"], world.charges("p"))
    assert demand.milli_cpu == 3_000
    assert [(draw.claims, draw.amount) for draw in demand.draws] == [(("default/c0",), 12_000)]
    ledger = NodeLedger("n", quantities(cpu="100", pods="10"))
    ledger.add(PodRef("default", "p"), demand)
    assert ledger.milli_cpu == 43_000


def test_max_claim_of_an_init_container_stays_taken_afterwards():
    """While `i` runs it uses the devices; later nobody does, but no other pod may have them."""
    world = world_of_claims(("x", Policy.MAX, 4))
    init = {"i": {"requests": {"cpu": "1"}, "claims": ["c0"]}}
    assert cpu_of(world, {"c": {"requests": {"cpu": "10"}}}, init=init) == 14_000
    assert cpu_of(world, {"c": {"requests": {"cpu": "10"}, "claims": ["c0"]}}, init=init) == 10_000


def test_pool_draws_follow_init_containers_and_sidecars():
    world = world_of_claims(("x", Policy.CONSUME_FROM, 40))
    world.pods["p"] = demanding_pod(
        "p",
        init={
            "s": {"requests": {"cpu": "2"}, "claims": ["c0"], "sidecar": True},
            "i": {"requests": {"cpu": "9"}, "claims": ["c0"]},
        },
        containers={"c": {"requests": {"cpu": "5"}, "claims": ["c0"]}},
        claims={"c0": "c0"},
    )
    (draw,) = pod_demand(world.pods["p"], world.charges("p")).draws
    assert draw.amount == 11_000


def test_a_container_with_two_pools_fills_the_first_then_the_second():
    world = world_of_claims(("x", Policy.CONSUME_FROM, 10), ("x", Policy.CONSUME_FROM, 10))
    ledger = NodeLedger("n", quantities(cpu="100", pods="10"))
    refs = []
    for name, cpu in (("a", "7"), ("b", "8"), ("c", "6")):
        world.pods[name] = demanding_pod(
            name,
            containers={"c": {"requests": {"cpu": cpu}, "claims": ["c0", "c1"]}},
            claims={"c0": "c0", "c1": "c1"},
        )
        demand = pod_demand(world.pods[name], world.charges(name))
        if name == "c":
            assert isinstance(ledger.fits(demand), DoesNotFit)
            break
        ledger.add(PodRef("default", name), demand)
        refs.append(PodRef("default", name))
        ledger.check()
    states = {claim: state.consumed for claim, state in ledger.claim_states.items()}
    assert states == {"default/c0": {"cpu": 10_000}, "default/c1": {"cpu": 5_000}}
    assert ledger.milli_cpu == 20_000
    for ref in refs:
        ledger.remove(ref)
        ledger.check()
    assert (ledger.milli_cpu, ledger.claim_states) == (0, {})


@pytest.mark.parametrize(
    ("second_pool", "answer"),
    [
        pytest.param(2, Fits(), id="enough"),
        pytest.param(1, DoesNotFit((Shortage("cpu", 6_000, 6_000, 11_000, "c0, c1"),)), id="one-cpu-short"),
    ],
)
def test_containers_of_one_pod_do_not_draw_the_same_part_of_a_pool(second_pool, answer):
    """The first takes 6 of 10; for the 6 of the other there are the 4 that are left, and the second pool."""
    world = world_of_claims(("x", Policy.CONSUME_FROM, 10), ("x", Policy.CONSUME_FROM, second_pool))
    world.pods["p"] = demanding_pod(
        "p",
        containers={
            "a": {"requests": {"cpu": "6"}, "claims": ["c0"]},
            "b": {"requests": {"cpu": "6"}, "claims": ["c0", "c1"]},
        },
        claims={"c0": "c0", "c1": "c1"},
    )
    ledger = NodeLedger("n", quantities(cpu="100", pods="10"))
    assert ledger.fits(pod_demand(world.pods["p"], world.charges("p"))) == answer


def test_pod_level_budget_covers_what_comes_from_a_pool():
    world = world_of_claims(("x", Policy.CONSUME_FROM, 40))
    world.pods["p"] = demanding_pod(
        "p",
        containers={"c": {"requests": {"cpu": "12"}, "claims": ["c0"]}},
        claims={"c0": "c0"},
        resources={"requests": {"cpu": "15"}},
    )
    demand = pod_demand(world.pods["p"], world.charges("p"))
    assert demand.milli_cpu == 3_000


# --- where the policy comes from -------------------------------------------------------------------------------------


def policy_found(device_policy: str, class_spec: str, request: str = EXACT, result_request: str = "req") -> Policy:
    device = f", accountingPolicy: {device_policy}" if device_policy else ""
    text = SLICE.format(driver="drv", policy=device) + CLASS.format(spec=class_spec, request=request)
    world = World.of(text)
    world.allocate("x", {**allocated_device("d", driver="drv"), "request": result_request})
    world.pods["p"] = demanding_pod("p", claims={"x": "x"})
    ((amount,),) = (charge.mapped for charge in world.charges("p"))
    return amount.policy


@pytest.mark.parametrize(
    ("device", "class_spec", "expected"),
    [
        pytest.param("", "{}", Policy.ADD_PER_CLAIM, id="nobody-says-default"),
        pytest.param("Max", "{}", Policy.MAX, id="device"),
        pytest.param("", "{nodeAllocatableResourceAccountingPolicies: {cpu: Max}}", Policy.MAX, id="class"),
        pytest.param(
            "AddPerReference",
            "{nodeAllocatableResourceAccountingPolicies: {cpu: Max}}",
            Policy.ADD_PER_REFERENCE,
            id="device-wins",
        ),
        pytest.param(
            "", "{managesNodeAllocatableResources: true}", Policy.ADD_PER_CLAIM, id="managing-class-without-policies"
        ),
    ],
)
def test_precedence(device, class_spec, expected):
    assert policy_found(device, class_spec) is expected


def test_the_class_of_a_chosen_alternative_decides():
    request = "{name: req, firstAvailable: [{name: a, deviceClassName: other}, {name: b, deviceClassName: cls}]}"
    spec = "{nodeAllocatableResourceAccountingPolicies: {cpu: Max}}"
    assert policy_found("", spec, request, "req/b") is Policy.MAX
    assert policy_found("", spec, request, "req/a") is Policy.ADD_PER_CLAIM


def test_missing_policy_is_an_error_where_the_class_has_some():
    with pytest.raises(PolicyMissing, match="claim default/x, device d: no accounting policy for cpu") as error:
        policy_found("", "{nodeAllocatableResourceAccountingPolicies: {memory: Max}}")
    assert "device class cls" in str(error.value)


def test_unknown_policy():
    with pytest.raises(UnknownPolicy, match="'Sum' is not known"):
        policy_found("Sum", "{}")


# --- what may meet ---------------------------------------------------------------------------------------------------

MAX, FROM, ADD, REF = Policy.MAX, Policy.CONSUME_FROM, Policy.ADD_PER_CLAIM, Policy.ADD_PER_REFERENCE


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        pytest.param(("x", ADD), ("y", ADD), None, id="add-add"),
        pytest.param(("x", ADD), ("y", REF), None, id="add-reference"),
        pytest.param(("x", MAX), ("y", ADD), None, id="max-add"),
        pytest.param(("x", FROM), ("y", REF), None, id="pool-reference"),
        pytest.param(("x", MAX), ("x", MAX), None, id="max-max-one-driver"),
        pytest.param(("x", FROM), ("x", FROM), None, id="pool-pool-one-driver"),
        pytest.param(
            ("x", MAX),
            ("y", FROM),
            "container c: claim c0 counts cpu by Max and claim c1 by ConsumeFrom, which exclude each other",
            id="invalid-1-max-and-pool-of-two-drivers",
        ),
        pytest.param(
            ("x", FROM),
            ("y", FROM),
            "container c: claims c0 and c1 count cpu by ConsumeFrom for different drivers "
            r"\(x-consumefrom, y-consumefrom\)",
            id="invalid-2-pools-of-two-drivers",
        ),
        pytest.param(
            ("x", MAX),
            ("y", MAX),
            r"container c: claims c0 and c1 count cpu by Max for different drivers \(x-max, y-max\)",
            id="invalid-3-max-of-two-drivers",
        ),
        pytest.param(("x", MAX), ("x", FROM), "which exclude each other", id="max-and-pool-of-one-driver"),
    ],
)
def test_compatibility_in_one_container(one, other, message):
    world = world_of_claims((*one, 4), (*other, 8))
    world.pods["p"] = demanding_pod("p", containers={"c": {"claims": ["c0", "c1"]}}, claims={"c0": "c0", "c1": "c1"})
    charges = world.charges("p")
    if message is None:
        check_compatibility(charges)
    else:
        with pytest.raises(IncompatiblePolicies, match=message):
            check_compatibility(charges)


def test_claims_of_different_containers_do_not_meet():
    world = world_of_claims(("x", MAX, 4), ("y", FROM, 8))
    containers = {"c": {"claims": ["c0"]}, "d": {"claims": ["c1"]}}
    world.pods["p"] = demanding_pod("p", containers=containers, claims={"c0": "c0", "c1": "c1"})
    check_compatibility(world.charges("p"))


# --- through the pod's status ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", list(Policy))
def test_a_restarted_scheduler_counts_the_same(policy):
    """What the charges become in the pod's status brings back the same demand."""
    world = world_of_claims(("x", policy, 30), ("y", Policy.ADD_PER_CLAIM, 2))
    containers = {"c1": {"requests": {"cpu": "2"}, "claims": ["c0", "c1"]}, "c2": {"claims": ["c0"]}}
    world.pods["p"] = demanding_pod("p", containers=containers, claims={"c0": "c0", "c1": "c1"})
    charges = world.charges("p")
    again = charges_in_status(claim_statuses(charges))
    before, after = pod_demand(world.pods["p"], charges), pod_demand(world.pods["p"], again)
    assert (before.milli_cpu, before.pools, before.draws) == (after.milli_cpu, after.pools, after.draws)
    assert before.exclusive_claims == after.exclusive_claims
