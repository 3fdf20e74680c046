"""Priority and fairness: how many requests of whom are in progress, whose turn is next, and who is told to come back later.

A FlowSchema gives a request its priority level. A level has a number of seats, and a request in progress takes one. While seats are free a
request starts at once, which is all that happens on a server without contention. A level that needs more borrows seats that others have to lend
and do not use; the lender takes its own back by starting its own requests, so that for a moment a few more than all seats are taken. Then
requests wait in queues. Each flow (a user, or a namespace) has a few of the level's queues, dealt by a hash, and joins the shortest: a flow that
fills its queues leaves others theirs. The queue that has been served for the shortest time is served next. Requests that find a full queue, or
wait too long, get 429.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

from dray.api.caching import SHORT_TEXT
from dray.apiserver.errors import ApiError, too_many_requests
from dray.apiserver.request.request_info import RequestInfo, User
from dray.http.responses import SharedHeaders

# A quarter of the time that a request may take.
LONGEST_WAIT_S = 15.0
# Bodies of the requests that wait in one level.
MOST_WAITING_BYTES = 64 * 1024 * 1024
# What a request is charged when it starts; when it ends, what it took instead.
GUESS_S = 0.1
# All requests in progress, of all levels that are not exempt. One core answers them: with 245 as many writes a second were measured as with 100, but
# one turn of the event loop, for which everybody else waits, took 185 ms instead of 75.
SEATS = 100
# Different kinds of requests whose schema is remembered.
MOST_REMEMBERED = 8192
MOST_GROUPS = 32


@dataclass(frozen=True, slots=True)
class LevelConfig:
    """A priority level. `queues` is 0 where requests beyond the limit are refused at once."""

    name: str
    uid: str = ""
    is_exempt: bool = False
    shares: int = 30
    lendable_percent: int = 0
    borrowing_percent: int | None = None
    queues: int = 0
    hand_size: int = 8
    queue_length: int = 50


class Schema(Protocol):
    """A flow schema: which requests are its own, and which of them share queues."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def level(self) -> str: ...
    @property
    def uses_namespaces(self) -> bool: ...
    def matches(self, user: User, info: RequestInfo) -> bool: ...
    def flow_name(self, user: User, info: RequestInfo) -> str: ...


def dealt(hash_value: int, deck: int, hand: int) -> list[int]:
    """`hand` different cards of `deck`, chosen by the hash."""
    cards: list[int] = []
    for dealt_already in range(min(hand, deck)):
        hash_value, card = divmod(hash_value, deck - dealt_already)
        for earlier in sorted(cards):
            card += card >= earlier
        cards.append(card)
    return cards


@dataclass(eq=False, slots=True)
class Queue:
    """Requests of some flows, oldest first. `served_s` is virtual: the time its requests took, or the level's where it was idle."""

    waiting: deque[Turn] = field(default_factory=deque)
    served_s: float = 0.0


@dataclass(eq=False, slots=True)
class Turn:
    """A request that waits, or waited, for a seat."""

    may_start: asyncio.Future[None]
    queue: Queue
    flow: Flow
    started_at: float = 0.0


@dataclass(eq=False, slots=True)
class Flow:
    """A flow schema at work: what it counts, and the level it belongs to; no level means that nothing limits it."""

    schema: Schema
    level: Level | None
    headers: SharedHeaders
    dispatched: int = 0
    executing: int = 0
    waiting: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    waits: int = 0
    waited_s: float = 0.0

    def refusal(self, reason: str) -> ApiError:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        return too_many_requests("Too many requests, please try again later.")


