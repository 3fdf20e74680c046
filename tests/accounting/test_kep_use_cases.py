"""The worked examples of both KEP-5517 texts, with the KEP's numbers, in both spellings where both are written."""

import pytest
from tests.accounting.builders import World, allocated_device, demanding_pod, quantities

from dray.accounting import DoesNotFit, Fits, NodeLedger, PodRef, budget_problems, pod_demand, pod_requests

NODE1 = quantities(cpu="64", memory="256Gi", pods="110")

OLD_SOCKET = """
nativeResourceMappings:
  cpu: {quantityFrom: {capacity: dra.example.com/cpu}}
  memory: {quantityFrom: {capacity: dra.example.com/memory}}
"""
NEW_SOCKET = """
nodeAllocatableResourceMappings:
  cpu: {capacityKey: dra.example.com/cpu}
  memory: {capacityKey: dra.example.com/memory}
"""
TODAYS_SOCKET = """
nodeAllocatableResources:
  cpu: {mapping: {capacityKey: dra.example.com/cpu, capacityMultiplier: "1"}}
  memory: {mapping: {capacityKey: dra.example.com/memory, capacityMultiplier: "1"}}
"""
OLD_CORE = 'nativeResourceMappings: {cpu: {quantityFrom: {perInstanceQuantity: "1"}}}'
NEW_CORE = 'nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: "1"}}'
TODAYS_CORE = 'nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: "1"}}}'

spellings = pytest.mark.parametrize("socket", [OLD_SOCKET, NEW_SOCKET, TODAYS_SOCKET], ids=["older", "newer", "1.37"])


def socket_slice(mappings: str) -> str:
    indented = "\n".join("      " + line for line in mappings.strip().splitlines())
    return f"""
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: node1-slice}}
spec:
  driver: dra.example.com
  nodeName: node1
  pool: {{name: node-pool, generation: 1, resourceSliceCount: 1}}
  devices:
    - name: socket0
      attributes: {{"dra.example.com/type": {{string: socket}}}}
      allowMultipleAllocations: true
      capacity:
        dra.example.com/cpu: {{value: "128"}}
        dra.example.com/memory: {{value: 256Gi}}
{indented}
"""


def of_socket(**consumed: str) -> dict:
    return allocated_device(
        "socket0", consumedCapacity={f"dra.example.com/{name}": text for name, text in consumed.items()}
    )


def placed(world: World, pod_name: str) -> NodeLedger:
    """The node after the scheduler's cache update."""
    pod = world.pods[pod_name]
    ledger = NodeLedger("node1", NODE1)
    demand = pod_demand(pod, world.charges(pod_name))
    assert ledger.fits(demand) == Fits()
    ledger.assume(PodRef.of(pod), demand)
    ledger.check()
    return ledger


def gi(amount: float) -> int:
    return int(amount * 2**30)


@spellings
def test_use_case_1_standard_and_claimed_cpu_and_memory(socket):
    world = World.of(socket_slice(socket))
    world.allocate("cpu-mem-claim", of_socket(cpu="4", memory="8Gi"))
    world.pods["dra-pod"] = demanding_pod(
        "dra-pod",
        containers={
            "my-app1": {"requests": {"cpu": "100m", "memory": "100Mi"}, "claims": ["my-cpu-mem-claim"]},
            "my-app2": {"claims": ["my-cpu-mem-claim"]},
        },
        claims={"my-cpu-mem-claim": "cpu-mem-claim"},
    )
    pod = world.pods["dra-pod"]
    assert pod_requests(pod) == quantities(cpu="100m", memory="100Mi")
    assert pod_requests(pod, charges=world.charges("dra-pod")) == quantities(cpu="4100m", memory="8292Mi")
    ledger = placed(world, "dra-pod")
    assert (ledger.milli_cpu, ledger.memory) == (4100, 8292 * 2**20)


