"""`dray explain pod/NAME`: why a pod waits, node by node, and what would help; `dray explain job/NAME`: why a workload has no pods."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import click

from dray.api.core import Pod
from dray.api.dra.pod_phase import is_active, is_bound
from dray.cli.cluster_source import LiveCluster, fetch_dump, read_dump, source_options
from dray.cli.main import EXIT_NO
from dray.cli.name_completion import ObjectName, nodes_option
from dray.cli.options import gate_options, gates_from, output_option
from dray.cli.output import show_line, show_painted, wants_colour, write_document
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.dump import Dump
from dray.explain.pod_text import plain, text_of, text_of_many
from dray.explain.verdicts import PodNotFound, PodVerdict
from dray.explain.workload_causes import WORKLOADS, verdict_of_workload, waiting_pods_of
from dray.features import FeatureGates
from dray.sim.pod_explanation import ExplainedCluster, ExplainOptions

_POD_WORDS = ("pod", "pods", "po")


@click.command()
@click.argument("names", nargs=-1, metavar="[pod/NAME | WORKLOAD/NAME]", type=ObjectName("Pod", prefix="pod/"))
@source_options
@click.option(
    "-n",
    "--namespace",
    default=None,
    metavar="NAME",
    type=ObjectName("Namespace"),
    help="Default: as the kubeconfig says.",
)
@click.option("--all", "every", is_flag=True, help="Every pod that waits or is kept from starting, grouped by cause.")
@nodes_option("Look at this node in depth; may be repeated.")
@click.option("--keep-going", is_flag=True, help="Leave out objects that are not valid instead of stopping.")
@output_option("wide shows every node.")
@gate_options
def explain(
    names: tuple[str, ...],
    files: tuple[str, ...],
    live: LiveCluster,
    namespace: str | None,
    every: bool,
    nodes: tuple[str, ...],
    keep_going: bool,
    output: str,
    feature_gates: str,
    emulate: str | None,
) -> None:
    """Why a pod waits, or why it is where it is: per node, per request, per device. Of a workload: why it has no pods, and why they wait.

    Asks the cluster of your kubeconfig, or the objects of -f. Files that hold pods but no nodes are taken for pods that
    are not created yet, and are tried against the live cluster. Exit code 0: the pod has a node or fits one; 1: it waits, or is kept from
    starting.

    \b
    Examples:
      dray explain pod/train -n ml                  live; so does dray explain pod train
      dray explain deployment/web                   why it has no pods, or why they wait
      dray explain --all                            every pod that waits, grouped by cause
      dray explain pod/train -f dump.yaml           from a dump
      dray explain -f train.yaml                    a pod that is not created yet, against the live cluster
      dray explain pod/train -f dump.yaml -f train.yaml --node gpu-7
    """
    pod = _pod_named(names)
    if every and pod is not None:
        raise click.UsageError("--all explains every pod that waits; leave out the name")
    gates = gates_from(feature_gates, emulate)
    given = _read(files, gates, keep_going) if files else Dump()
    if files and not len(given) and not given.problems:
        # Most likely the dump did not work. The answer about another cluster, the one of the kubeconfig, would mislead.
        raise click.UsageError(f"{', '.join(files)}: no objects in it that explain could use")
    is_live = not files or live.is_named or not _is_dump(given)
    world = given.world()
    if is_live:
        found = fetch_dump(live, with_events=True).world()
        world = _over(found, world) if files else found
        namespace = namespace or (live.namespace if pod is not None else None)
    workload = _workload_named(pod, namespace or "default")
    if workload is not None:
        wanted = [(each.metadata.namespace, each.metadata.name) for each in waiting_pods_of(world, *workload)]
    else:
        wanted = _waiting(world, namespace) if every else _wanted(pod, namespace, given)
    unknown = [name for name in nodes if name not in world.nodes_by_name]
    if unknown:
        raise click.UsageError(f"no node named {', '.join(unknown)}")
    new_pods = {key for key in wanted if _is_new(given, key)}
    cluster = ExplainedCluster(world, ExplainOptions(nodes, gates, new_pods=new_pods, is_live=is_live))
    verdicts = [_explained(cluster, *key, nodes) for key in wanted]
    of_workload = verdict_of_workload(world, *workload) if workload is not None else None
    if of_workload is not None and not (of_workload.is_well and verdicts):
        verdicts.insert(0, of_workload)
    paint = _painted if wants_colour(sys.stdout) else plain
    if output in ("json", "yaml"):
        documents = [verdict.document() for verdict in verdicts]
        write_document(documents[0] if len(documents) == 1 and not every else documents, output)
    elif every:
        show_painted(text_of_many(verdicts, _width(), paint) or "no pod waits")
    else:
        texts = [
            text_of(verdict, wide=output == "wide", nodes=nodes, width=_width(), paint=paint) for verdict in verdicts
        ]
        show_painted("\n\n".join(texts))
    for line in given.problems:
        show_line(f"left out: {line}", err=True)
    if not all(verdict.is_well for verdict in verdicts):
        sys.exit(EXIT_NO)


def _read(files: tuple[str, ...], gates: FeatureGates, keep_going: bool) -> Dump:
    from dray.validation import ValidationContext

    return read_dump(files, check=ValidationContext(gates=gates), keep_going=keep_going)


def _painted(role: str, text: str) -> str:
    return click.style(text, **_STYLES[role])


_STYLES: dict[str, dict[str, Any]] = {
    "headline": {"bold": True},
    "remedy": {"fg": "green", "bold": True},
    "label": {"fg": "cyan"},
    "header": {"bold": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
}


def _width() -> int | None:
    """Of the terminal; what goes elsewhere is not wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _pod_named(names: tuple[str, ...]) -> str | None:
    """`pod/train`, `pod train` or `train`."""
    if len(names) == 2 and names[0] in (*_POD_WORDS, *WORKLOADS):
        return f"{names[0]}/{names[1]}"
    if len(names) > 1:
        raise click.UsageError(f"one pod at a time, for example pod/{names[0]}; --all explains all that wait")
    return names[0] if names else None


