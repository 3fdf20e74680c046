"""`dray simulate`: what the scheduler would do with the waiting pods of a dump."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from dray.cli.cluster_source import read_dump
from dray.cli.main import EXIT_NO
from dray.cli.options import gate_options, gates_from, output_option
from dray.cli.output import ProgressLine, show_line, write_document
from dray.explain.cluster_objects import ClusterObjects
from dray.features import FeatureGates
from dray.scheduler.config import POLICIES
from dray.sim.admitted_pods import pods_with_claims
from dray.sim.autoscaling import autoscale as autoscale_nodes
from dray.sim.defragmentation import Defragmentation, defragmentation_document, defragmentation_text
from dray.sim.node_templates import AddedNodes, NodeTemplate, TemplateError, grown, template_of
from dray.sim.reports.simulation_result import Document, diff_document, result_document, result_text
from dray.sim.simulation import DEFAULT_POLICY, Simulation, config_of_policy
from dray.validation import ValidationContext


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
@click.option(
    "--mix",
    "mix_files",
    multiple=True,
    metavar="FILE|DIR",
    help="Dump with pods to expect; least-fragmentation counts them, and the waiting ones.",
)
@click.option("--diff", "other", metavar="OTHER", help="Compare with another policy, or with another dump.")
@click.option(
    "--report", type=click.Path(dir_okay=False, writable=True), metavar="FILE.html", help="Plots, in one file."
)
@click.option(
    "--defragment",
    is_flag=True,
    help="Say which pods to move, in which order, to make room for waiting pods and to empty nodes.",
)
@click.option("--keep-going", is_flag=True, help="Leave out objects that are not valid instead of stopping.")
@output_option("wide also lists the nodes.")
@gate_options
def simulate(
    files: tuple[str, ...],
    additions: tuple[str, ...],
    autoscale: bool,
    policy: str,
    mix_files: tuple[str, ...],
    other: str | None,
    report: str | None,
    defragment: bool,
    keep_going: bool,
    output: str,
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
      dray simulate -f dump.yaml --diff least-fragmentation
      dray simulate -f dump.yaml --defragment
    """
    if report is not None and not Path(report).absolute().parent.is_dir():
        raise click.UsageError(f"{report}: there is no such folder")
    gates = gates_from(feature_gates, emulate)
    run = _Invocation(gates, keep_going)
    world = run.read(files)
    if mix_files:
        run.mix = pods_with_claims(run.read(mix_files), gates)
    try:
        templates = [run.template(world, text) for text in additions]
        if autoscale:
            simulation, growth = run.autoscale(world, templates, policy)
        else:
            growth = tuple(AddedNodes(template, count) for template, count in templates)
            world = grown(world, growth)
            simulation = run.simulate(world, policy)
        document = result_document(simulation, growth, run.problems)
        if defragment:
            document["defragmentation"] = run.defragment(simulation, policy)
        if other is not None:
            document["diff"] = run.compare(document, world, policy, other)
    except TemplateError as problem:
        raise click.UsageError(str(problem)) from None
    if report is not None:
        _write_report(simulation, document, report)
    if output in ("json", "yaml"):
        write_document(document, output)
    else:
        click.echo(result_text(document, wide=output == "wide"))
        if defragment:
            click.echo(defragmentation_text(document["defragmentation"]))
    for line in run.problems:
        show_line(f"left out: {line}", err=True)
    if run.problems or document["summary"]["unschedulable"] or document["summary"]["errors"]:
        sys.exit(EXIT_NO)


class _Invocation:
    """Reads files and runs simulations with a progress line; `problems` are the objects that were left out."""

    def __init__(self, gates: FeatureGates, keep_going: bool) -> None:
        self._gates = gates
        self._keep_going = keep_going
        self.problems: list[str] = []
        self.mix: Sequence[object] = ()

    def read(self, files: tuple[str, ...]) -> ClusterObjects:
        with ProgressLine("reading", unit="bytes") as progress:
            dump = read_dump(
                files, check=ValidationContext(gates=self._gates), keep_going=self._keep_going, on_bytes=progress.add
            )
        self.problems += dump.problems
        return dump.world()

    def template(self, world: ClusterObjects, text: str) -> tuple[NodeTemplate, int]:
        """One --add-nodes: a node of the dump, or a file with a node."""
        name, equals, number = text.rpartition("=")
        if not equals or not number.isdigit() or not name:
            raise click.UsageError(f"--add-nodes {text}: expected TEMPLATE=N, for example node-1=3")
        if name in world.nodes_by_name:
            return template_of(world, name), int(number)
        return template_of(self.read((name,))), int(number)

    def simulate(self, world: ClusterObjects, policy: str) -> Simulation:
        simulation = self._new(world, policy)
        with ProgressLine("scheduling", unit="pods") as progress:
            simulation.run(progress.at)
        return simulation

    def autoscale(
        self, world: ClusterObjects, templates: list[tuple[NodeTemplate, int]], policy: str
    ) -> tuple[Simulation, tuple[AddedNodes, ...]]:
        before = self.simulate(world, policy)
        with ProgressLine("scaling", unit="attempts") as progress:
            growth = autoscale_nodes(world, before, templates, lambda bigger: self._new(bigger, policy), progress.step)
        return self.simulate(grown(before.world(), growth), policy).continues(before), growth

    def defragment(self, ended: Simulation, policy: str) -> Document:
        with ProgressLine("defragmenting", unit="plans") as progress:
            planner = Defragmentation(ended, lambda world: self._new(world, policy), progress.step)
            room = planner.room_plans()
            return defragmentation_document(room, planner.empty_plans())

    def compare(self, document: Document, world: ClusterObjects, policy: str, other: str) -> Document:
        if other == DEFAULT_POLICY or other in POLICIES:
            return diff_document(document, result_document(self.simulate(world, other), (), ()), policy, other)
        there = self.read((other,))
        return diff_document(document, result_document(self.simulate(there, policy), (), ()), "dump", other)

    def _new(self, world: ClusterObjects, policy: str) -> Simulation:
        return Simulation(world, config=config_of_policy(policy, self.mix), gates=self._gates)


def _write_report(simulation: Simulation, document: Document, path: str) -> None:
    from dray.sim.reports.html_report import report_html

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(report_html(simulation, document))
    except OSError as problem:
        raise click.UsageError(f"{path}: {problem.strerror or problem}") from None
