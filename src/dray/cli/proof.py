"""`dray proof`: follows a cluster, or reads what was recorded of one, and names every promise that was broken."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import click
import msgspec

from dray.api.errors import DecodeError
from dray.cli.cluster_source import LiveCluster, live_options
from dray.cli.main import EXIT_NO, BrokenWorld
from dray.cli.output import Coloured, show_line
from dray.client import NODES, ApiError, CredentialsError, KubeconfigError, ServerUnreachable
from dray.event_loop import until_signalled
from dray.proof import History, ObjectPast, ObjectPasts, OnlineCheck, Violation, check, watch_cluster
from dray.proof.history import Record, line_of
from dray.proof.violation import PROMISES

Report = Callable[[Violation, list[ObjectPast]], None]


@click.command()
@live_options
@click.option(
    "-f", "--filename", "recorded", type=click.Path(dir_okay=False), help="Check a recording; follow no cluster."
)
@click.option(
    "--for",
    "for_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="How long; default: until Ctrl-C.",
)
@click.option("--record", type=click.Path(dir_okay=False), help="Also write all that was seen to this new file.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: one object for each broken promise.",
)
def proof(live: LiveCluster, recorded: str | None, for_s: float, record: str | None, output: str) -> None:
    """Follow a cluster and name every promise it breaks, with what happened before. Exit code 1 if any was broken.

    Works with any Kubernetes API server that serves resource.k8s.io; it lists and watches pods, nodes, claims and slices, and never writes.

    \b
    Examples:
      dray proof                                  the cluster of your kubeconfig, until Ctrl-C
      dray proof --for 600 --record night.ndjson  ten minutes, and keep what was seen
      dray proof -f night.ndjson                  the same again, without the cluster
    """
    report = _print_json if output == "json" else _print_text
    if recorded is not None:
        if live.is_named or record or for_s:
            raise click.UsageError(
                "-f reads a recording: --kubeconfig, --context, --for and --record do not go with it"
            )
        broken = _check_recording(Path(recorded), report)
    else:
        broken = _check_cluster(live, for_s, record, report)
    if broken:
        sys.exit(EXIT_NO)


def _check_recording(path: Path, report: Report) -> int:
    try:
        history = History.load(path)
    except OSError as problem:
        raise click.UsageError(f"{path}: {problem.strerror}") from None
    except msgspec.DecodeError as problem:
        raise click.UsageError(f"{path} is not a recording of dray proof: {problem}") from None
    pasts = ObjectPasts(changes_of_one=None, deleted_objects=len(history))
    try:
        for each in history.records:
            pasts.take(each)
        found = check(history)
    except DecodeError as problem:
        raise click.UsageError(f"{path} holds an object that cannot be read: {problem}") from None
    for violation in found.violations:
        report(violation, pasts.of(violation))
    _print_result(len(found.violations), found.events, found.changes)
    return len(found.violations)


def _check_cluster(live: LiveCluster, for_s: float, record: str | None, report: Report) -> int:
    with ExitStack() as stack:
        following = OnlineCheck(lambda violation: report(violation, following.pasts.of(violation)))
        sink = _Recorder(following, stack.enter_context(_new_file(record))) if record else following
        try:
            asyncio.run(_follow(live, sink, following, for_s))
        except (KubeconfigError, CredentialsError, ServerUnreachable, ApiError) as problem:
            raise BrokenWorld(str(problem)) from problem
    _print_result(following.violations, following.events, following.objects)
    return following.violations


def _new_file(path: str) -> IO[bytes]:
    """A recording is never written over: it may be the only witness."""
    try:
        return open(path, "xb")
    except OSError as problem:
        raise click.UsageError(f"--record {path}: {problem.strerror}") from None


class _Recorder:
    """Writes each record down before it is looked at."""

    def __init__(self, inner: OnlineCheck, file: IO[bytes]) -> None:
        self._inner = inner
        self._file = file

    def add(self, record: Record) -> None:
        self._file.write(line_of(record))
        self._file.flush()
        self._inner.add(record)


async def _follow(live: LiveCluster, sink: OnlineCheck | _Recorder, following: OnlineCheck, for_s: float) -> None:
    client = live.connect("dray-proof")
    try:
        await client.list(NODES)  # Fails at once on wrong credentials or address; the watch would retry for ever.
        click.echo("watching; end with Ctrl-C" if not for_s else f"watching for {for_s:g} s", err=True)
        await until_signalled(watch_cluster(client, following, sink, for_s=for_s))
    finally:
        await client.close()


def _print_result(broken: int, changes: int, objects: int) -> None:
    found = f"{broken} {'promise' if broken == 1 else 'promises'} broken" if broken else "every promise was kept"
    click.echo(f"{found} ({changes} changes, {objects} objects)", err=True)


def _print_text(violation: Violation, pasts: list[ObjectPast]) -> None:
    show_line(Coloured("broken", "red"), f": {violation.subject}: {violation.message} [{violation.rule}]")
    click.echo(f"  The promise: {PROMISES[violation.rule]}. Broken at revision {violation.revision}.")
    for past in pasts:
        click.echo(f"  {past.key}")
        for change in past.changes:
            click.echo(f"    {change.revision:>9}  {change.writer or '-':<24} {change.state}")


def _print_json(violation: Violation, pasts: list[ObjectPast]) -> None:
    document = {
        "rule": violation.rule,
        "promise": PROMISES[violation.rule],
        "revision": violation.revision,
        "subject": violation.subject,
        "message": violation.message,
        "objects": [
            {
                "resource": past.key.resource,
                "namespace": past.key.namespace,
                "name": past.key.name,
                "changes": [
                    {"revision": each.revision, "writer": each.writer, "state": each.state} for each in past.changes
                ],
            }
            for past in pasts
        ],
    }
    click.echo(msgspec.json.encode(document).decode())