class Level:
    def __init__(self, config: LevelConfig, levels: Levels) -> None:
        self._levels = levels
        self.config = config
        self.nominal = 0
        self.lendable = 0
        self.executing = 0
        self.waiting = 0
        self.waiting_bytes = 0
        self._queues = [Queue() for _ in range(config.queues)]
        self._virtual_s = 0.0

    def configure(self, config: LevelConfig, nominal: int) -> None:
        """Requests that wait stay where they are; a smaller number of queues counts for those that come."""
        self._queues += [Queue() for _ in range(config.queues - len(self._queues))]
        self.config = config
        self.nominal = nominal
        self.lendable = nominal * config.lendable_percent // 100

    # --- seats

    def starts_at_once(self, flow: Flow) -> bool:
        """Takes a seat if there is one and nobody waits for it."""
        if self.waiting or not (self.executing < self.nominal or self._may_borrow()):
            return False
        self._take(flow)
        return True

    def _take(self, flow: Flow) -> None:
        self.executing += 1
        flow.executing += 1
        flow.dispatched += 1

    def _may_borrow(self) -> bool:
        borrowing = self.config.borrowing_percent
        if borrowing is not None and self.executing >= self.nominal + self.nominal * borrowing // 100:
            return False
        return self._levels.seats_to_lend() > 0

    def finish(self, flow: Flow, turn: Turn | None) -> None:
        """Gives the seat back, and to somebody who waits."""
        self.executing -= 1
        flow.executing -= 1
        if turn is not None:
            turn.queue.served_s += asyncio.get_running_loop().time() - turn.started_at - GUESS_S
        if self._levels.waiting:
            self._levels.dispatch(self)

    # --- queues

    async def wait(self, flow: Flow, flow_name: str, size: int = 0) -> Turn:
        """Returns when the request may start; raises 429. `size` is that of its body, which waits as well."""
        if not self.config.queues:
            raise flow.refusal("concurrency-limit")
        if self.waiting_bytes + size > MOST_WAITING_BYTES:
            raise flow.refusal("queue-full")
        self.waiting_bytes += size
        try:
            return await self._wait_in_queue(flow, flow_name)
        finally:
            self.waiting_bytes -= size

    async def _wait_in_queue(self, flow: Flow, flow_name: str) -> Turn:
        queue = self._queue_of(f"{flow.schema.name}\0{flow_name}")
        if len(queue.waiting) >= self.config.queue_length:
            raise flow.refusal("queue-full")
        loop = asyncio.get_running_loop()
        turn = Turn(loop.create_future(), queue, flow)
        if not queue.waiting:
            queue.served_s = max(queue.served_s, self._virtual_s)
        queue.waiting.append(turn)
        arrived = loop.time()
        self._count_waiting(flow, 1)
        try:
            async with asyncio.timeout(LONGEST_WAIT_S):
                await turn.may_start
        except BaseException as problem:
            self._leave(turn)
            if isinstance(problem, TimeoutError):
                raise flow.refusal("time-out") from None
            raise
        flow.waits += 1
        flow.waited_s += loop.time() - arrived
        return turn

    def _queue_of(self, flow_name: str) -> Queue:
        """The shortest of the flow's own queues."""
        number = int.from_bytes(blake2b(flow_name.encode("utf-8", "surrogatepass"), digest_size=16).digest(), "big")
        hand = dealt(number, self.config.queues, self.config.hand_size)
        return min((self._queues[card] for card in hand), key=lambda queue: len(queue.waiting))

    def _count_waiting(self, flow: Flow, change: int) -> None:
        self.waiting += change
        flow.waiting += change
        self._levels.waiting += change

    def _leave(self, turn: Turn) -> None:
        """The request will not start: it gave up, or was given a seat at the moment at which it did."""
        if turn.started_at:
            self.finish(turn.flow, turn)
        else:
            turn.queue.waiting.remove(turn)
            self._count_waiting(turn.flow, -1)

    def dispatch(self) -> None:
        """Starts requests that wait, while there are seats."""
        while self.waiting and (self.executing < self.nominal or self._may_borrow()):
            queue = min((each for each in self._queues if each.waiting), key=lambda each: each.served_s)
            turn = queue.waiting.popleft()
            self._virtual_s = max(self._virtual_s, queue.served_s)
            queue.served_s += GUESS_S
            turn.started_at = asyncio.get_running_loop().time()
            self._count_waiting(turn.flow, -1)
            self._take(turn.flow)
            if not turn.may_start.done():
                turn.may_start.set_result(None)


class Levels:
    """All levels, and the schema of every request."""

    def __init__(self, seats: int = SEATS) -> None:
        self._seats = seats
        self._levels: dict[str, Level] = {}
        self._flows: list[Flow] = []
        self._remembered: dict[tuple[object, ...], Flow] = {}
        self._by_namespace = False
        self.waiting = 0

    def configure(self, levels: Iterable[LevelConfig], schemas: Sequence[Schema]) -> None:
        """Levels keep what is in progress, and levels that are gone finish what they have. Schemas come in the order in which they are tried."""
        configs = {config.name: config for config in levels}
        shares = sum(config.shares for config in configs.values() if not config.is_exempt) or 1
        for name, config in configs.items():
            if not config.is_exempt:
                nominal = -(-self._seats * config.shares // shares)
                self._levels.setdefault(name, Level(config, self)).configure(config, nominal)
        for name in [name for name in self._levels if name not in configs or configs[name].is_exempt]:
            del self._levels[name]
        before = {flow.schema.name: flow for flow in self._flows}
        self._flows = [self._flow(schema, configs, before) for schema in schemas]
        self._by_namespace = any(schema.uses_namespaces for schema in schemas)
        self._remembered.clear()
        for level in self._levels.values():
            level.dispatch()

    def _flow(self, schema: Schema, configs: dict[str, LevelConfig], before: dict[str, Flow]) -> Flow:
        level = self._levels.get(schema.level)
        headers = SharedHeaders(
            (
                ("X-Kubernetes-PF-FlowSchema-UID", schema.uid),
                ("X-Kubernetes-PF-PriorityLevel-UID", configs[schema.level].uid),
            )
        )
        known = before.get(schema.name)
        if known is None or known.level is not level:
            return Flow(schema, level, headers)
        known.schema, known.headers = schema, headers
        return known

    def flow_of(self, user: User, info: RequestInfo) -> Flow:
        """The flow of the first schema that matches, else of the last."""
        namespace = info.namespace if self._by_namespace else bool(info.namespace)
        what = (info.group, info.plural, info.subresource, namespace) if info.is_resource else info.path
        key = (user.name, user.groups, info.verb, what)
        found = self._remembered.get(key)
        if found is None:
            found = next((flow for flow in self._flows if flow.schema.matches(user, info)), self._flows[-1])
            self._remember(key, found, user, info)
        return found

    def _remember(self, key: tuple[object, ...], flow: Flow, user: User, info: RequestInfo) -> None:
        if len(info.path) > SHORT_TEXT or len(user.name) > SHORT_TEXT or len(user.groups) > MOST_GROUPS:
            return
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = flow

    def seats_to_lend(self) -> int:
        """Seats that levels lend and do not use, less those that were lent already."""
        spare = 0
        for level in self._levels.values():
            unused = level.nominal - level.executing
            spare += min(unused, level.lendable) if unused > 0 else unused
        return spare

    def dispatch(self, first: Level) -> None:
        first.dispatch()
        for level in self._levels.values():
            if level.waiting:
                level.dispatch()

    @property
    def flows(self) -> Sequence[Flow]:
        return self._flows

    @property
    def limited(self) -> Collection[Level]:
        """The levels that have a limit."""
        return self._levels.values()
