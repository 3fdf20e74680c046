"""Does the cluster keep its promises? Record what happened, replay it, and name every promise that was broken.

    history = History()
    client = Client(RecordingTransport(connect(...).transport, history, actor="workload"))    # acknowledged writes
    follower = Follower(connect(...), history, stream="a")                                    # watch events, as they come
    ...
    report = check(history)                              # pure: Violations, and counts of what was looked at
    history.save(path); History.load(path)               # one JSON object per line

`history` is plain data; `recording` fills it at the border to the client; `world` replays it object by object; `rules`
hold one promise each: `devices` (nothing given twice, no capacity or counter overdrawn), `ledger` (no node beyond its
allocatable), `use` (who runs has its claims, and keeps them while it runs). `watches` and `writes` compare streams and
acknowledged writes with each other. `check` asks them all; `online` does so while a cluster runs.

Not here: what looks odd but breaks no promise (`dray.explain` and `dray doctor`), and injecting faults (the tests).
"""

from dray.proof.check import Report, check
from dray.proof.history import History, Listed, ObjectKey, Opened, Seen, Write
from dray.proof.online import OnlineCheck, watch_cluster
from dray.proof.recording import Follower, RecordingTransport
from dray.proof.violation import Violation
from dray.proof.world import Replay

__all__ = [
    "Follower",
    "History",
    "Listed",
    "ObjectKey",
    "OnlineCheck",
    "Opened",
    "RecordingTransport",
    "Replay",
    "Report",
    "Seen",
    "Violation",
    "Write",
    "check",
    "watch_cluster",
]
