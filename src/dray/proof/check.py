"""Runs every check over one history and reports violations and counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dray.client import CLAIMS, PODS
from dray.proof.acknowledged_writes import check_writes
from dray.proof.history import History, Listed, SeenEvent, Write, metadata_of
from dray.proof.reads import check_reads
from dray.proof.replay import (
    Replay,
    in_order,
    without_use,
)
from dray.proof.rules import DeviceRule, LedgerRule, UseRule
from dray.proof.rules.claim_use import examine
from dray.proof.violation import Violation
from dray.proof.watch_streams import check_watches


@dataclass(frozen=True, slots=True)
class ProofReport:
    """The violations, and the number of objects and events checked: a clean report over an empty history proves nothing."""

    violations: tuple[Violation, ...]
    writes: int
    reads: int
    events: int
    changes: int
    allocations: int
    overbound: int

    @property
    def is_clean(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        by_rule = Counter(each.rule for each in self.violations)
        found = ", ".join(f"{count} {rule}" for rule, count in sorted(by_rule.items())) or "no violation"
        looked_at = (
            f"{self.writes} acknowledged writes, {self.reads} reads, {self.events} watch events, {self.changes} changes"
        )
        return f"{found} ({looked_at}, {self.allocations} allocations, {self.overbound} bound beyond allocatable)"


def check(history: History, *, bound_must_fit: bool = False) -> ProofReport:
    ledger = LedgerRule(bound_must_fit=bound_must_fit)
    replay = Replay([DeviceRule(), ledger, UseRule()])
    violations = [*check_watches(history), *check_writes(history), *check_reads(history)]
    allocations: set[tuple[str, str]] = set()
    # Lists of pods and claims are not in step with each other before the later of them.
    in_step_at: int | None = None
    for record in in_order(history):
        if isinstance(record, Listed):
            if record.resource in (PODS.plural, CLAIMS.plural):
                in_step_at = max(in_step_at or 0, record.revision)
            violations += replay.start_from(record)
            continue
        if in_step_at is not None and record.revision > in_step_at:
            violations += examine(replay.world, in_step_at)
            in_step_at = None
        found = replay.apply(record)
        violations += found if in_step_at is None else without_use(found)
        status = record.document.get("status")
        if record.key.resource.startswith("resourceclaims.") and isinstance(status, dict) and status.get("allocation"):
            allocations.add((str(record.key), str(metadata_of(record.document).get("uid"))))
    if in_step_at is not None:
        violations += examine(replay.world, in_step_at)
    return ProofReport(
        tuple(sorted(violations, key=lambda each: each.revision)),
        reads=sum(1 for _ in history.reads),
        writes=sum(isinstance(each, Write) for each in history.records),
        events=sum(isinstance(each, SeenEvent) for each in history.records),
        changes=replay.changes,
        allocations=len(allocations),
        overbound=ledger.overbound,
    )
