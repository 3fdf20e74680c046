"""`dray allocate`: the allocator over recorded scenarios."""

from __future__ import annotations

import sys
from typing import BinaryIO

import click
import msgspec

from dray.allocator import scenarios
from dray.api.errors import DecodeError
from dray.sim.bench.scenario_timing import answer_scenario


@click.command()
@click.option(
    "--scenarios", "source", required=True, type=click.File("rb"), help="NDJSON file, or - for standard input."
)
@click.option("--timing", is_flag=True, help="Add coldMicros, warmMicros and steps to each result.")
@click.option("--reasons", is_flag=True, help="Say why where nothing fits.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds after which a scenario ends in an error; 0 means never.",
)
def allocate(source: BinaryIO, timing: bool, reasons: bool, timeout_s: float) -> None:
    """Answer allocation scenarios, one JSON object per line in and out.

    Example: dray allocate --scenarios scenarios.ndjson --timing
    """
    out = sys.stdout
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        try:
            scenario = scenarios.read_scenario(line)
        except DecodeError as problem:
            raise click.UsageError(f"line {number}: {problem}") from None
        out.write(msgspec.json.encode(answer_scenario(scenario, timing, reasons, timeout_s)).decode() + "\n")
    out.flush()
