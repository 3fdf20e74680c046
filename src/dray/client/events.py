"""Writes Kubernetes Events about objects. Repeated events raise the count of the first one."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, TypeVar

from dray.api.core import Event, EventSource, ObjectReference
from dray.api.meta import ObjectMeta
from dray.client.errors import ApiError, CredentialsError, ServerUnreachable
from dray.client.kinds import EVENTS, ApiObject, Kind
from dray.client.rest import Client
from dray.client.workqueue import TokenBucket
from dray.clock import Clock, rfc3339

log = logging.getLogger(__name__)

T = TypeVar("T", bound=ApiObject)

NORMAL, WARNING = "Normal", "Warning"

REMEMBERED = 4096
# An object with more events than this gets one event every five minutes.
BURST_PER_OBJECT, REFILL_PER_S = 25, 1 / 300
# More than this many different messages of one reason within the window become one combined event.
SIMILAR_LIMIT, SIMILAR_WINDOW_S = 10, 600.0
# Concurrent requests: one at a time would fall behind a scheduler at full speed.
AT_ONCE = 8
MAX_WAITING = 1000
MAX_MESSAGE = 1024
MAX_NAME = 253
COMBINED = "(combined from similar events): "


class Recorder(Protocol):
    """The interface that components use."""

    def event(
        self, reference: ObjectReference, event_type: str, reason: str, message: str, *, action: str = ""
    ) -> None: ...


def reference_to(kind: Kind[T], obj: T) -> ObjectReference:
    metadata = obj.metadata
    return ObjectReference(
        kind=kind.name,
        api_version=kind.api_version,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


@dataclass(frozen=True, slots=True)
class _Written:
    """An event as it was last sent: a repetition raises its count instead of creating another object."""

    name: str
    namespace: str
    count: int
    first_timestamp: str


class EventRecorder:
    """`event()` never blocks and never fails; a background task sends while there is something to send."""

    def __init__(self, client: Client, component: str, *, host: str = "") -> None:
        self._client = client
        self._component = component
        self._host = host
        self._waiting: deque[Event] = deque(maxlen=MAX_WAITING)
        self._folding = _Folding(client.clock)
        self._written: OrderedDict[tuple[str, ...], _Written] = OrderedDict()
        self._sender: asyncio.Task[None] | None = None
        self._stamp = 0

    def event(
        self, reference: ObjectReference, event_type: str, reason: str, message: str, *, action: str = ""
    ) -> None:
        message = self._folding.admit(reference, event_type, reason, message[:MAX_MESSAGE]) or ""
        if not message:
            return
        now = self._client.clock.now()
        at = rfc3339(now)
        namespace = reference.namespace or "default"
        self._waiting.append(
            Event(
                metadata=ObjectMeta(namespace=namespace, name=self._name(reference, now)),
                involved_object=reference,
                reason=reason,
                message=message,
                source=EventSource(component=self._component, host=self._host),
                first_timestamp=at,
                last_timestamp=at,
                count=1,
                type=event_type,
                action=action,
                reporting_component=self._component,
                reporting_instance=self._host,
            )
        )
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_all(), name=f"events of {self._component}")

    def _name(self, reference: ObjectReference, now: datetime) -> str:
        """The name is made of the object's name and the time, and is unique also for two events at one moment."""
        self._stamp = max(self._stamp + 1, int(now.timestamp() * 1e9))
        stamp = f"{self._stamp:x}"
        return f"{reference.name[: MAX_NAME - len(stamp) - 1].rstrip('.-')}.{stamp}"

    async def flush(self) -> None:
        """Waits until every event recorded so far was sent or given up."""
        if self._sender is not None:
            await asyncio.gather(self._sender, return_exceptions=True)

    async def stop(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await self.flush()

    async def _send_all(self) -> None:
        while self._waiting:
            first, *others = [self._try(identity, event) for identity, event in self._next().items()]
            await (asyncio.gather(first, *others) if others else first)

    def _next(self) -> dict[tuple[str, ...], Event]:
        """The events to send now: several at once, but repetitions of one event one after the other."""
        chosen: dict[tuple[str, ...], Event] = {}
        while self._waiting and len(chosen) < AT_ONCE:
            event = self._waiting[0]
            identity = _identity(event.involved_object, event.type, event.reason, event.message)
            if identity in chosen:
                break
            chosen[identity] = self._waiting.popleft()
        return chosen

    async def _try(self, identity: tuple[str, ...], event: Event) -> None:
        try:
            await self._send(identity, event)
        except ApiError as error:
            level = logging.DEBUG if error.is_namespace_terminating else logging.WARNING
            log.log(level, "event for %s refused: %s", event.involved_object.name, error)
        except Exception as error:
            # Events are best effort; the component's work does not depend on them.
            is_expected = isinstance(error, ServerUnreachable | CredentialsError)
            log.info("event for %s lost: %s", event.involved_object.name, error, exc_info=not is_expected)

    async def _send(self, identity: tuple[str, ...], event: Event) -> None:
        known = self._written.pop(identity, None)
        if known is not None:
            counted = replace(known, count=known.count + 1)
            patch = {"count": counted.count, "lastTimestamp": event.last_timestamp, "message": event.message}
            try:
                await self._client.patch(EVENTS, known.name, patch, known.namespace)
            except ApiError as error:
                if not error.is_not_found:  # The event has expired: create a new one.
                    raise
            else:
                self._remember(identity, counted)
                return
        await self._client.create(EVENTS, event)
        metadata = event.metadata
        self._remember(identity, _Written(metadata.name, metadata.namespace, 1, event.first_timestamp or ""))

    def _remember(self, identity: tuple[str, ...], written: _Written) -> None:
        self._written[identity] = written
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)


class _Folding:
    """Decides which events are sent and with which message; limits the events about one object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._similar: OrderedDict[tuple[str, ...], tuple[float, set[str]]] = OrderedDict()

    def admit(self, reference: ObjectReference, event_type: str, reason: str, message: str) -> str | None:
        owner = f"{reference.kind}/{reference.namespace}/{reference.name}/{reference.uid}"
        bucket = self._buckets.pop(owner, None) or TokenBucket(self._clock, REFILL_PER_S, BURST_PER_OBJECT)
        self._buckets[owner] = bucket
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        text = self._fold(_identity(reference, event_type, reason), message)
        return text if bucket.try_take() else None

    def _fold(self, group: tuple[str, ...], message: str) -> str:
        now = self._clock.monotonic()
        last, messages = self._similar.pop(group, (now, set()))
        if now - last > SIMILAR_WINDOW_S:
            messages = set()
        messages.add(message)
        self._similar[group] = (now, messages)
        if len(self._similar) > REMEMBERED:
            self._similar.popitem(last=False)
        if len(messages) <= SIMILAR_LIMIT:
            return message
        messages.pop()
        return COMBINED + message


def _identity(reference: ObjectReference, event_type: str, reason: str, message: str = "") -> tuple[str, ...]:
    # Combined events differ in their text and still count as one event.
    text = COMBINED if message.startswith(COMBINED) else message
    about = (reference.kind, reference.namespace, reference.name, reference.uid, reference.field_path)
    return (*about, event_type, reason, text)
