"""`dray demo`: the KEPs' stories, live."""

import sys

import click

from dray.cli.main import EXIT_NO


@click.command(epilog="Example: dray demo --only 7 --only 11")
@click.option("--only", "only", multiple=True, type=int, metavar="NUMBER", help="Tell only these stories.")
def demo(only: tuple[int, ...]) -> None:
    """Tell the KEPs' stories on a live cluster: what is applied, what was decided, what the ledger says.

    Exit status 0 means that every placement and every number came as it must.
    """
    import time

    from dray.kubelet.node import NodeDescription
    from dray.testing.running_cluster import cluster
    from dray.testing.user_stories import StoryRunner, load_stories

    started = time.monotonic()
    stories = [(number, story) for number, story in enumerate(load_stories(), 1) if not only or number in only]
    if not stories:
        raise click.UsageError(f"there are stories 1 to {len(load_stories())}")
    big = NodeDescription.simple("big", cpu="64", memory="256Gi")
    with cluster(nodes=2, devices=("gpu", "nic"), simulated=(big,)) as running:
        click.echo(f"A cluster with two nodes that have GPUs and network cards, and one big node: {running.url}")
        runner = StoryRunner(running, click.echo)
        runner.prepare()
        told = [runner.run(number, story) for number, story in stories]
    click.echo(f"\n{sum(told)} of {len(told)} stories went as expected, {time.monotonic() - started:.0f} s")
    sys.exit(0 if all(told) else EXIT_NO)
