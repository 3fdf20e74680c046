"""`dray simulate`: what the scheduler would do with the waiting pods of a dump."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from dray.cli.cluster_source import read_dump
from dray.cli.main import EXIT_NO
from dray.cli.options import gate_options, gates_from, output_option
from dray.cli.output import ProgressLine, show_line, show_text, write_document
from dray.clock import RealClock
from dray.event_loop import spare_the_collector
from dray.explain.cluster_objects import ClusterObjects
from dray.features import FeatureGates
from dray.scheduler.config import POLICIES
from dray.sim.admitted_pods import pods_with_claims
from dray.sim.autoscaling import Autoscaled, NodeShape, best_of, bound_of, shapes_in
from dray.sim.autoscaling import autoscale as autoscale_nodes
from dray.sim.defragmentation import Defragmentation, defragmentation_document, defragmentation_text
from dray.sim.node_templates import AddedNodes, NodeTemplate, TemplateError, grown, template_of
from dray.sim.reports.simulation_result import (
    Document,
    ReportHeader,
    autoscale_document,
    diff_document,
    question_of,
    result_document,
    result_text,
)
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
    help="Find the smallest number of nodes that places every pod, over all policies unless --policy names one; "
    "--add-nodes names templates and their limits.",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="TEMPLATE=AMOUNT",
    help="With --autoscale: the price of a node like TEMPLATE. The cheapest choice is looked for. May be repeated.",
)
@click.option(
    "--policy",
    "named_policy",
    type=click.Choice([DEFAULT_POLICY, *sorted(POLICIES)]),
    help=f"How nodes and devices are chosen; {DEFAULT_POLICY} if none is named.",
)
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
    prices: tuple[str, ...],
    named_policy: str | None,
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
      dray simulate -f dump.yaml --autoscale --price small=1 --price big.yaml=3.5
      dray simulate -f dump.yaml --diff least-fragmentation
      dray simulate -f dump.yaml --defragment
    """
    _check_options(report, prices, autoscale=autoscale)
    spare_the_collector()
    gates = gates_from(feature_gates, emulate)
    run = _Invocation(gates, keep_going)
    wanted = _Wanted(files, additions, prices, named_policy, other, autoscale=autoscale, defragment=defragment)
    world = run.read(files)
    if mix_files:
        run.mix = pods_with_claims(run.read(mix_files), gates)
    try:
        answer = run.answer(world, wanted)
    except TemplateError as problem:
        raise click.UsageError(str(problem)) from None
    if report is not None:
        question = question_of(answer.document, autoscale=autoscale)
        header = ReportHeader(question, (*files, *mix_files), answer.policy, RealClock().now())
        _write_report(answer.simulation, answer.document, header, report)
    _show(answer.document, output)
    for line in run.problems:
        show_line(f"left out: {line}", err=True)
    summary = answer.document["summary"]
    if run.problems or summary["unschedulable"] or summary["errors"]:
        sys.exit(EXIT_NO)


def _check_options(report: str | None, prices: tuple[str, ...], *, autoscale: bool) -> None:
    if report is not None and not Path(report).absolute().parent.is_dir():
        raise click.UsageError(f"{report}: there is no such folder")
    if prices and not autoscale:
        raise click.UsageError("--price is for --autoscale")


