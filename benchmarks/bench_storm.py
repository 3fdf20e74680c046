"""A minute of API storm: 2,000 pods per minute created and deleted, 50 watchers looking on."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.storm import StormOptions, growth, run_storm
from report import Report

SECONDS = 60.0


def run(report: Report) -> None:
    result = run_storm(StormOptions(SECONDS))
    windows = result["windows"]
    report.record("pods created per minute", result["created"] * 60 / windows[-1]["at_s"], "pods", 1900, at_least=True)
    report.record("requests without an answer", result["without_answer"], "requests", 0)
    report.record("watches that broke", float(str(result["breaks"])), "watches", 0)
    report.record("create, p99 of the last third", sorted(each["create_p99_ms"] for each in windows[-4:])[2], "ms")
    report.record("events to watchers per second", result["events"] / windows[-1]["at_s"], "events")
    report.record("growth of create p50 (last quarter over the one before)", growth(result, "create_p50_ms"), "x", 3.0)
    for part in ("apiserver", "controllers", "scheduler"):
        report.record(f"growth of {part} memory", growth(result, "memory_mb", part), "x", 1.5)
