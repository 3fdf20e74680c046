"""Runs one room of a checkout with a clock that counts work: one executed bytecode instruction is one nanosecond.

    python counted.py CHECKOUT ROOM FILE

`time.process_time` and `time.perf_counter` give the instructions that this process has executed so far, so every number of a room
that measures itself in its own process becomes a count. It does not depend on what else the machine does. Work inside C
functions does not count.
"""

import importlib
import json
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

COUNTED_ROUND_S = 0.0005
# Constants of rooms that would take too long to count.
SMALLER = {"controllers": {"PODS_MADE": 100, "LIVES": 30, "ROUNDS": 1}}


class Instructions:
    """Counts the bytecode instructions of all threads."""

    def __init__(self) -> None:
        self.executed = 0

    def start(self) -> None:
        threading.settrace(self._called)
        sys.settrace(self._called)

    def clock(self) -> float:
        return self.executed * 1e-9

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._ran

    def _ran(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            self.executed += 1
        return self._ran


def main() -> None:
    checkout, room, output = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    sys.path[:0] = [str(checkout / "benchmarks"), str(checkout)]
    # Before the room is imported: `timeit` keeps the clock that it finds.
    instructions = Instructions()
    time.process_time = time.perf_counter = instructions.clock  # type: ignore[assignment]
    bench = importlib.import_module(f"bench_{room}")
    for name, value in SMALLER.get(room, {}).items():
        setattr(bench, name, value)
    report_module = importlib.import_module("report")
    report = report_module.Report(room)
    timed = report.measure
    report.measure = lambda name, fn, **options: timed(name, fn, **{**options, "rounds": 3, "round_s": COUNTED_ROUND_S})
    instructions.start()
    bench.run(report)
    sys.settrace(None)
    output.write_text(json.dumps({"rows": [row.as_json() for row in report.rows]}))


if __name__ == "__main__":
    main()
