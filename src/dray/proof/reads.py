"""Checks that each object is linearizable: an answer shows nothing older than what was answered before its question was asked.

The server numbers every state of an object, so no order has to be searched for: the numbers must agree with the times. The times are those of one
clock, that of the recorder.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from dray.proof.history import History, ObjectKey, Read, Write
from dray.proof.violation import Violation
from dray.proof.watch_streams import changes_seen


def check_reads(history: History) -> Iterator[Violation]:
    deletions = {
        key: [revision for revision, event in seen.items() if event.type == "DELETED"]
        for key, seen in changes_seen(history).items()
    }
    for key, answers in _by_key(history).items():
        yield from _check_key(key, answers, sorted(deletions.get(key, ())))


def _by_key(history: History) -> dict[ObjectKey, list[Write | Read]]:
    """Answers in the order in which they came; a deletion's answer has no number and says nothing here."""
    found: dict[ObjectKey, list[Write | Read]] = {}
    for record in history.records:
        if isinstance(record, Read) or (isinstance(record, Write) and record.revision and record.verb != "delete"):
            found.setdefault(record.key, []).append(record)
    return {key: sorted(answers, key=lambda each: each.at) for key, answers in found.items()}


def _check_key(key: ObjectKey, answers: list[Write | Read], deletions: list[int]) -> Iterator[Violation]:
    times = [answer.at for answer in answers]
    newest = [0]
    for answer in answers:
        newest.append(max(newest[-1], answer.revision))
    for answer in answers:
        known = newest[bisect.bisect_left(times, answer.began)]
        if answer.revision >= known:
            continue
        if not answer.revision and bisect.bisect_left(deletions, known) < len(deletions):
            continue  # It was deleted after that.
        what = f"revision {answer.revision}" if answer.revision else "nothing"
        word = "read" if isinstance(answer, Read) else "write"
        yield Violation(
            "stale-read", known, str(key), f"a {word} by {answer.actor} answered {what} after {known} was known", (key,)
        )
