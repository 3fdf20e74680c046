"""All fuzzers, round after round with new seeds, until the time is over.

    python -m tests.fuzz.run --seed 7 --seconds 3600

Each round is a run of pytest whose seed is drawn from that of the whole run, so that a find can be repeated by itself: its command and its
output are in the folder of `--keep`. The exit code is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

FUZZERS = ("tests/fuzz", "tests/api/test_robustness.py", "tests/cel/test_fuzz.py")
NO_TESTS = 5


def main() -> int:
    options = _options()
    options.keep.mkdir(parents=True, exist_ok=True)
    seeds = Random(options.seed)
    begin = time.monotonic()
    rounds = passed = finds = 0
    while time.monotonic() - begin < options.seconds:
        seed = seeds.getrandbits(32)
        command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}", "--timeout=3600", *FUZZERS]
        done = subprocess.run(
            command,
            env={**os.environ, "DRAY_FUZZ_EXAMPLES": str(options.examples)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        rounds += 1
        passed += sum(int(number) for number in re.findall(r"(\d+) passed", done.stdout))
        if done.returncode == NO_TESTS:
            print(done.stdout, file=sys.stderr)
            return 2
        if done.returncode:
            finds += 1
            find = options.keep / f"find-{seed}.txt"
            find.write_text(f"DRAY_FUZZ_EXAMPLES={options.examples} {shlex.join(command)}\n\n{done.stdout}")
            print(f"found something: {find}", flush=True)
    print(
        f"seed {options.seed}: {time.monotonic() - begin:.0f} s, {rounds} rounds, {passed} times a fuzzer with up to "
        f"{options.examples} examples passed, {finds} rounds with finds"
    )
    return 1 if finds else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--examples", type=int, default=400, help="for each fuzzer in each round")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "dray-fuzz", help="folder of finds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
