"""`dray vectors KIND`: answers to recorded questions, one JSON object per line in and out."""

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

import click

Row = dict[str, Any]

# Kind to the function that answers one line ("module:attribute"); loaded when asked for.
ANSWERS: dict[str, str] = {
    "cel": "dray.cli.cel_vectors:answer",
    "podrequests": "dray.cli.podrequests:answer_podrequests",
    "quantity": "dray.cli.quantity_vectors:answer",
    "validation": "dray.cli.validation_vectors:answer",
}


def _answer_for(kind: str) -> Callable[[Row], Row]:
    module, _, attribute = ANSWERS[kind].partition(":")
    found: Callable[[Row], Row] = getattr(importlib.import_module(module), attribute)
    return found


@click.command()
@click.argument("kind", type=click.Choice(sorted(ANSWERS)))
def vectors(kind: str) -> None:
    """Answer conformance vectors from standard input.

    \b
    Example: dray vectors quantity < quantity.ndjson
    """
    answer = _answer_for(kind)
    for line in sys.stdin:
        if line.strip():
            # A number in the place of a quantity keeps its spelling.
            row = json.loads(line, parse_float=str if kind == "quantity" else float)
            answered = {"name": row["name"], **answer(row)} if "name" in row else answer(row)
            sys.stdout.write(json.dumps(answered, separators=(",", ":")) + "\n")
    sys.stdout.flush()
