"""One node's ledger: what it can give, what pods have been given, and why; and the ledgers of all nodes."""

from collections.abc import Iterator, Mapping

from dray.accounting.claim_state import ClaimState, PoolAmounts, Taken, split
from dray.accounting.demand import Demand, PodRef
from dray.accounting.errors import AlreadyPlaced, LedgerInconsistent, NotAssumed
from dray.accounting.fit import FITS, DoesNotFit, Fits, Refusal, SharedClaim, Shortage
from dray.accounting.ledger_rows import Row, demand_rows, pool_row
from dray.accounting.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_node_allocatable, ledger_amount
from dray.api.core import Node
from dray.api.quantity import Quantity


class NodeLedger:
    """Requested amounts are always the sum over the placed pods and the pools that they use.

    `add` and `remove` record what is so and never refuse; `fits` answers what may be. Amounts are milli-cpu, bytes
    and counts. Every event costs what the pod has, never what the node or the cluster holds.
    """

    __slots__ = (
        "_assumed",
        "_drawn",
        "_placed",
        "allocatable_ephemeral_storage",
        "allocatable_memory",
        "allocatable_milli_cpu",
        "allocatable_pods",
        "allocatable_scalars",
        "claim_states",
        "ephemeral_storage",
        "memory",
        "milli_cpu",
        "name",
        "non_zero_memory",
        "non_zero_milli_cpu",
        "scalars",
    )

    def __init__(self, name: str, allocatable: Mapping[str, Quantity] | None = None) -> None:
        self.name = name
        self.milli_cpu = self.memory = self.ephemeral_storage = 0
        self.non_zero_milli_cpu = self.non_zero_memory = 0
        self.scalars: dict[str, int] = {}
        self.claim_states: dict[str, ClaimState] = {}
        self._placed: dict[PodRef, Demand] = {}
        self._assumed: set[PodRef] = set()
        self._drawn: dict[PodRef, Taken] = {}
        self.set_allocatable(allocatable or {})

    def set_allocatable(self, quantities: Mapping[str, Quantity]) -> None:
        """The node reports new sizes. What is placed stays placed, even if it no longer fits."""
        amounts = {name: ledger_amount(name, quantity.nanos) for name, quantity in quantities.items()}
        self.allocatable_milli_cpu = amounts.pop(CPU, 0)
        self.allocatable_memory = amounts.pop(MEMORY, 0)
        self.allocatable_ephemeral_storage = amounts.pop(EPHEMERAL_STORAGE, 0)
        self.allocatable_pods = amounts.pop(PODS, 0)
        self.allocatable_scalars = amounts

    # --- asking ----------------------------------------------------------------------------------------------------

    @property
    def pod_count(self) -> int:
        return len(self._placed)

    def pods(self) -> Iterator[tuple[PodRef, Demand]]:
        return iter(self._placed.items())

    def demand_of(self, pod: PodRef) -> Demand | None:
        return self._placed.get(pod)

    def is_assumed(self, pod: PodRef) -> bool:
        return pod in self._assumed

    def requested(self, resource: str) -> int:
        if resource == CPU:
            return self.milli_cpu
        if resource == MEMORY:
            return self.memory
        if resource == EPHEMERAL_STORAGE:
            return self.ephemeral_storage
        return len(self._placed) if resource == PODS else self.scalars.get(resource, 0)

    def allocatable(self, resource: str) -> int:
        if resource == CPU:
            return self.allocatable_milli_cpu
        if resource == MEMORY:
            return self.allocatable_memory
        if resource == EPHEMERAL_STORAGE:
            return self.allocatable_ephemeral_storage
        return self.allocatable_pods if resource == PODS else self.allocatable_scalars.get(resource, 0)

    def hands_out(self, resource: str) -> bool:
        """False for an extended resource that the node itself does not have: there devices serve it, through a claim."""
        return resource == PODS or is_node_allocatable(resource) or resource in self.allocatable_scalars

    def resources(self) -> list[str]:
        """Every resource that the node has or that a pod asks for."""
        return [CPU, MEMORY, EPHEMERAL_STORAGE, *sorted({*self.allocatable_scalars, *self.scalars})]

    def fits(self, demand: Demand) -> Fits | DoesNotFit:
        """May a pod with this demand come to the node? Pod count, every resource, and the pools of its claims."""
        refusals: list[Refusal] = []
        if len(self._placed) >= self.allocatable_pods:
            refusals.append(Shortage(PODS, 1, len(self._placed), self.allocatable_pods))
        return self._answer(demand, refusals, demand.scalars)

    def fits_node_allocatable(self, demand: Demand) -> Fits | DoesNotFit:
        """As `fits`, but for cpu, memory, storage, huge pages and pools alone."""
        scalars = demand.scalars and tuple(entry for entry in demand.scalars if is_node_allocatable(entry[0]))
        return self._answer(demand, [], scalars)

    def _answer(
        self, demand: Demand, refusals: list[Refusal], scalars: tuple[tuple[str, int], ...]
    ) -> Fits | DoesNotFit:
        milli_cpu, memory, storage = demand.milli_cpu, demand.memory, demand.ephemeral_storage
        if demand.pools:
            reserved = self._new_reservations(demand)
            milli_cpu += reserved.pop(CPU, 0)
            memory += reserved.pop(MEMORY, 0)
            storage += reserved.pop(EPHEMERAL_STORAGE, 0)
            for name, amount in scalars:
                reserved[name] = reserved.get(name, 0) + amount
            scalars = tuple(reserved.items())
        if milli_cpu > 0 and milli_cpu > self.allocatable_milli_cpu - self.milli_cpu:
            refusals.append(Shortage(CPU, milli_cpu, self.milli_cpu, self.allocatable_milli_cpu))
        if memory > 0 and memory > self.allocatable_memory - self.memory:
            refusals.append(Shortage(MEMORY, memory, self.memory, self.allocatable_memory))
        if storage > 0 and storage > self.allocatable_ephemeral_storage - self.ephemeral_storage:
            refusals.append(
                Shortage(EPHEMERAL_STORAGE, storage, self.ephemeral_storage, self.allocatable_ephemeral_storage)
            )
        for name, amount in scalars:
            capacity, used = self.allocatable_scalars.get(name, 0), self.scalars.get(name, 0)
            if amount > 0 and amount > capacity - used:
                refusals.append(Shortage(name, amount, used, capacity))
        for claim in demand.exclusive_claims:
            if claim in self.claim_states:
                refusals.append(SharedClaim(claim))
        if demand.draws:
            refusals += self._pool_reasons(demand)
        return DoesNotFit(tuple(refusals)) if refusals else FITS

    def _new_reservations(self, demand: Demand) -> dict[str, int]:
        """The amounts that new or growing pools would take from this node."""
        reserved: dict[str, int] = {}
        for claim, resource, size in demand.pools:
            state = self.claim_states.get(claim)
            extra = size - state.allocated.get(resource, 0) if state else size
            if extra > 0:
                reserved[resource] = reserved.get(resource, 0) + extra
        return reserved

    def _pool_reasons(self, demand: Demand) -> Iterator[Refusal]:
        sizes, room = self._pools(demand)
        for draw in demand.draws:
            free = sum(max(0, room[claim, draw.resource]) for claim in draw.claims)
            if draw.amount > free:
                size = sum(sizes[claim, draw.resource] for claim in draw.claims)
                yield Shortage(draw.resource, draw.amount, size - free, size, claim=_names(draw.claims))
            split(draw, room)

    def _pools(self, demand: Demand) -> tuple[PoolAmounts, PoolAmounts]:
        """Sizes of the pod's pools once they are reserved here, and what is left in them."""
        sizes: PoolAmounts = {}
        room: PoolAmounts = {}
        for claim, resource, size in demand.pools:
            state = self.claim_states.get(claim)
            if state is not None:
                size = max(size, state.allocated.get(resource, 0))
            sizes[claim, resource] = size
            room[claim, resource] = size - state.consumed.get(resource, 0) if state is not None else size
        return sizes, room

    # --- events ----------------------------------------------------------------------------------------------------

    def add(self, pod: PodRef, demand: Demand) -> None:
        """The pod is here, says the API server: a new one, a new version, or the one that was assumed."""
        if pod in self._placed:
            self._take_out(pod)
        self._put_in(pod, demand)

    def remove(self, pod: PodRef) -> Demand | None:
        """The pod is gone. What it was given is taken back as it was entered; None if it was not here."""
        return self._take_out(pod) if pod in self._placed else None

    def assume(self, pod: PodRef, demand: Demand) -> None:
        """We decided that the pod goes here, before the API server says so."""
        if pod in self._placed:
            raise AlreadyPlaced(f"pod {pod} is on node {self.name} already")
        self._put_in(pod, demand)
        self._assumed.add(pod)

    def forget(self, pod: PodRef) -> Demand:
        """Take back an `assume`."""
        if pod not in self._assumed:
            raise NotAssumed(f"pod {pod} is not assumed on node {self.name}")
        return self._take_out(pod)

    def _put_in(self, pod: PodRef, demand: Demand) -> None:
        self._placed[pod] = demand
        self._count(demand, 1)
        for claim in demand.exclusive_claims:
            self._claim_state(claim).consumers[pod] = None
        if demand.pools:
            for claim, resource, size in demand.pools:
                state = self._claim_state(claim)
                state.consumers[pod] = None
                self._reserve(resource, state.hold(resource, size))
            self._draw(pod, demand)

    def _claim_state(self, claim: str) -> ClaimState:
        state = self.claim_states.get(claim)
        if state is None:
            state = self.claim_states[claim] = ClaimState()
        return state

    def _take_out(self, pod: PodRef) -> Demand:
        demand = self._placed.pop(pod)
        self._assumed.discard(pod)
        self._count(demand, -1)
        if demand.pools:
            for claim, resource, amount in self._drawn.pop(pod, ()):
                self.claim_states[claim].consume(resource, -amount)
            for claim, resource, size in demand.pools:
                self._reserve(resource, -self.claim_states[claim].release(resource, size))
        for claim in (*demand.exclusive_claims, *(pool.claim for pool in demand.pools)):
            state = self.claim_states.get(claim)
            if state is not None:
                state.consumers.pop(pod, None)
                if not state.consumers:
                    del self.claim_states[claim]
        return demand

    def _count(self, demand: Demand, sign: int) -> None:
        self.milli_cpu += sign * demand.milli_cpu
        self.memory += sign * demand.memory
        self.ephemeral_storage += sign * demand.ephemeral_storage
        self.non_zero_milli_cpu += sign * demand.non_zero_milli_cpu
        self.non_zero_memory += sign * demand.non_zero_memory
        for name, amount in demand.scalars:
            self._count_scalar(name, sign * amount)

    def _count_scalar(self, name: str, amount: int) -> None:
        total = self.scalars.get(name, 0) + amount
        if total:
            self.scalars[name] = total
        else:
            self.scalars.pop(name, None)

    def _reserve(self, resource: str, change: int) -> None:
        if not change:
            return
        if resource == CPU:
            self.milli_cpu += change
            self.non_zero_milli_cpu += change
        elif resource == MEMORY:
            self.memory += change
            self.non_zero_memory += change
        elif resource == EPHEMERAL_STORAGE:
            self.ephemeral_storage += change
        else:
            self._count_scalar(resource, change)

    def _draw(self, pod: PodRef, demand: Demand) -> None:
        if not demand.draws:
            return
        _, room = self._pools(demand)
        taken = tuple([part for draw in demand.draws for part in split(draw, room)])
        for claim, resource, amount in taken:
            self.claim_states[claim].consume(resource, amount)
        if taken:
            self._drawn[pod] = taken

    def copy(self) -> "NodeLedger":
        """For trying out removals; later events on one do not touch the other."""
        twin = NodeLedger(self.name)
        for slot in NodeLedger.__slots__:
            value = getattr(self, slot)
            setattr(twin, slot, value.copy() if isinstance(value, dict | set) else value)
        twin.claim_states = {claim: state.copy() for claim, state in self.claim_states.items()}
        return twin

    # --- explaining ------------------------------------------------------------------------------------------------

    def why(self, resource: str) -> list[Row]:
        """Every row behind `requested(resource)`: which pod, which container or claim, which device, how much."""
        rows = [
            pool_row(claim, resource, state.allocated[resource], tuple(state.consumers), self._placed)
            for claim, state in self.claim_states.items()
            if state.allocated.get(resource)
        ]
        for pod, demand in self._placed.items():
            rows += demand_rows(pod, demand, resource)
        return rows

    def overcommitted(self) -> list[Shortage]:
        """Amounts that exceed the node or a pool: after a node shrank, or pods that came from elsewhere."""
        short = [
            Shortage(name, 0, self.requested(name), self.allocatable(name))
            for name in (*self.resources(), PODS)
            if self.requested(name) > self.allocatable(name) and self.hands_out(name)
        ]
        for claim, state in self.claim_states.items():
            short += [
                Shortage(name, 0, used, state.allocated.get(name, 0), claim=claim)
                for name, used in state.consumed.items()
                if used > state.allocated.get(name, 0)
            ]
        return short

    def check(self) -> None:
        """Raise `LedgerInconsistent` unless every total is the sum over the pods."""
        again = NodeLedger(self.name)
        for pod, demand in self._placed.items():
            again.add(pod, demand)
        for slot in ("milli_cpu", "memory", "ephemeral_storage", "scalars", "non_zero_milli_cpu", "non_zero_memory"):
            if getattr(self, slot) != getattr(again, slot):
                raise LedgerInconsistent(
                    f"node {self.name}: {slot} is {getattr(self, slot)}, its pods add up to {getattr(again, slot)}"
                )
        mine = {claim: (state.allocated, set(state.consumers)) for claim, state in self.claim_states.items()}
        theirs = {claim: (state.allocated, set(state.consumers)) for claim, state in again.claim_states.items()}
        if mine != theirs:
            raise LedgerInconsistent(f"node {self.name}: claim states are {mine}, its pods add up to {theirs}")
        drawn: dict[str, dict[str, int]] = {}
        for taken in self._drawn.values():
            for claim, resource, amount in taken:
                of_claim = drawn.setdefault(claim, {})
                of_claim[resource] = of_claim.get(resource, 0) + amount
        consumed = {claim: state.consumed for claim, state in self.claim_states.items() if state.consumed}
        if consumed != drawn:
            raise LedgerInconsistent(f"node {self.name}: {consumed} is consumed from pools, its pods draw {drawn}")
        if not self._assumed <= self._placed.keys() or not self._drawn.keys() <= self._placed.keys():
            raise LedgerInconsistent(f"node {self.name}: pods that are not here are assumed or draw from pools")