@spellings
@pytest.mark.parametrize(
    ("chosen", "cpu"),
    [
        pytest.param(allocated_device("gpu0", driver="gpu.example.com"), 1000, id="scenario-A-gpu"),
        pytest.param(of_socket(cpu="30"), 31000, id="scenario-B-cpu"),
    ],
)
def test_use_case_2_fungible_claim(socket, chosen, cpu):
    world = World.of(
        socket_slice(socket)
        + """
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node1-gpus}
spec:
  driver: gpu.example.com
  nodeName: node1
  pool: {name: node-pool, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu0}]
"""
    )
    world.allocate("gpu-or-cpu", chosen)
    world.pods["fungible-pod"] = demanding_pod(
        "fungible-pod",
        containers={"my-app": {"requests": {"cpu": "1", "memory": "1Gi"}, "claims": ["gpu-or-cpu"]}},
        claims={"gpu-or-cpu": "gpu-or-cpu"},
    )
    ledger = placed(world, "fungible-pod")
    assert (ledger.milli_cpu, ledger.memory) == (cpu, gi(1))


def test_use_case_2_status_as_the_older_text_writes_it():
    (pod,) = World.of(
        """
apiVersion: v1
kind: Pod
metadata: {name: fungible-pod}
spec:
  containers:
    - name: my-app
      resources: {requests: {cpu: "1", memory: 1Gi}, claims: [{name: gpu-or-cpu}]}
status:
  nativeResourceClaimStatus:
    - claimInfo: {name: gpu-or-cpu}
      containers: [my-app]
      resources: [{resourceName: cpu, quantity: 30}]
"""
    ).pods.values()
    assert pod_demand(pod).milli_cpu == 31000
    assert pod_demand(pod).memory == gi(1)


@pytest.mark.parametrize(
    ("socket", "gpu"),
    [
        (
            OLD_SOCKET,
            "nativeResourceMappings: {cpu: {quantityFrom: {perInstanceQuantity: 2}}, "
            "memory: {quantityFrom: {perInstanceQuantity: 4Gi}}}",
        ),
        (
            NEW_SOCKET,
            "nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: 2}, memory: {allocationMultiplier: 4Gi}}",
        ),
        (
            TODAYS_SOCKET,
            "nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: 2}}, memory: {mapping: {deviceMultiplier: 4Gi}}}",
        ),
    ],
    ids=["older", "newer", "1.37"],
)
def test_use_case_3_claimed_cpu_and_a_gpu_that_needs_some(socket, gpu):
    world = World.of(
        socket_slice(socket)
        + f"""
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: gpus}}
spec:
  driver: gpu.example.com
  nodeName: node1
  pool: {{name: node-pool, generation: 1, resourceSliceCount: 1}}
  devices:
    - name: gpu0
      {gpu}
"""
    )
    world.allocate("cpu-claim", of_socket(cpu="10"))
    world.allocate("gpu-claim", allocated_device("gpu0", driver="gpu.example.com"))
    both = ["my-cpu-claim", "my-gpu-claim"]
    world.pods["combined-dra-pod"] = demanding_pod(
        "combined-dra-pod",
        containers={
            "my-app1": {"requests": {"cpu": "100m", "memory": "1Gi"}, "claims": both},
            "my-app2": {"requests": {"cpu": "200m", "memory": "2Gi"}, "claims": both},
        },
        claims={"my-cpu-claim": "cpu-claim", "my-gpu-claim": "gpu-claim"},
    )
    assert pod_requests(world.pods["combined-dra-pod"]) == quantities(cpu="300m", memory="3Gi")
    ledger = placed(world, "combined-dra-pod")
    assert (ledger.milli_cpu, ledger.memory) == (12300, gi(7))


