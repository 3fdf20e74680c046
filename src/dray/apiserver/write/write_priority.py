"""Whose write is begun next.

As a rule whatever has arrived is begun, in one turn of the event loop: writes that are committed together cost less. But then
everybody waits for everybody, and a pod's way to its node is three writes of the scheduler, one after the other. So who is trusted
may ask to go first. While such writes keep coming, one of the others is begun in each turn, in the order of arrival.
"""

from __future__ import annotations

import asyncio
from collections import deque

from dray.api.scheme import WRITE_VERBS
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
        """Returns when it is this request's turn."""
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
        """One of those that wait; all of them, if nobody is in a hurry any more."""
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