def _names(claims: tuple[str, ...]) -> str:
    return ", ".join(claim.rpartition("/")[2] for claim in claims)


class ClusterLedger:
    """Events come as a watch gives them, in any order between nodes and pods; each touches one node's ledger."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeLedger] = {}
        # Nodes that pods name but that are not there (yet).
        self._absent: set[str] = set()
        self._node_of: dict[PodRef, str] = {}

    def __iter__(self) -> Iterator[NodeLedger]:
        return (ledger for name, ledger in self.nodes.items() if name not in self._absent)

    def has_node(self, name: str) -> bool:
        return name in self.nodes and name not in self._absent

    def set_node(self, node: Node) -> NodeLedger:
        """A node that came or changed."""
        ledger = self._ledger(node.metadata.name)
        self._absent.discard(ledger.name)
        ledger.set_allocatable(node.status.allocatable)
        return ledger

    def remove_node(self, name: str) -> None:
        """Its pods stay known until they are removed themselves."""
        ledger = self.nodes.get(name)
        if ledger is None:
            return
        if ledger.pod_count:
            self._absent.add(name)
            ledger.set_allocatable({})
        else:
            del self.nodes[name]

    def add(self, node_name: str, pod: PodRef, demand: Demand) -> None:
        """The pod is on that node; should it have been assumed elsewhere, it is not there any more."""
        present = self._node_of.get(pod)
        if present is not None and present != node_name:
            self.remove(pod)
        ledger = self._ledger(node_name)
        ledger.add(pod, demand)
        # The ledger's name, so that its pods share one text.
        self._node_of[pod] = ledger.name

    def remove(self, pod: PodRef) -> Demand | None:
        name = self._node_of.pop(pod, None)
        return None if name is None else self._leave(name, self.nodes[name].remove(pod))

    def assume(self, node_name: str, pod: PodRef, demand: Demand) -> None:
        ledger = self._ledger(node_name)
        ledger.assume(pod, demand)
        self._node_of[pod] = ledger.name

    def forget(self, node_name: str, pod: PodRef) -> None:
        self._leave(node_name, self._ledger(node_name).forget(pod))
        del self._node_of[pod]

    def node_of(self, pod: PodRef) -> str | None:
        return self._node_of.get(pod)

    def check(self) -> None:
        for ledger in self.nodes.values():
            ledger.check()

    def _ledger(self, name: str) -> NodeLedger:
        ledger = self.nodes.get(name)
        if ledger is None:
            ledger = self.nodes[name] = NodeLedger(name)
            self._absent.add(name)
        return ledger

    def _leave(self, name: str, demand: Demand | None) -> Demand | None:
        if name in self._absent and not self.nodes[name].pod_count:
            del self.nodes[name]
            self._absent.discard(name)
        return demand