def _workload_named(given: str | None, namespace: str) -> tuple[str, str, str] | None:
    """Kind, namespace and name; None for a pod."""
    word, _, name = (given or "").partition("/")
    return (WORKLOADS[word], namespace, name) if word in WORKLOADS and name else None


def _waiting(world: ClusterObjects, namespace: str | None) -> list[tuple[str, str]]:
    """Without a node, or kept from starting on it."""
    from dray.explain.doctor import held_up_pods

    waiting = [pod for pod in world.pods if not is_bound(pod) and is_active(pod)]
    return [
        (pod.metadata.namespace, pod.metadata.name)
        for pod in (*waiting, *held_up_pods(world))
        if namespace in (None, pod.metadata.namespace)
    ]


def _is_dump(given: Dump) -> bool:
    """Objects of a cluster, and not just manifests that somebody is about to apply to one."""
    if any(given.objects.get(kind) for kind in ("Node", "ResourceSlice")):
        return True
    return any(pod.metadata.uid for pod in given.of(Pod))


def _wanted(pod: str | None, namespace: str | None, given: Dump) -> list[tuple[str, str]]:
    if pod is not None:
        kind, _, name = pod.rpartition("/")
        if kind and kind not in _POD_WORDS:
            raise click.UsageError(
                f"{pod}: only pods can be explained, for example pod/{name}, and workloads that make them"
            )
        if not name:
            raise click.UsageError("which pod? Name one, for example pod/train")
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


def _explained(cluster: ExplainedCluster, namespace: str, name: str, nodes: Collection[str]) -> PodVerdict:
    try:
        verdict = cluster.explain(namespace, name)
    except PodNotFound as problem:
        raise click.ClickException(str(problem)) from None
    if nodes:
        verdict = replace(verdict, nodes=tuple(row for row in verdict.nodes if row.node in nodes))
    return verdict
