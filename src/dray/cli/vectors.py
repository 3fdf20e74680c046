"""`dray vectors KIND`: answers to recorded questions, one JSON object per line in and out."""

import json
import sys

import click

KINDS = ("cel", "podrequests", "quantity", "validation")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
def vectors(kind: str) -> None:
    """Answer conformance vectors from standard input.

    \b
    Example: dray vectors quantity < quantity.ndjson
    """
    from dray.testing.vectors import ANSWERS

    answer = ANSWERS[kind]
    for line in sys.stdin:
        if line.strip():
            # A number in the place of a quantity keeps its spelling.
            row = json.loads(line, parse_float=str if kind == "quantity" else float)
            answered = {"name": row["name"], **answer(row)} if "name" in row else answer(row)
            sys.stdout.write(json.dumps(answered, separators=(",", ":")) + "\n")
    sys.stdout.flush()
