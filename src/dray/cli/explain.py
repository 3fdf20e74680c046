"""`dray explain pod/NAME`: why a pod waits, node by node, and what would help."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from dray.api.core import Pod
from dray.cli.cluster_source import default_namespace, fetch_dump, read_dump, source_options
from dray.cli.main import EXIT_NO
from dray.cli.options import gate_options, gates_from
from dray.cli.output import show_line, write_document
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.dump import Dump
from dray.explain.pod_text import text_of
from dray.explain.reason_codes import (
    FITS,
    SCHEDULED,
)
from dray.explain.verdicts import PodNotFound, PodVerdict
from dray.sim.pod_explanation import ExplainOptions, explain_pod
from dray.validation import ValidationContext


@click.command()
@click.argument("pod", required=False, metavar="[pod/NAME]")
@source_options
@click.option("-n", "--namespace", default=None, help="Default: as the kubeconfig says.")
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Look at this node in depth; may be repeated.")
@click.option("--keep-going", is_flag=True, help="Leave out objects that are not valid instead of stopping.")
@click.option("-o", "--output", type=click.Choice(["wide", "json", "yaml"]), help="wide shows every node.")
@gate_options
def explain(
    pod: str | None,
    files: tuple[str, ...],
    kubeconfig: str | None,
    namespace: str | None,
    nodes: tuple[str, ...],
    keep_going: bool,
    output: str | None,
    feature_gates: str,
    emulate: str | None,
) -> None:
    """Why a pod waits, or why it is where it is: per node, per request, per device.

    Asks the cluster of your kubeconfig, or the objects of -f. Files that hold pods but no nodes are taken for pods that
    are not created yet, and are tried against the live cluster. Exit code 0: the pod has a node or fits one; 1: it waits.

    \b
    Examples:
      dray explain pod/train -n ml                  live
      dray explain pod/train -f dump.yaml           from a dump
      dray explain -f train.yaml                    a pod that is not created yet, against the live cluster
      dray explain pod/train -f dump.yaml -f train.yaml --node gpu-7
    """
    gates = gates_from(feature_gates, emulate)
    given = read_dump(files, check=ValidationContext(gates=gates), keep_going=keep_going) if files else Dump()
    is_live = not files or kubeconfig is not None or not _is_dump(given)
    world = given.world()
    if is_live:
        world = _over(fetch_dump(kubeconfig, with_events=True).world(), world)
        namespace = namespace or (default_namespace(kubeconfig) if pod is not None else None)
    wanted = _wanted(pod, namespace, given)
    unknown = [name for name in nodes if name not in world.nodes_by_name]
    if unknown:
        raise click.UsageError(f"no node named {', '.join(unknown)}")
    around = ExplainOptions(nodes, gates, is_live=is_live)
    verdicts = [_explained(world, *key, replace(around, is_new=_is_new(given, key))) for key in wanted]
    if output in ("json", "yaml"):
        documents = [verdict.document() for verdict in verdicts]
        write_document(documents[0] if len(documents) == 1 else documents, output)
    else:
        click.echo("\n\n".join(text_of(verdict, wide=output == "wide", nodes=nodes) for verdict in verdicts))
    for line in given.problems:
        show_line(f"left out: {line}", err=True)
    if any(verdict.code not in (FITS, SCHEDULED, "pod-finished") for verdict in verdicts):
        sys.exit(EXIT_NO)


def _is_dump(given: Dump) -> bool:
    """Objects of a cluster, and not just manifests that somebody is about to apply to one."""
    if any(given.objects.get(kind) for kind in ("Node", "ResourceSlice")):
        return True
    return any(pod.metadata.uid for pod in given.of(Pod))


def _wanted(pod: str | None, namespace: str | None, given: Dump) -> list[tuple[str, str]]:
    if pod is not None:
        kind, _, name = pod.rpartition("/")
        if kind and kind not in ("pod", "pods", "po"):
            raise click.UsageError(f"{pod}: only pods can be explained, for example pod/{name}")
        return [(namespace or _only_namespace(given, name) or "default", name)]
    waiting = [each for each in given.of(Pod) if not each.spec.node_name]
    if not waiting:
        raise click.UsageError("which pod? Name one, for example pod/train, or hand in its manifest with -f")
    return [(each.metadata.namespace, each.metadata.name) for each in waiting]


def _only_namespace(given: Dump, name: str) -> str:
    """Where the pod of that name is, if there is only one such place among the files."""
    places = [each.metadata.namespace for each in given.of(Pod) if each.metadata.name == name]
    return places[0] if len(places) == 1 else ""


def _is_new(given: Dump, key: tuple[str, str]) -> bool:
    """A pod that no server has seen: nobody has made its claims."""
    pod = given.find(Pod, key[1], key[0])
    return pod is not None and not pod.metadata.uid


def _over(live: ClusterObjects, given: ClusterObjects) -> ClusterObjects:
    """The live cluster with what the files hold on top."""
    merged: dict[tuple[type, str, str], object] = {}
    for obj in (*live.objects(), *given.objects()):
        merged[(type(obj), obj.metadata.namespace, obj.metadata.name)] = obj
    return ClusterObjects.of(merged.values())


def _explained(world: ClusterObjects, namespace: str, name: str, around: ExplainOptions) -> PodVerdict:
    try:
        verdict = explain_pod(world, namespace, name, around)
    except PodNotFound as problem:
        raise click.ClickException(str(problem)) from None
    if around.nodes:
        verdict = replace(verdict, nodes=tuple(row for row in verdict.nodes if row.node in around.nodes))
    return verdict
