"""Compares this checkout with another one: the same benchmarks in both, in alternation.

    python benchmarks/compare.py OTHER [room ...] [--rounds 5] [--counted] [--json FILE]

Each round runs a room once in each checkout, each with the Python of its own `.venv`, and the next round begins with the other
one. The best number of all rounds counts on both sides: it is the one that the rest of the machine disturbed least. Both are compiled before
the first round, into a folder that is gone afterwards: a checkout that compiles its modules at each start is slower and larger. With `--counted`
times are executed bytecode instructions (see `counted.py`): on a busy machine only those can be compared.
Exit status 1 says that a number is more than `--most` times the other checkout's.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RATES = ("/s", "1/s", "pods/s", "pods")
NANOSECONDS = {"us": 1e3, "ms": 1e6, "s": 1e9}
SLOWER = 1.05


@dataclass(frozen=True, slots=True)
class Compared:
    """One number of both checkouts. `ratio` is above 1 when this checkout is the slower or larger one."""

    room: str
    name: str
    unit: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        worse, better = (self.before, self.after) if self.unit in RATES else (self.after, self.before)
        if worse == better:
            return 1.0
        return worse / better if better else float("inf")

    def line(self) -> str:
        return f"{self.room:<12} {self.name:<58} {self.before:>12,.2f} {self.after:>12,.2f} {self.unit:<8} {self.ratio:.2f}"


Numbers = dict[tuple[str, str, str], float]


def compiled(checkouts: Iterable[Path], cache: Path) -> dict[str, str]:
    """The environment in which a checkout finds its modules compiled."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(cache)
    for checkout in checkouts:
        folders = [checkout / "src", *(checkout / ".venv/lib").glob("python*/site-packages")]
        command: list[str | Path] = [checkout / ".venv/bin/python", "-m", "compileall", "-qq", *folders]
        # A package may bring files for another Python, which do not compile.
        subprocess.run(command, env=environment, check=False)
    return environment


def measured(checkout: Path, room: str, counted: bool, environment: dict[str, str]) -> Numbers:
    """The numbers of one run of one room; a benchmark that missed its limit is still measured."""
    with tempfile.TemporaryDirectory(prefix="dray-compare-") as directory:
        rows = Path(directory) / "rows.json"
        arguments = [HERE / "counted.py", checkout, room, rows] if counted else ["run.py", room, "--json", rows]
        command = [checkout / ".venv/bin/python", *arguments]
        subprocess.run(command, cwd=checkout / "benchmarks", stdout=subprocess.DEVNULL, env=environment, check=False)
        if not rows.exists():
            raise SystemExit(f"{room} failed in {checkout}")
        found = json.loads(rows.read_text())["rows"]
    if counted:
        found = [as_instructions(row) for row in found if row["unit"] not in RATES]
    return {(row["room"], row["name"], row["unit"]): row["value"] for row in found}


def as_instructions(row: dict[str, Any]) -> dict[str, Any]:
    scale = NANOSECONDS.get(row["unit"])
    return row if scale is None else row | {"value": row["value"] * scale, "unit": "instr"}


def best(one: Numbers, other: Numbers) -> Numbers:
    better = {key: (max if key[2] in RATES else min)(value, other.get(key, value)) for key, value in one.items()}
    return other | better


def compare(
    before: Path, after: Path, room: str, rounds: int, counted: bool, environment: dict[str, str]
) -> list[Compared]:
    """The rows that both checkouts have, in the order of this one."""
    numbers: dict[Path, Numbers] = {before: {}, after: {}}
    for turn in range(rounds):
        for checkout in (before, after) if turn % 2 == 0 else (after, before):
            numbers[checkout] = best(measured(checkout, room, counted, environment), numbers[checkout])
    old = numbers[before]
    return [Compared(*key, old[key], value) for key, value in numbers[after].items() if key in old]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the other checkout, with its .venv")
    parser.add_argument("rooms", nargs="*", help="rooms to compare; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--counted", action="store_true", help="count instructions instead of taking times")
    parser.add_argument("--most", type=float, default=SLOWER, help="the largest ratio that passes")
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    args = parser.parse_args()
    rooms = args.rooms or sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    rows: list[Compared] = []
    before, after = args.other.resolve(), HERE.parent.resolve()
    with tempfile.TemporaryDirectory(prefix="dray-compiled-") as cache:
        environment = compiled((before, after), Path(cache))
        for room in rooms:
            compared = compare(before, after, room, args.rounds, args.counted, environment)
            for row in compared:
                print(row.line(), flush=True)
            rows += compared
            if args.json:
                args.json.write_text(
                    json.dumps([[row.room, row.name, row.unit, row.before, row.after] for row in rows])
                )
    worse = [row for row in rows if row.ratio > args.most]
    print(f"{len(rows)} numbers, {len(worse)} more than {args.most:g} times those of {args.other}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