@spellings
def test_use_case_4_pod_level_budget_with_shared_claim_and_sidecars(socket):
    world = World.of(socket_slice(socket))
    world.allocate("cpu-req-10-cpus", of_socket(cpu="10"))
    budget = {"cpu": "11", "memory": "10Gi"}
    world.pods["plr"] = demanding_pod(
        "plr",
        containers={
            "my-app1": {"claims": ["cpu-req-10-cpus"]},
            "my-app2": {"claims": ["cpu-req-10-cpus"]},
            "sidecar-container-1": {},
            "sidecar-container-2": {},
        },
        claims={"cpu-req-10-cpus": "cpu-req-10-cpus"},
        resources={"requests": budget, "limits": budget},
    )
    charges = world.charges("plr")
    assert budget_problems(world.pods["plr"], charges) == ()
    ledger = placed(world, "plr")
    assert (ledger.milli_cpu, ledger.memory) == (11000, gi(10))


@pytest.mark.parametrize("core", [OLD_CORE, NEW_CORE, TODAYS_CORE], ids=["older", "newer", "1.37"])
def test_several_claims_per_container(core):
    """ClaimA is used by both containers and counts once: 1 + 4 + 2 + 2 = 9."""
    devices = "\n".join(f"    - {{name: cpu{i}, {core}}}" for i in range(6))
    world = World.of(
        f"""
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: cpu-slice}}
spec:
  driver: dra.example.com
  nodeName: my-node
  pool: {{name: node-pool, generation: 1, resourceSliceCount: 1}}
  devices:
{devices}
"""
    )
    world.allocate("claim-a", *(allocated_device(f"cpu{i}") for i in range(4)))
    world.allocate("claim-b", *(allocated_device(f"cpu{4 + i}") for i in range(2)))
    world.pods["pod1"] = demanding_pod(
        "pod1",
        containers={
            "c1": {"requests": {"cpu": "1"}, "claims": ["a", "b"]},
            "c2": {"requests": {"cpu": "2"}, "claims": ["a"]},
        },
        claims={"a": "claim-a", "b": "claim-b"},
    )
    assert pod_demand(world.pods["pod1"], world.charges("pod1")).milli_cpu == 9000


def test_unreferenced_claim_counts_once():
    world = World.of(socket_slice(NEW_SOCKET))
    world.allocate("exclusive", of_socket(cpu="4"))
    world.pods["p"] = demanding_pod("p", containers={"c": {"requests": {"cpu": "1"}}}, claims={"x": "exclusive"})
    (charge,) = world.charges("p")
    assert charge.containers == ()
    assert pod_demand(world.pods["p"], [charge]).milli_cpu == 5000


PARTITIONS = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: partitions}
spec:
  driver: dra.example.com
  nodeName: my-node
  pool: {name: node-pool, generation: 1, resourceSliceCount: 1}
  devices:
    - name: socket-0-l3-0
      capacity: {dra.example.com/cpu: {value: "8"}}
      consumesCounters: [{counterSet: node-cpu-counters, counters: {cpu: {value: "8"}}}]
      nodeAllocatableResourceMappings: {cpu: {capacityKey: dra.example.com/cpu}}
    - name: socket-0-numa-0
      capacity: {dra.example.com/cpu: {value: "32"}}
      consumesCounters: [{counterSet: node-cpu-counters, counters: {cpu: {value: "32"}}}]
      nativeResourceMappings: {cpu: {quantityFrom: {capacity: dra.example.com/cpu}}}
