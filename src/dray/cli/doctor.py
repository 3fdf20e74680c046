"""`dray doctor`: known traps, one line each with the fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from dray.api.dra.pod_phase import is_waiting_for_node
from dray.cli.cluster_source import LiveCluster, load_dump, refuse_two_sources, source_options
from dray.cli.main import EXIT_NO
from dray.cli.name_completion import ObjectName
from dray.cli.options import gate_options, gates_from, output_option
from dray.cli.output import Coloured, counted, show_line, write_document
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.doctor import CdiFileNames, examine
from dray.explain.doctor.finding import (
    DoctorFinding,
    error,
    named,
    warning,
)
from dray.sim.pod_explanation import ExplainedCluster, ExplainOptions
from dray.validation import ValidationContext

# Of a cluster with thousands of waiting pods, the first tell enough.
MOST_EXPLAINED = 20
# Somebody wants these pods to wait.
_MEANT = frozenset({"scheduling-gates", "other-scheduler"})
_COLOURS = {"error": "red", "warning": "yellow"}


@click.command()
@source_options
@click.option(
    "--cdi-dir",
    type=click.Path(exists=True, file_okay=False),
    help="Also look for lost CDI files here, such as /var/run/cdi.",
)
@click.option(
    "--node",
    default="",
    metavar="NAME",
    type=ObjectName("Node"),
    help="Whose CDI directory it is; default: any node's.",
)
@output_option("wide shows each fix on a line of its own.")
@gate_options
def doctor(
    files: tuple[str, ...],
    live: LiveCluster,
    cdi_dir: str | None,
    node: str,
    output: str,
    feature_gates: str,
    emulate: str | None,
) -> None:
    """What looks wrong in a cluster, with cause and remedy. Exit code 1 if anything does.

    \b
    Examples:
      dray doctor                                       the cluster of your kubeconfig
      dray doctor -f dump.yaml                          a dump
      dray doctor --cdi-dir /var/run/cdi --node gpu-7   on a node, with its CDI files

    What happens while you look, such as a device that is given twice, is told by dray proof.
    """
    refuse_two_sources(files, live)
    gates = gates_from(feature_gates, emulate)
    dump = load_dump(files, live, check=ValidationContext(), with_events=True)
    found = [_invalid(line) for line in dump.problems]
    world = dump.world()
    found += examine(world, gates=gates, cdi=_cdi_files(cdi_dir, node))
    found += _waiting_pods(world, ExplainOptions(gates=gates, is_live=not files), found)
    found += [_old_spelling(line) for line in dump.old_spellings]
    if output in ("json", "yaml"):
        write_document({"findings": [finding.document() for finding in found]}, output)
    else:
        _print(found, len(dump), is_wide=output == "wide")
    if found:
        sys.exit(EXIT_NO)


def _waiting_pods(
    world: ClusterObjects, options: ExplainOptions, found: Sequence[DoctorFinding]
) -> Iterator[DoctorFinding]:
    """Pods that fit nowhere, with the answer of `dray explain`; those that a finding is about already are left out."""
    told = {finding.subject for finding in found}
    cluster = ExplainedCluster(world, options)
    waiting = [pod for pod in world.pods if is_waiting_for_node(pod) and named(pod) not in told]
    for pod in waiting[:MOST_EXPLAINED]:
        verdict = cluster.explain(pod.metadata.namespace, pod.metadata.name)
        if not verdict.is_well and verdict.code not in _MEANT:
            yield warning("pod-waits", named(pod), f"waits: {verdict.why}", verdict.remedy, verdict.code)
    if len(waiting) > MOST_EXPLAINED:
        rest = f"{len(waiting) - MOST_EXPLAINED} more pods"
        yield warning("pod-waits", rest, "wait and were not looked at", "see dray explain --all")


def _cdi_files(directory: str | None, node: str) -> CdiFileNames | None:
    if directory is None:
        return None
    try:
        return CdiFileNames(frozenset(each.name for each in Path(directory).iterdir()), node)
    except OSError as problem:
        raise click.UsageError(f"{directory}: {os.strerror(problem.errno or 0)}") from None


def _invalid(line: str) -> DoctorFinding:
    where, _, rest = line.partition(": ")
    subject, _, message = rest.partition(": ")
    return error("invalid-object", subject or where, message or line, f"correct it: dray lint -f {where}")


def _old_spelling(subject: str) -> DoctorFinding:
    return warning(
        "old-spelling",
        subject,
        "uses the oldest names of node-allocatable fields",
        "rename them to nodeAllocatableResourceMappings; dray lint shows each place",
    )


def _print(found: list[DoctorFinding], objects: int, *, is_wide: bool) -> None:
    for finding in found:
        severity = Coloured(finding.severity, _COLOURS[finding.severity])
        line = f": {finding.subject} {finding.message} [{finding.code}]"
        if is_wide:
            show_line(severity, line)
            show_line(f"  fix: {finding.fix}")
        else:
            show_line(severity, f"{line}; fix: {finding.fix}")
    if not found:
        click.echo(
            f"nothing looks wrong ({counted(objects, 'object')})" if objects else "there are no objects to look at"
        )
        return
    errors = sum(finding.severity == "error" for finding in found)
    warnings = len(found) - errors
    click.echo(f"{counted(errors, 'error')}, {counted(warnings, 'warning')} ({counted(objects, 'object')})")
