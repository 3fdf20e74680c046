"""`dray simulate`: what the scheduler would do with the waiting pods of a dump."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dray.cli.columns import columns, write_document
from dray.cli.dump import read_dump
from dray.cli.gates import gate_options, gates_from
from dray.cli.main import EXIT_NO
from dray.cli.progress import Progress
from dray.cli.simulate_view import Document, diff_document, result_document
from dray.explain.world import World
from dray.features import FeatureGates
from dray.scheduler.config import POLICIES, SchedulerConfig, with_policy
from dray.sim.autoscaling import find_growth
from dray.sim.more_nodes import Growth, NodeTemplate, TemplateError, grown, template_of, templates_in
from dray.sim.rehearsal import Rehearsal
from dray.validation import Context

DEFAULT_POLICY = "default"


@click.command()
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="FILE|DIR", help="Dump to read; - reads stdin."
)
@click.option(
    "--add-nodes",
    "additions",
    multiple=True,
    metavar="TEMPLATE=N",
    help="N more nodes like TEMPLATE: a node of the dump, or a file with a node and its slices. May be repeated.",
)
@click.option(
    "--autoscale",
    is_flag=True,
    help="Find the smallest number of nodes that places every pod; --add-nodes names templates and their limits.",
)
@click.option("--policy", type=click.Choice([DEFAULT_POLICY, *sorted(POLICIES)]), default=DEFAULT_POLICY)
@click.option("--diff", "other", metavar="OTHER", help="Compare with another policy, or with another dump.")
@click.option(
    "--report", type=click.Path(dir_okay=False, writable=True), metavar="FILE.html", help="Plots, in one file."
)
@click.option("--keep-going", is_flag=True, help="Leave out objects that are not valid instead of stopping.")
@click.option("-o", "--output", type=click.Choice(["wide", "json", "yaml"]), help="wide also lists the nodes.")
@gate_options
def simulate(
    files: tuple[str, ...],
    additions: tuple[str, ...],
    autoscale: bool,
    policy: str,
    other: str | None,
    report: str | None,
    keep_going: bool,
    output: str | None,
    feature_gates: str,
    emulate: str | None,
) -> None:
    """Place a dump's waiting pods with the real scheduler, on simulated time and without a server.

    \b
    Examples:
      kubectl get nodes,pods,resourceclaims,resourceclaimtemplates,resourceslices,deviceclasses -A -o yaml > dump.yaml
      dray simulate -f dump.yaml
      dray simulate -f dump.yaml --add-nodes node-1=3 -o json
      dray simulate -f dump.yaml --autoscale --report report.html
      dray simulate -f dump.yaml --diff best-fit
    """
    if report is not None and not Path(report).absolute().parent.is_dir():
        raise click.UsageError(f"{report}: there is no such folder")
    gates = gates_from(feature_gates, emulate)
    run = Simulation(gates, keep_going)
    world = run.read(files)
    try:
        templates = run.templates(world, additions)
        if autoscale:
            rehearsal, growth = run.scale(world, templates, policy)
        else:
            growth = tuple(Growth(template, count) for template, count in templates)
            world = grown(world, growth)
            rehearsal = run.rehearse(world, policy)
        document = result_document(rehearsal, growth, run.problems)
        if other is not None:
            document["diff"] = run.compare(document, world, policy, other)
    except TemplateError as problem:
        raise click.UsageError(str(problem)) from None
    if report is not None:
        _write_report(rehearsal, document, report)
    if output in ("json", "yaml"):
        write_document(document, output)
    else:
        _print(document, wide=output == "wide")
    for line in run.problems:
        click.echo(f"left out: {line}", err=True)
    if run.problems or document["summary"]["unschedulable"] or document["summary"]["errors"]:
        sys.exit(EXIT_NO)


class Simulation:
    """What the parts of one invocation share."""

    def __init__(self, gates: FeatureGates, keep_going: bool) -> None:
        self._gates = gates
        self._keep_going = keep_going
        self.problems: list[str] = []

    def read(self, files: tuple[str, ...]) -> World:
        with Progress("reading", unit="bytes") as progress:
            dump = read_dump(
                files, check=Context(gates=self._gates), keep_going=self._keep_going, on_bytes=progress.add
            )
        self.problems += dump.problems
        return dump.world()

    def templates(self, world: World, additions: tuple[str, ...]) -> list[tuple[NodeTemplate, int]]:
        return [self._addition(world, text) for text in additions]

    def scale(
        self, world: World, templates: list[tuple[NodeTemplate, int]], policy: str
    ) -> tuple[Rehearsal, tuple[Growth, ...]]:
        """As autoscalers work: what fits is placed first, then nodes come for what is left over."""
        before = self.rehearse(world, policy)
        settled = before.world()
        with Progress("scaling", unit="attempts") as progress:
            growth = find_growth(
                settled,
                templates or [(template, None) for template in templates_in(world)],
                lambda bigger: self.rehearse(bigger, policy, quietly=True),
                progress.step,
            )
        return self.rehearse(grown(settled, growth), policy).continues(before), growth

    def _addition(self, world: World, text: str) -> tuple[NodeTemplate, int]:
        name, equals, number = text.rpartition("=")
        if not equals or not number.isdigit() or not name:
            raise click.UsageError(f"--add-nodes {text}: expected TEMPLATE=N, for example node-1=3")
        if name in world.nodes_by_name:
            return template_of(world, name), int(number)
        return template_of(self.read((name,))), int(number)

    def rehearse(self, world: World, policy: str, *, quietly: bool = False) -> Rehearsal:
        rehearsal = Rehearsal(world, config=_config(policy), gates=self._gates)
        if quietly:
            rehearsal.run()
            return rehearsal
        with Progress("scheduling", unit="pods") as progress:
            rehearsal.run(progress.at)
        return rehearsal

    def compare(self, document: Document, world: World, policy: str, other: str) -> Document:
        if other == DEFAULT_POLICY or other in POLICIES:
            return diff_document(document, result_document(self.rehearse(world, other), (), ()), policy, other)
        there = self.read((other,))
        return diff_document(document, result_document(self.rehearse(there, policy), (), ()), "dump", other)


def _config(policy: str) -> SchedulerConfig:
    config = SchedulerConfig()
    return config if policy == DEFAULT_POLICY else with_policy(config, policy)


def _write_report(rehearsal: Rehearsal, document: Document, path: str) -> None:
    from dray.cli.simulate_report import report_html

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(report_html(rehearsal, document))
    except OSError as problem:
        raise click.UsageError(f"{path}: {problem.strerror or problem}") from None


def _print(document: Document, *, wide: bool) -> None:
    summary = document["summary"]
    click.echo(
        f"{summary['scheduled']} of {summary['pods']} waiting pods get a node"
        + (f", still waiting: {summary['unschedulable']}" if summary["unschedulable"] else "")
        + (f", errors: {summary['errors']}" if summary["errors"] else "")
        + f"; {summary['devices']['taken']} of {summary['devices']['published']} devices are taken"
    )
    for row in summary["addedNodes"]:
        click.echo(f"added: {row['count']} x {row['template']}")
    for name in summary["preempted"]:
        click.echo(f"preempted: {name}")
    if document["pods"]:
        click.echo()
        click.echo(columns(("POD", "OUTCOME", "NODE", "DEVICES", "MESSAGE"), map(_pod_row, document["pods"])))
    if wide and document["nodes"]:
        click.echo()
        click.echo(columns(("NODE", "RESOURCE", "ALLOCATABLE", "REQUESTED"), _node_rows(document)))
    if "diff" in document:
        _print_diff(document["diff"])


def _pod_row(row: Document) -> tuple[str, ...]:
    devices = [
        f"{result['pool']}/{result['device']}"
        for claim in row["claims"]
        for result in ((claim["allocation"] or {}).get("devices") or {}).get("results") or ()
    ]
    shown = ", ".join(devices[:4]) + (f" and {len(devices) - 4} more" if len(devices) > 4 else "")
    codes = f"{', '.join(row['codes'])}: " if row["codes"] else ""
    message = codes + row["message"].partition(" preemption:")[0]
    return f"{row['namespace']}/{row['name']}", row["outcome"], row["node"], shown, message


def _node_rows(document: Document) -> list[tuple[str, ...]]:
    return [
        (node["name"], resource, amount, node["requested"].get(resource, "0"))
        for node in document["nodes"]
        for resource, amount in node["allocatable"].items()
    ]


def _print_diff(diff: Document) -> None:
    click.echo()
    here, there = diff["from"], diff["to"]
    click.echo(f"compared with {there['name']}: {there['scheduled']} scheduled there, {here['scheduled']} here")
    if not diff["pods"]:
        click.echo("every pod is where it was")
        return
    rows = [
        (
            f"{row['namespace']}/{row['name']}",
            row["from"]["node"] or row["from"]["outcome"],
            row["to"]["node"] or row["to"]["outcome"],
        )
        for row in diff["pods"]
    ]
    click.echo(columns(("POD", here["name"].upper(), there["name"].upper()), rows))
