"""Events that arrive while pods are being scheduled, kept until no such pod can have missed them."""

from collections import OrderedDict
from collections.abc import Iterator

from dray.scheduler.framework.events import Change


class InFlight:
    def __init__(self) -> None:
        self._events: list[Change] = []
        self._dropped = 0
        self._since: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, uid: str) -> bool:
        return uid in self._since

    def begin(self, uid: str) -> None:
        self._since[uid] = self._dropped + len(self._events)

    def saw(self, change: Change) -> None:
        if self._since:
            self._events.append(change)

    def missed_by(self, uid: str) -> Iterator[Change]:
        """What happened since the pod's attempt began."""
        since = self._since.get(uid)
        if since is not None:
            yield from self._events[since - self._dropped :]

    def end(self, uid: str) -> None:
        if self._since.pop(uid, None) is None:
            return
        if not self._since:
            self._dropped += len(self._events)
            self._events.clear()
            return
        oldest = next(iter(self._since.values()))
        # Dropping in larger pieces keeps the cost per event constant.
        if oldest - self._dropped > 256:
            del self._events[: oldest - self._dropped]
            self._dropped = oldest
