"""The `dray` command group. Exit codes: 0 yes, 1 no, 2 wrong usage, 3 broken world, 130 interrupted."""

# ruff: noqa: E402
from dray.cli.keyboard_interrupt import (
    EXIT_INTERRUPTED,
    as_usual,
    leave_quietly_while_importing,
)

leave_quietly_while_importing()

import difflib
import errno
import gc
import importlib
import os
import sys

import click

from dray import __version__
from dray.cli.output import show_hidden_characters

# Modules and the objects of a cluster stay until a command ends. Looking through them again and again would take a quarter of a
# short command's time. Commands that only read look less often still (`cluster_source`), and servers set their own (`dray.event_loop`).
gc.set_threshold(50_000, 20, 100)

# One row per command: where it lives ("module:attribute" below dray.cli) and its line in `dray --help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "apiserver": ("apiserver:apiserver", "Run the API server alone, without controllers."),
    "backup": ("backup:backup", "Copy a cluster into a file while it runs."),
    "cel": ("cel:cel", "Evaluate a device selector over slices: matches, misses and why, cost."),
    "completion": ("completion:completion", "Print shell completion for bash, zsh or fish."),
    "bench": ("bench:bench", "Measure whole clusters with the benchmark workloads."),
    "controller-manager": ("controller_manager:controller_manager", "Run the control loops against an API server."),
    "allocate": ("allocate:allocate", "Answer allocation scenarios, one JSON object per line."),
    "explain": (
        "explain:explain",
        "Why a pod waits or where it fits: per node, request and device, and what would help.",
    ),
    "demo": ("demo:demo", "Tell the KEPs' stories on a live cluster."),
    "dashboard": ("dashboard:dashboard", "Show a cluster in the browser: devices, claims, ledger, waiting pods."),
    "devices": ("devices:devices", "What is published, taken and free, and by whom."),
    "doctor": ("doctor:doctor", "Known traps of a cluster, one line each with the fix."),
    "driver": ("driver:driver", "Run a driver that comes with Dray on a node."),
    "kubelet": ("kubelet:kubelet", "Run the node agent of one node."),
    "dump": ("dump:dump", "Print the objects that the other commands read with -f."),
    "ledger": ("ledger:ledger", "What each node can give, what pods and claims take from it, and why."),
    "kubeconfig": ("kubeconfig:kubeconfig", "Make a kubeconfig for another user, a part of the cluster or a node."),
    "lint": ("lint:lint", "Check manifests without a server: validation, unknown fields, spelling hints."),
    "proof": ("proof:proof", "Follow any cluster and name every promise it breaks, with what happened before."),
    "restore": ("backup:restore", "Make a new cluster's store from a backup, as of any moment that was copied."),
    "scheduler": ("scheduler:scheduler", "Run the scheduler against an API server."),
    "list": ("clusters:list_clusters", "The clusters that dray up runs on this machine."),
    "down": ("clusters:down", "End clusters of dray up."),
    "up": ("up:up", "Start a whole cluster in one process."),
    "simulate": (
        "simulate:simulate",
        "Place a dump's waiting pods offline: what-if with more nodes or other policies.",
    ),
    "top": ("top:top", "Devices, nodes and waiting pods, live in the terminal."),
    "vectors": ("vectors:vectors", "Answer conformance vectors from standard input, one JSON object per line."),
}

EXIT_NO = 1
EXIT_BROKEN_WORLD = 3


class BrokenWorld(click.ClickException):
    """The command was right, but something outside is not: no server, no permission, a full disk."""

    exit_code = EXIT_BROKEN_WORLD


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        # A library that is being loaded may swallow a KeyboardInterrupt.
        leave_quietly_while_importing()
        try:
            command = getattr(importlib.import_module(f"dray.cli.{module}"), attribute)
        finally:
            as_usual()
        _collect_from_now_on()
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            meant = f" (Did you mean '{near[0]}'?)" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dray")
def cli() -> None:
    """Kubernetes Dynamic Resource Allocation, whole, in Python."""


def main() -> None:
    """Entry point of `dray` and of `kubectl dray`."""
    try:
        _run()
    finally:
        # Python ends by looking for garbage among all that is left, a sixth of a short command's time. The process's memory goes at once anyway.
        gc.freeze()


def _collect_from_now_on() -> None:
    """Among the modules of a command is no garbage: `main` has them loaded without a search, and none looks through them later."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _run() -> None:
    gc.disable()
    as_usual()
    show_hidden_characters()
    program = "kubectl dray" if sys.argv[0].endswith("kubectl-dray") else "dray"
    try:
        code = cli.main(prog_name=program, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.Abort:
        click.echo("Interrupted.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(EXIT_NO)
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        click.echo(f"Error: {problem.strerror}", err=True)
        # What is left in the buffer cannot be written either; leaving without it keeps Python from trying.
        os._exit(EXIT_BROKEN_WORLD)
