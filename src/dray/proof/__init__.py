"""Checks a cluster's promises: records what happened, replays it, and names every promise that was broken.

    history = History()
    client = Client(RecordingTransport(connect(...).transport, history, actor="workload"))    # acknowledged writes
    follower = WatchRecorder(connect(...), history, stream="a")                                    # watch events, as they come
    ...
    report = check(history)                              # pure: Violations, and counts of what was looked at
    history.save(path); History.load(path)               # one JSON object per line; HistoryFile(path) keeps nothing in memory

`history` is plain data. `recording` fills it from a client's calls and watches. `replay` rebuilds the cluster change by change.
Each rule checks one promise: `devices` (no device is given twice, no capacity or counter is overdrawn), `node_ledger` (no node
holds more than its allocatable), `claim_use` (a running pod has its claims and keeps them). `watch_streams` compares watch
streams with each other, `acknowledged_writes` compares them with acknowledged writes, `reads` compares answers by time. `check` runs all of them over a history;
`online` runs them while a cluster runs. `object_past` tells what happened before to the objects of a broken promise.

Oddities that break no promise belong to `dray.explain` and `dray doctor`; injected faults belong to the tests.
"""

from dray.proof.check import ProofReport, check
from dray.proof.history import History, HistoryFile, Listed, ObjectKey, Opened, Read, SeenEvent, Write
from dray.proof.object_past import ObjectPast, ObjectPasts
from dray.proof.online import OnlineCheck, watch_cluster
from dray.proof.recording import RecordingTransport, WatchRecorder
from dray.proof.replay import Replay
from dray.proof.violation import Violation

__all__ = [
    "History",
    "HistoryFile",
    "Listed",
    "ObjectKey",
    "ObjectPast",
    "ObjectPasts",
    "OnlineCheck",
    "Opened",
    "ProofReport",
    "Read",
    "RecordingTransport",
    "Replay",
    "SeenEvent",
    "Violation",
    "WatchRecorder",
    "Write",
    "check",
    "watch_cluster",
]