def _show(document: Document, output: str) -> None:
    if output in ("json", "yaml"):
        write_document(document, output)
        return
    show_text(result_text(document, wide=output == "wide"))
    if "defragmentation" in document:
        click.echo(defragmentation_text(document["defragmentation"]))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the options ask for."""

    files: tuple[str, ...]
    additions: tuple[str, ...]
    prices: tuple[str, ...]
    policy: str | None
    other: str | None
    autoscale: bool
    defragment: bool


@dataclass(frozen=True, slots=True)
class _Answer:
    """A simulation that has ended, and all that is said about it."""

    simulation: Simulation
    document: Document
    policy: str


# Kubernetes supports 5,000 nodes; far more of them would take all memory.
MOST_ADDED_NODES = 100_000


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

    def answer(self, world: ClusterObjects, wanted: _Wanted) -> _Answer:
        if wanted.autoscale:
            policies = [wanted.policy] if wanted.policy else [DEFAULT_POLICY, *sorted(POLICIES)]
            shapes = self.shapes(world, wanted.additions, wanted.prices)
            scaled, document = self.autoscale(world, shapes, policies, priced=bool(wanted.prices))
            policy, growth, simulation = scaled.policy, scaled.growth, scaled.ended
            world = grown(world, growth)
        else:
            policy = wanted.policy or DEFAULT_POLICY
            growth = tuple(AddedNodes(*self.template(world, text)) for text in wanted.additions)
            world = grown(world, growth)
            simulation = self.simulate(world, policy)
            document = result_document(simulation, growth, self.problems)
        if wanted.defragment:
            document["defragmentation"] = self.defragment(simulation, policy)
        if wanted.other is not None:
            document["diff"] = self.compare(document, world, policy, wanted.other, wanted.files)
        return _Answer(simulation, document, policy)

    def template(self, world: ClusterObjects, text: str) -> tuple[NodeTemplate, int]:
        """One --add-nodes: a node of the dump, or a file with a node."""
        name, number = _named(text, "--add-nodes", "TEMPLATE=N, for example node-1=3")
        if not number.isdigit():
            raise click.UsageError(f"--add-nodes {text}: expected TEMPLATE=N, for example node-1=3")
        if len(number) > 9 or int(number) > MOST_ADDED_NODES:
            raise click.UsageError(f"--add-nodes {text}: {MOST_ADDED_NODES} nodes at most, since each takes memory")
        return self._template(world, name), int(number)

    def _template(self, world: ClusterObjects, name: str) -> NodeTemplate:
        if name in world.nodes_by_name:
            return template_of(world, name)
        if name != "-" and not Path(name).exists():
            raise click.UsageError(f"{name} is neither a node of the dump nor a file")
        return template_of(self.read((name,)))

    def shapes(self, world: ClusterObjects, additions: tuple[str, ...], prices: tuple[str, ...]) -> list[NodeShape]:
        """The nodes that may be added: those that --add-nodes or --price names, or every kind in the dump."""
        price_of = dict(_price(text) for text in prices)
        if not additions:
            named = [NodeShape(self._template(world, name), price=price) for name, price in price_of.items()]
            return named or shapes_in(world)
        shapes = []
        for text in additions:
            template, limit = self.template(world, text)
            name = text.rpartition("=")[0]
            if price_of and name not in price_of:
                raise click.UsageError(f"--price: there is no price for {name}")
            shapes.append(NodeShape(template, limit, price_of.pop(name, 1.0)))
        if price_of:
            raise click.UsageError(f"--price: --add-nodes does not name {', '.join(price_of)}")
        return shapes

    def simulate(self, world: ClusterObjects, policy: str) -> Simulation:
        simulation = self._new(world, policy)
        with ProgressLine("scheduling", unit="pods") as progress:
            simulation.run(progress.at)
        return simulation

    def autoscale(
        self, world: ClusterObjects, shapes: list[NodeShape], policies: list[str], *, priced: bool
    ) -> tuple[Autoscaled, Document]:
        """The best answer over the policies, and its document."""
        # Pods that find a node before any is added enter no queue again, but the mix has seen them.
        waiting = [row for row in pods_with_claims(world, self._gates) if not row[0].spec.node_name]
        self.mix = (*self.mix, *waiting)
        with ProgressLine("scaling", unit="attempts") as progress:
            tried = [
                autoscale_nodes(policy, world, shapes, partial(self._new, policy=policy), progress.step)
                for policy in policies
            ]
        answer = best_of(tried)
        bound = bound_of(world, shapes, answer, partial(self._new, policy=answer.policy))
        document = result_document(answer.ended, answer.growth, self.problems)
        document["summary"]["autoscale"] = autoscale_document(answer, tried, bound, priced=priced)
        return answer, document

    def defragment(self, ended: Simulation, policy: str) -> Document:
        with ProgressLine("defragmenting", unit="plans") as progress:
            planner = Defragmentation(ended, lambda world: self._new(world, policy), progress.step)
            room = planner.room_plans()
            return defragmentation_document(room, planner.empty_plans())

    def compare(
        self, document: Document, world: ClusterObjects, policy: str, other: str, files: tuple[str, ...]
    ) -> Document:
        if other == DEFAULT_POLICY or other in POLICIES:
            return diff_document(document, result_document(self.simulate(world, other), (), ()), policy, other)
        if other != "-" and not Path(other).exists():
            raise click.UsageError(
                f"--diff {other}: there is no such file, and the policies are {', '.join((DEFAULT_POLICY, *POLICIES))}"
            )
        there = self.simulate(self.read((other,)), policy)
        return diff_document(document, result_document(there, (), ()), ", ".join(files), other)

    def _new(self, world: ClusterObjects, policy: str) -> Simulation:
        return Simulation(world, config=config_of_policy(policy, self.mix), gates=self._gates)


def _named(text: str, option: str, expected: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise click.UsageError(f"{option} {text}: expected {expected}")
    return name, value


def _price(text: str) -> tuple[str, float]:
    name, value = _named(text, "--price", "TEMPLATE=AMOUNT, for example node-1=2.5")
    try:
        price = float(value)
    except ValueError:
        price = 0.0
    if not 0.0 < price < float("inf"):
        raise click.UsageError(f"--price {text}: expected an amount above zero")
    return name, price


def _write_report(simulation: Simulation, document: Document, header: ReportHeader, path: str) -> None:
    from dray.sim.reports.html_report import report_html

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(report_html(simulation, document, header))
    except OSError as problem:
        raise click.UsageError(f"{path}: {problem.strerror or problem}") from None