"""


@pytest.mark.parametrize(("device", "cpu"), [("socket-0-l3-0", 8000), ("socket-0-numa-0", 32000)])
def test_a_partition_counts_its_own_capacity(device, cpu):
    """A dedicated device has no consumed capacity in its allocation."""
    world = World.of(PARTITIONS).allocate("part", allocated_device(device))
    world.pods["p"] = demanding_pod("p", containers={"c": {"claims": ["x"]}}, claims={"x": "part"})
    assert pod_demand(world.pods["p"], world.charges("p")).milli_cpu == cpu


@pytest.mark.parametrize(
    "mappings",
    [
        'nativeResourceMappings: {cpu: {quantityFrom: {perInstanceQuantity: "2"}}, '
        "memory: {quantityFrom: {perInstanceQuantity: 8Gi}}}",
        'nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: "2"}, memory: {allocationMultiplier: 8Gi}}',
        "nodeAllocatableResources: {cpu: {overhead: {perPod: 2}}, memory: {overhead: {perPod: 8Gi}}}",
    ],
    ids=["older", "newer", "1.37"],
)
def test_an_accelerator_needs_cpu_and_memory_beside_it(mappings):
    world = World.of(
        f"""
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: my-node-xpus}}
spec:
  driver: xpu.example.com
  nodeName: my-node
  pool: {{name: node-pool, generation: 1, resourceSliceCount: 1}}
  devices: [{{name: xpu-model-x-001, {mappings}}}]
"""
    ).allocate("xpu", allocated_device("xpu-model-x-001", driver="xpu.example.com"))
    world.pods["p"] = demanding_pod("p", containers={"c": {"claims": ["x"]}}, claims={"x": "xpu"})
    demand = pod_demand(world.pods["p"], world.charges("p"))
    assert (demand.milli_cpu, demand.memory) == (2000, gi(8))


@pytest.mark.parametrize(
    ("multiplier", "count", "expected"),
    [
        pytest.param("2", 4, ("cpu", 8000), id="four-cores-of-two-cpus"),
        pytest.param("2Gi", 2, ("memory", gi(4)), id="memory-per-gpu"),
        pytest.param(None, 3, ("cpu", 3000), id="default-multiplier-counts-devices"),
    ],
)
def test_allocation_multiplier_multiplies_the_device_count(multiplier, count, expected):
    resource, amount = expected
    mapping = {} if multiplier is None else {"allocationMultiplier": multiplier}
    devices = [{"name": f"d{i}", "nodeAllocatableResourceMappings": {resource: mapping}} for i in range(count)]
    world = World.of(
        f"""
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: s}}
spec:
  driver: dra.example.com
  pool: {{name: node-pool, generation: 1, resourceSliceCount: 1}}
  devices: {devices}
"""
    ).allocate("many", *(allocated_device(f"d{i}") for i in range(count)))
    world.pods["p"] = demanding_pod("p", claims={"x": "many"})
    assert pod_demand(world.pods["p"], world.charges("p")).amount(resource) == amount


def test_allocation_multiplier_multiplies_consumed_capacity():
    """A claim of 8 cores, each with 2 cpus, takes 16."""
    world = World.of(
        """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: dra.example.com
  pool: {name: node-pool, generation: 1, resourceSliceCount: 1}
  devices:
    - name: socket0
      allowMultipleAllocations: true
      capacity: {dra.example.com/cores: {value: "64"}}
      nodeAllocatableResourceMappings:
        cpu: {capacityKey: dra.example.com/cores, allocationMultiplier: "2"}
"""
    ).allocate("cores", allocated_device("socket0", consumedCapacity={"dra.example.com/cores": "8"}))
    world.pods["p"] = demanding_pod("p", claims={"x": "cores"})
    assert pod_demand(world.pods["p"], world.charges("p")).milli_cpu == 16000


POOL = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: shared-cpu-pool-slice}
spec:
  driver: dra.example.com
  pool: {name: node-pool, generation: 1, resourceSliceCount: 1}
  devices:
    - name: shared-pool-instance-1
      allowMultipleAllocations: true
      capacity: {dra.example.com/cpu: {value: "128"}}
      MAPPING
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: shared-cpu-pool}
spec:
  CLASS
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared-cpu-claim, namespace: default}
spec:
  devices:
    requests:
      - name: pool
        exactly:
          deviceClassName: shared-cpu-pool
          capacity: {requests: {dra.example.com/cpu: "100"}}
"""
DEVICE_POLICY = (
    "nodeAllocatableResourceMappings: {cpu: {accountingPolicy: ConsumeFrom, capacityKey: dra.example.com/cpu}}",
    "managesNodeAllocatableResources: true",
)
CLASS_POLICY = (
    "nodeAllocatableResourceMappings: {cpu: {capacityKey: dra.example.com/cpu}}",
    "{managesNodeAllocatableResources: true, nodeAllocatableResourceAccountingPolicies: {cpu: ConsumeFrom}}",
)
OLD_CLASS_POLICY = (
    "nativeResourceMappings: {cpu: {quantityFrom: {capacity: dra.example.com/cpu}}}",
    "{managesNativeResources: true, nativeResourceAccountingPolicies: {cpu: ConsumeFrom}}",
)


