"""Completes the names of a cluster's objects: asks the server that the words so far name, for two seconds at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

# Whoever waits for the shell waits no longer than this; then nothing is offered.
PATIENCE_S = 2.0


class ObjectName(click.ParamType):  # type: ignore[type-arg]
    """The name of an object of a kind; `prefix` stands before each offered name, such as `pod/`."""

    name = "name"

    def __init__(self, kind: str, prefix: str = "") -> None:
        self._kind = kind
        self._prefix = prefix

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        if not self._prefix.startswith(incomplete) and not incomplete.startswith(self._prefix):
            return [CompletionItem(name) for name in self._names(ctx) if name.startswith(incomplete)]
        offered = (f"{self._prefix}{name}" for name in self._names(ctx))
        return [CompletionItem(name) for name in offered if name.startswith(incomplete)]

    def _names(self, ctx: click.Context) -> Iterable[str]:
        # Completion says nothing about what is wrong: the command itself will.
        try:
            return sorted(asyncio.run(_names_of(self._kind, ctx)))
        except Exception:
            return []


async def _names_of(kind: str, ctx: click.Context) -> set[str]:
    from dray.cli.cluster_source import LiveCluster
    from dray.client import DEVICE_CLASSES, NAMESPACES, NODES, PODS
    from dray.client.kinds import Kind

    live = LiveCluster(ctx.params.get("kubeconfig"), ctx.params.get("context") or "")
    kinds: dict[str, Kind[Any]] = {kind.name: kind for kind in (PODS, NODES, DEVICE_CLASSES, NAMESPACES)}
    chosen = kinds[kind]
    namespace = (ctx.params.get("namespace") or live.namespace) if chosen.namespaced else ""
    client = live.connect()
    try:
        async with asyncio.timeout(PATIENCE_S):
            return {each.metadata.name for each in (await client.list(chosen, namespace)).items}
    finally:
        await client.close()


def nodes_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--node NAME`, any number of times; the command gets them as `nodes`."""
    return click.option("--node", "nodes", multiple=True, metavar="NAME", type=ObjectName("Node"), help=help_text)
