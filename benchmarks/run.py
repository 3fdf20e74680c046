"""Runs the benchmarks: every `bench_<room>.py` beside this file, or the rooms named on the command line.

Exit status 1 says that a number missed its limit. `--json FILE` keeps the rows.
"""

import argparse
import importlib
import json
import os
import platform
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from report import Report, Row  # noqa: E402


def rooms() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def run_room(room: str) -> list[Row]:
    report = Report(room)
    importlib.import_module(f"bench_{room}").run(report)
    return report.rows


def line(row: Row) -> str:
    limit = "" if row.limit is None else f"{'>=' if row.at_least else '<='} {row.limit:,.6g} {row.unit}"
    verdict = "" if row.limit is None else ("ok" if row.is_met else "MISSED")
    spread = "" if row.spread is None else f"x{row.spread:.2f}"
    return f"{row.room:<12} {row.name:<58} {row.value:>14,.2f} {row.unit:<8} {limit:<22} {spread:<7} {verdict}"


def machine() -> dict[str, object]:
    return {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", help="rooms to measure; all by default")
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    args = parser.parse_args()
    print(f"machine: {machine()}   (spread = median round over best round)")
    rows: list[Row] = []
    for room in args.rooms or rooms():
        measured = run_room(room)
        for row in measured:
            print(line(row), flush=True)
        rows += measured
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "rows": [row.as_json() for row in rows]}, indent=1))
    missed = [row for row in rows if not row.is_met]
    print(f"{len(rows)} numbers, {len(missed)} missed their limit")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