@pytest.fixture(params=[DEVICE_POLICY, CLASS_POLICY, OLD_CLASS_POLICY], ids=["device", "class", "older-class"])
def pool_world(request) -> World:
    mapping, device_class = request.param
    world = World.of(POOL.replace("MAPPING", mapping).replace("CLASS", device_class))
    result = allocated_device("shared-pool-instance-1", consumedCapacity={"dra.example.com/cpu": "100"})
    world.allocate("shared-cpu-claim", {**result, "request": "pool"})
    for name, container, cpu in (("pod1", "container-a", "10"), ("pod2", "container-b", "20"), ("big", "c", "71")):
        world.pods[name] = demanding_pod(
            name,
            containers={container: {"requests": {"cpu": cpu}, "claims": ["my-pool"]}},
            claims={"my-pool": "shared-cpu-claim"},
        )
    return world


@pytest.mark.parametrize("first_to_go", ["pod1", "pod2"])
def test_pods_draw_from_a_shared_cpu_pool(pool_world, first_to_go):
    ledger = NodeLedger("node1", quantities(cpu="128", memory="1Gi", pods="110"))
    demands = {name: pod_demand(pod, pool_world.charges(name)) for name, pod in pool_world.pods.items()}
    refs = {name: PodRef.of(pod) for name, pod in pool_world.pods.items()}

    def state() -> tuple[int, int, int] | None:
        found = ledger.claim_states.get("default/shared-cpu-claim")
        return found and (found.allocated["cpu"], found.consumed["cpu"], len(found.consumers))

    assert ledger.fits(demands["pod1"]) == Fits()
    ledger.assume(refs["pod1"], demands["pod1"])
    assert (ledger.milli_cpu, state()) == (100_000, (100_000, 10_000, 1))

    assert ledger.fits(demands["pod2"]) == Fits()
    ledger.assume(refs["pod2"], demands["pod2"])
    assert (ledger.milli_cpu, state()) == (100_000, (100_000, 30_000, 2))

    refused = ledger.fits(demands["big"])
    assert isinstance(refused, DoesNotFit)
    assert refused.messages == ("Insufficient cpu in claim shared-cpu-claim",)
    assert not refused.is_unresolvable

    ledger.check()
    left = {"pod1": 20_000, "pod2": 10_000}[first_to_go]
    ledger.remove(refs[first_to_go])
    assert (ledger.milli_cpu, state()) == (100_000, (100_000, left, 1))
    ledger.remove(refs["pod2" if first_to_go == "pod1" else "pod1"])
    assert (ledger.milli_cpu, state()) == (0, None)
    ledger.check()


def test_the_pool_is_not_for_pods_outside_it(pool_world):
    ledger = NodeLedger("node1", quantities(cpu="128", memory="1Gi", pods="110"))
    ledger.add(PodRef("default", "pod1"), pod_demand(pool_world.pods["pod1"], pool_world.charges("pod1")))
    outside = pod_demand(demanding_pod("outside", containers={"c": {"requests": {"cpu": "29"}}}))
    assert isinstance(ledger.fits(outside), DoesNotFit)
