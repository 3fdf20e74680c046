"""Keeps requests from delaying each other: urgent writes of the scheduler go first, and threads do the work of large requests.

Normally all writes that have arrived start in the same turn of the event loop, since writes that are committed together cost less. But a pod reaches its
node by three writes of the scheduler, one after the other, and each would wait for all others. So a trusted user may mark a write as urgent. While urgent
writes keep coming, one other write starts in each turn, in the order of arrival.

Only pure functions run in threads: decoding, ownership, patches and validation look at the request and the stored object, and at nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dray.api.scheme import WRITE_VERBS
from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import MASTERS, Request, RequestInfo, User

SCHEDULER = "system:kube-scheduler"
# RFC 9218.
MOST_URGENT = "u=0"
# Whoever must renew a lease has no time to lose, and there are few of them.
NEVER_DELAYED = frozenset({"leases"})
# Longer than it takes a scheduler to follow one write with the next.
URGENT_FOR_S = 0.02


def may_write_first(user: User) -> bool:
    return user.name == SCHEDULER or MASTERS in user.groups


class WritePriority:
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._hurry_until = 0.0

    async def wait(self, user: User, request: Request, what: RequestInfo) -> None:
        """Returns when the request may start."""
        if what.verb not in WRITE_VERBS or what.plural in NEVER_DELAYED:
            return
        loop = asyncio.get_running_loop()
        if request.headers.get("priority") == MOST_URGENT and may_write_first(user):
            self._hurry_until = loop.time() + URGENT_FOR_S
            return
        if not self._waiting:
            if loop.time() >= self._hurry_until:
                return
            loop.call_soon(self._begin)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _begin(self) -> None:
        """Starts the oldest waiting write; all of them, if no urgent write came lately."""
        loop, waiting = asyncio.get_running_loop(), self._waiting
        in_a_hurry = loop.time() < self._hurry_until
        while waiting:
            turn = waiting.popleft()
            if turn.done():
                continue  # its caller gave up
            turn.set_result(None)
            if in_a_hurry and waiting:
                loop.call_soon(self._begin)
                return


Result = TypeVar("Result")

# Bytes. The slowest work on a request of this size takes the loop for some 25 ms; the way to a thread and back takes 0.1 ms.
LARGE = 16 * 1024
# Few: threads share one interpreter with the loop. Other large requests wait in a queue, and not for ever.
THREADS = 2
DEADLINE_S = 60.0

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="large-request")


async def in_thread_if_large(size: int, work: Callable[[], Result]) -> Result:
    """Runs `work` at once if `size` bytes are few, else in a thread; raises 504 if that takes too long."""
    if size < LARGE:
        return work()
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.get_running_loop().run_in_executor(_threads, work)
    except TimeoutError:
        raise ApiError(504, "Timeout", "the server could not finish this large request in time") from None
