"""The node's ledger: answers, events, and that totals are always the sum over pods."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.accounting.builders import demanding_pod, quantities
from tests.builders.manifests import a_node

from dray.accounting import ClusterLedger, Demand, DoesNotFit, Fits, NodeLedger, PodRef, pod_demand
from dray.accounting.errors import AlreadyPlaced, LedgerInconsistent, NegativeAmount, NotAssumed
from dray.accounting.ledger_rows import lines_of
from dray.accounting.resources import ledger_amount
from dray.api.codec import to_object
from dray.api.core import Node
from dray.api.quantity import Quantity


def a_ledger(**allocatable: str) -> NodeLedger:
    return NodeLedger("n", quantities(**({"cpu": "10", "memory": "10Gi", "pods": "110"} | allocatable)))


def asking(*, mapped: str | None = None, claim: str = "x", **requests: str) -> Demand:
    """A pod with one container, and a claim that maps cpu to it."""
    status = [{"resourceClaimName": claim, "containers": ["c"], "mapping": [{"name": "cpu", "quantity": mapped}]}]
    names = {name.replace("_", "-"): text for name, text in requests.items()}
    return pod_demand(demanding_pod(containers={"c": {"requests": names}}, status=status if mapped else None))


def ref(name: str) -> PodRef:
    return PodRef("default", name, f"uid-{name}")


def test_example_d():
    ledger = a_ledger()
    ledger.add(ref("p1"), asking(cpu="500m", mapped="4"))
    assert ledger.milli_cpu == 4500
    ledger.add(ref("p2"), asking(cpu="5"))
    assert ledger.milli_cpu == 9500
    refused = ledger.fits(asking(mapped="1", claim="y"))
    assert isinstance(refused, DoesNotFit)
    assert (refused.messages, refused.is_unresolvable) == (("Insufficient cpu",), False)
    never = ledger.fits(asking(mapped="11", claim="y"))
    assert isinstance(never, DoesNotFit)
    assert never.is_unresolvable
    ledger.remove(ref("p1"))
    assert ledger.milli_cpu == 5000


@pytest.mark.parametrize(
    ("requests", "messages"),
    [
        pytest.param({}, (), id="nothing-asked"),
        pytest.param({"cpu": "10", "memory": "10Gi"}, (), id="exactly-all"),
        pytest.param({"cpu": "10001m"}, ("Insufficient cpu",), id="cpu"),
        pytest.param({"memory": "11Gi"}, ("Insufficient memory",), id="memory"),
        pytest.param({"ephemeral_storage": "1"}, ("Insufficient ephemeral-storage",), id="storage"),
        pytest.param({"hugepages_2Mi": "66Mi"}, ("Insufficient hugepages-2Mi",), id="hugepages-2Mi"),
        pytest.param({"hugepages_1Gi": "1Gi"}, ("Insufficient hugepages-1Gi",), id="hugepages-the-node-lacks"),
        pytest.param({"example.com/gpu": "3"}, ("Insufficient example.com/gpu",), id="extended"),
        pytest.param({"hugepages_1Gi": "0", "example.com/none": "0"}, (), id="zero-of-what-the-node-lacks"),
        pytest.param(
            {"example.com/gpu": "3", "memory": "11Gi", "cpu": "11"},
            ("Insufficient cpu", "Insufficient memory", "Insufficient example.com/gpu"),
            id="all-that-is-short",
        ),
    ],
)
def test_reasons(requests, messages):
    ledger = a_ledger(hugepages_2Mi="64Mi", **{"example.com/gpu": "2"})
    answer = ledger.fits(asking(**requests))
    assert (answer.messages if isinstance(answer, DoesNotFit) else ()) == messages


def test_too_many_pods_comes_first_and_can_be_resolved():
    ledger = a_ledger(pods="1")
    ledger.add(ref("a"), asking())
    refused = ledger.fits(asking(cpu="11"))
    assert isinstance(refused, DoesNotFit)
    assert refused.messages == ("Too many pods", "Insufficient cpu")
    full = ledger.fits(asking())
    assert isinstance(full, DoesNotFit)
    assert not full.is_unresolvable


def test_the_check_of_node_allocatable_resources_leaves_the_rest_to_others():
    ledger = a_ledger(pods="0")
    assert ledger.fits_node_allocatable(asking(cpu="1", **{"example.com/gpu": "1"})) == Fits()
    refused = ledger.fits_node_allocatable(asking(cpu="11", hugepages_2Mi="2Mi"))
    assert isinstance(refused, DoesNotFit)
    assert refused.messages == ("Insufficient cpu", "Insufficient hugepages-2Mi")


def test_a_mapped_claim_belongs_to_one_pod():
    ledger = a_ledger()
    demand = asking(mapped="1")
    ledger.add(ref("a"), demand)
    refused = ledger.fits(demand)
    assert isinstance(refused, DoesNotFit)
    assert refused.is_unresolvable
    assert refused.messages == (
        "node allocatable resource claim x has a mapped device and cannot be shared across pods",
    )
    ledger.remove(ref("a"))
    assert ledger.fits(demand) == Fits()


def test_overhead_may_be_shared_and_is_charged_to_each_pod():
    status = [{"resourceClaimName": "g", "containers": ["c"], "overhead": [{"name": "cpu", "perPod": "1"}]}]
    demand = pod_demand(demanding_pod(status=status))
    ledger = a_ledger()
    ledger.add(ref("a"), demand)
    assert ledger.fits(demand) == Fits()
    ledger.add(ref("b"), demand)
    assert ledger.milli_cpu == 2000


def test_amounts_are_rounded_up_per_pod():
    """Kubernetes rounds what a pod asks for together, not each container."""
    pod = demanding_pod(
        containers={"a": {"requests": {"cpu": "1n", "memory": "100m"}}, "b": {"requests": {"cpu": "1n"}}}
    )
    demand = pod_demand(pod)
    assert (demand.milli_cpu, demand.memory) == (1, 1)


def test_non_zero_amounts_for_scoring():
    demand = pod_demand(demanding_pod(containers={"a": {}, "b": {"requests": {"cpu": "0"}}}))
    assert (demand.milli_cpu, demand.memory) == (0, 0)
    assert (demand.non_zero_milli_cpu, demand.non_zero_memory) == (100, 400 * 2**20)
    ledger = a_ledger()
    ledger.add(ref("a"), demand)
    assert (ledger.non_zero_milli_cpu, ledger.non_zero_memory) == (100, 400 * 2**20)


def test_pods_that_ask_for_the_same_share_one_demand():
    one, other = (pod_demand(demanding_pod(name, containers={"c": {"requests": {"cpu": "3"}}})) for name in ("a", "b"))
    assert one is other


# --- events ----------------------------------------------------------------------------------------------------------


def test_assumed_then_seen_counts_once():
    ledger = a_ledger()
    ledger.assume(ref("a"), asking(cpu="2"))
    assert ledger.is_assumed(ref("a"))
    ledger.add(ref("a"), asking(cpu="3"))
    assert (ledger.milli_cpu, ledger.pod_count, ledger.is_assumed(ref("a"))) == (3000, 1, False)
    with pytest.raises(NotAssumed, match="pod default/a is not assumed on node n"):
        ledger.forget(ref("a"))
    assert ledger.milli_cpu == 3000


def test_forget_takes_back_what_assume_entered():
    ledger = a_ledger()
    ledger.assume(ref("a"), asking(cpu="2"))
    with pytest.raises(AlreadyPlaced, match="pod default/a is on node n already"):
        ledger.assume(ref("a"), asking(cpu="1"))
    ledger.forget(ref("a"))
    assert (ledger.milli_cpu, ledger.pod_count) == (0, 0)
    assert ledger.remove(ref("a")) is None


def test_a_shrunken_node_keeps_its_pods_and_says_so():
    ledger = a_ledger()
    ledger.add(ref("a"), asking(cpu="8"))
    ledger.set_allocatable(quantities(cpu="4", memory="10Gi", pods="110"))
    (short,) = ledger.overcommitted()
    assert (short.resource, short.used, short.capacity) == ("cpu", 8000, 4000)
    assert isinstance(ledger.fits(asking(cpu="1m")), DoesNotFit)


def test_an_extended_resource_that_devices_serve_is_not_the_nodes_to_run_out_of():
    ledger = a_ledger()
    demand = pod_demand(demanding_pod(containers={"c": {"requests": {"cpu": "1", "example.com/gpu": "1"}}}))
    ledger.add(ref("a"), demand)
    assert ledger.overcommitted() == []
    assert [line.resource for line in lines_of(ledger)] == ["cpu", "memory"]
    ledger.set_allocatable(quantities(cpu="10", pods="110") | {"example.com/gpu": Quantity.ZERO})
    assert [short.resource for short in ledger.overcommitted()] == ["example.com/gpu"]


def test_a_copy_is_apart():
    ledger = a_ledger()
    ledger.add(ref("a"), asking(cpu="2", mapped="1"))
    twin = ledger.copy()
    twin.remove(ref("a"))
    twin.check()
    ledger.check()
    assert (twin.milli_cpu, ledger.milli_cpu) == (0, 3000)
    assert set(ledger.claim_states) == {"default/x"}


def test_check_sees_a_total_that_drifted():
    ledger = a_ledger()
    ledger.add(ref("a"), asking(cpu="2"))
    ledger.milli_cpu += 1
    with pytest.raises(LedgerInconsistent, match="milli_cpu is 2001, its pods add up to 2000"):
        ledger.check()


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"containers": {"c": {"requests": {"cpu": "-1"}}}}, id="container"),
        pytest.param({"overhead": {"cpu": "-1"}}, id="overhead"),
        pytest.param({"resources": {"requests": {"cpu": "-1"}}}, id="level"),
        pytest.param({"status": [{"resourceClaimName": "x", "resources": {"cpu": "-1"}}]}, id="claim"),
        pytest.param(
            {"status": [{"resourceClaimName": "x", "overhead": [{"name": "cpu", "perPod": "-1"}]}]}, id="claim-overhead"
        ),
    ],
)
def test_negative_amounts_never_reach_the_ledger(pod):
    with pytest.raises(NegativeAmount, match="below zero"):
        pod_demand(demanding_pod(**pod))


# --- properties ------------------------------------------------------------------------------------------------------

cpus = st.integers(0, 8000).map(lambda milli: f"{milli}m")
amounts = st.fixed_dictionaries(
    {}, optional={"cpu": cpus, "memory": st.sampled_from(["0", "1Gi", "100M"]), "hugepages-2Mi": st.just("2Mi")}
)
CLAIMS = {"pool-a": "40", "pool-b": "7", "max-a": "3", "add-a": "2", "ref-a": "1"}
POLICIES = {"pool": "ConsumeFrom", "max": "Max", "add": "AddPerClaim", "ref": "AddPerReference"}


@st.composite
def demands(draw) -> Demand:
    containers = {f"c{i}": {"requests": draw(amounts)} for i in range(draw(st.integers(1, 3)))}
    init = {
        f"i{i}": {"requests": draw(amounts), "sidecar": draw(st.booleans())} for i in range(draw(st.integers(0, 2)))
    }
    names = [*containers, *init]
    status = [
        {
            "resourceClaimName": claim,
            "containers": draw(st.lists(st.sampled_from(names), unique=True)),
            "accounting": [
                {"name": "cpu", "quantity": CLAIMS[claim], "accountingPolicy": POLICIES[claim.split("-")[0]]}
            ],
            "overhead": draw(st.sampled_from([[], [{"name": "memory", "perPod": "1Mi", "perContainer": "3"}]])),
        }
        for claim in draw(st.lists(st.sampled_from(sorted(CLAIMS)), unique=True, max_size=3))
    ]
    spec = draw(st.sampled_from([{}, {"overhead": {"cpu": "50m"}}, {"resources": {"requests": {"cpu": "9"}}}]))
    return pod_demand(demanding_pod(containers=containers, init=init, status=status, **spec))


def totals(ledger: NodeLedger) -> dict[str, int]:
    return {name: ledger.requested(name) for name in ledger.resources() if ledger.requested(name)}


@settings(max_examples=150, deadline=None)
@given(st.lists(demands(), max_size=8), st.randoms(use_true_random=False))
def test_adding_and_removing_in_any_order_returns_to_zero(placed, chance):
    ledger = a_ledger()
    refs = [ref(str(i)) for i in range(len(placed))]
    for pod, demand in zip(refs, placed, strict=True):
        ledger.add(pod, demand)
        ledger.check()
    chance.shuffle(refs)
    for pod in refs:
        ledger.remove(pod)
        ledger.check()
    assert totals(ledger) == {}
    assert (ledger.non_zero_milli_cpu, ledger.non_zero_memory) == (0, 0)
    assert (ledger.pod_count, ledger.claim_states) == (0, {})


@settings(max_examples=150, deadline=None)
@given(st.lists(demands(), max_size=8))
def test_the_ledger_is_the_sum_over_pods_and_their_pools(placed):
    ledger = a_ledger()
    expected: dict[str, int] = {}
    pools: dict[tuple[str, str], int] = {}
    for i, demand in enumerate(placed):
        ledger.add(ref(str(i)), demand)
        for name, amount in demand.amounts():
            expected[name] = expected.get(name, 0) + amount
        pools.update({(claim, name): size for claim, name, size in demand.pools})
    for (_, name), size in pools.items():
        expected[name] = expected.get(name, 0) + size
    assert totals(ledger) == expected


@settings(max_examples=150, deadline=None)
@given(st.lists(demands(), max_size=5))
def test_the_rows_of_why_add_up(placed):
    ledger = a_ledger()
    for i, demand in enumerate(placed):
        ledger.add(ref(str(i)), demand)
    for resource in ledger.resources():
        by_owner: dict[object, int] = {}
        for row in ledger.why(resource):
            owner = row.claim if row.kind == "pool" else row.pods
            by_owner[owner] = by_owner.get(owner, 0) + row.quantity.nanos
        rounded = sum(ledger_amount(resource, nanos) for nanos in by_owner.values())
        assert rounded == ledger.requested(resource)


@settings(max_examples=150, deadline=None)
@given(st.lists(demands(), max_size=6), demands())
def test_what_fits_does_not_overcommit(placed, newcomer):
    ledger = a_ledger(cpu="60", memory="3Gi", hugepages_2Mi="8Mi", pods="6")
    for i, demand in enumerate(placed):
        if ledger.fits(demand) == Fits():
            ledger.add(ref(str(i)), demand)
    assert ledger.overcommitted() == []


class LedgerMachine(RuleBasedStateMachine):
    """Assume, forget, confirm, update and remove in any order; after every step the totals are the sum of the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = a_ledger()
        self.placed: dict[PodRef, Demand] = {}
        self.assumed: set[PodRef] = set()

    pods = st.integers(0, 4).map(lambda i: ref(str(i)))

    @rule(pod=pods, demand=demands())
    def assume(self, pod, demand):
        if pod in self.placed:
            with pytest.raises(AlreadyPlaced):
                self.ledger.assume(pod, demand)
        else:
            self.ledger.assume(pod, demand)
            self.placed[pod] = demand
            self.assumed.add(pod)

    @rule(pod=pods)
    def forget(self, pod):
        if pod in self.assumed:
            self.ledger.forget(pod)
            self.assumed.discard(pod)
            del self.placed[pod]
        else:
            with pytest.raises(NotAssumed):
                self.ledger.forget(pod)

    @rule(pod=pods, demand=demands())
    def add(self, pod, demand):
        self.ledger.add(pod, demand)
        self.placed[pod] = demand
        self.assumed.discard(pod)

    @rule(pod=pods)
    def remove(self, pod):
        assert self.ledger.remove(pod) == self.placed.pop(pod, None)
        self.assumed.discard(pod)

    @precondition(lambda self: self.placed)
    @rule()
    def same_as_a_fresh_ledger(self):
        fresh = a_ledger()
        for pod, demand in self.placed.items():
            fresh.add(pod, demand)
        assert totals(fresh) == totals(self.ledger)

    @invariant()
    def consistent(self):
        self.ledger.check()
        assert dict(self.ledger.pods()) == self.placed


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


