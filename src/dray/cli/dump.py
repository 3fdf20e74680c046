"""`dray dump`: the objects of a cluster that the other commands read, for `-f`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click
import msgspec
import yaml

from dray.cli.cluster_source import LiveCluster, live_options
from dray.cli.main import BrokenWorld
from dray.cli.output import show_line
from dray.client import ApiError, CredentialsError, KubeconfigError, ServerUnreachable
from dray.client.cluster_listing import list_cluster_documents
from dray.explain.dump import without_secrets

Document = dict[str, Any]


@click.command(epilog="Example: dray dump > dump.yaml && dray explain --all -f dump.yaml")
@live_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="json is written and read many times faster.",
)
def dump(live: LiveCluster, output: str) -> None:
    """Print the objects that explain, simulate, doctor and the other commands read with -f.

    Nodes, pods, claims, templates, slices, classes, taint rules, namespaces, priority classes, quotas and events. Secrets
    and config maps are not asked for. Commands, arguments and environment of containers are left out, since they may hold
    passwords; so are managed fields and the annotation of kubectl apply.
    """
    items: list[Document] = []
    try:
        asyncio.run(_fetch(live, items))
    except (ApiError, CredentialsError, KubeconfigError, ServerUnreachable) as problem:
        raise BrokenWorld(str(problem)) from None
    _write_json(items) if output == "json" else _write_yaml(items)


async def _fetch(live: LiveCluster, items: list[Document]) -> None:
    client = live.connect()
    try:
        found, missing = await list_cluster_documents(client)
    finally:
        await client.close()
    items += map(without_secrets, found)
    for line in missing:
        show_line(f"left out: {line}", err=True)


def _write_json(items: list[Document]) -> None:
    """One object a line."""
    sys.stdout.write('{"apiVersion":"v1","kind":"List","items":[\n')
    for number, item in enumerate(items):
        sys.stdout.write(("," if number else "") + msgspec.json.encode(item).decode() + "\n")
    sys.stdout.write("]}\n")


def _write_yaml(items: list[Document]) -> None:
    """As kubectl prints a list, so that it is read fast."""
    sys.stdout.write("apiVersion: v1\nitems:\n" if items else "apiVersion: v1\nitems: []\n")
    for item in items:
        sys.stdout.write(kubectl_yaml([item]))
    sys.stdout.write("kind: List\nmetadata: {}\n")


def kubectl_yaml(document: Any) -> str:
    """Block style, texts of several lines after a bar, and no line is folded."""
    return str(yaml.dump(document, Dumper=_KubectlDumper, default_flow_style=False, width=2**30))


class _KubectlDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """The C library where it is there."""


def _represent_text(dumper: Any, text: str) -> yaml.ScalarNode:
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
    return node


_KubectlDumper.add_representer(str, _represent_text)
