"""`--feature-gates` and `--emulate`, for the commands that judge by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dray.features import RELEASES, FeatureGateError, FeatureGates


def gate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--emulate", type=click.Choice(RELEASES), help="Gates as in this Kubernetes release.")(
        command
    )
    return click.option("--feature-gates", default="", metavar="A=true,B=false", help="Switch gates on top of that.")(
        command
    )


def gates_from(feature_gates: str, emulate: str | None) -> FeatureGates:
    try:
        gates = FeatureGates.for_release(emulate) if emulate else FeatureGates.default()
        return FeatureGates.parse(feature_gates, gates) if feature_gates else gates
    except FeatureGateError as problem:
        raise click.UsageError(str(problem)) from None