# --- the cluster -----------------------------------------------------------------------------------------------------


def node_with(name: str, cpu: str) -> Node:
    return to_object(a_node(name, {"cpu": cpu, "pods": "110"}), Node)


def test_cluster_takes_events_in_any_order():
    cluster = ClusterLedger()
    cluster.add("n1", ref("early"), asking(cpu="1"))
    assert list(cluster) == [], "a node that is only named is not there yet"
    cluster.set_node(node_with("n1", "4"))
    (ledger,) = cluster
    assert (ledger.milli_cpu, ledger.allocatable_milli_cpu) == (1000, 4000)
    cluster.remove_node("n1")
    assert list(cluster) == []
    cluster.remove(ref("early"))
    assert cluster.nodes == {}
    cluster.remove_node("n1")


def test_cluster_knows_where_a_pod_is():
    cluster = ClusterLedger()
    for name in ("n1", "n2"):
        cluster.set_node(node_with(name, "4"))
    cluster.assume("n1", ref("a"), asking(cpu="1"))
    assert cluster.node_of(ref("a")) == "n1"
    cluster.add("n2", ref("a"), asking(cpu="1"))
    assert cluster.node_of(ref("a")) == "n2"
    assert [ledger.milli_cpu for ledger in cluster] == [0, 1000]
    cluster.check()
    assert cluster.remove(ref("a")) is not None
    assert cluster.remove(ref("a")) is None
    cluster.assume("n1", ref("b"), asking(cpu="1"))
    cluster.forget("n1", ref("b"))
    assert cluster.node_of(ref("b")) is None
