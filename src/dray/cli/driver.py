"""`dray driver NAME`: one of the shipped drivers, on one node."""

import asyncio
import sys
from pathlib import Path

import click


class DriverGroup(click.Group):
    """One command per shipped driver, `test` for any driver, and `webhook` for the parameters of the shipped ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from dray.driver.example import DRIVERS, DRIVERS_OF_HARDWARE

        return [*sorted(DRIVERS | DRIVERS_OF_HARDWARE), *OTHERS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from dray.driver.example import DRIVERS, DRIVERS_OF_HARDWARE

        if cmd_name in OTHERS:
            return OTHERS[cmd_name]
        known = DRIVERS | DRIVERS_OF_HARDWARE
        if cmd_name not in known:
            return None

        @click.command(cmd_name, context_settings={"ignore_unknown_options": True, "help_option_names": []})
        @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
        def start(arguments: tuple[str, ...]) -> None:
            from dray.cli.main import BrokenWorld
            from dray.client import ApiError, KubeconfigError, ServerUnreachable
            from dray.driver import run

            try:
                run(known[cmd_name](), arguments)
            except (KubeconfigError, ServerUnreachable, ApiError, OSError) as error:
                raise BrokenWorld(str(error)) from error

        start.short_help = f"Serve the {cmd_name} driver on a node."
        return start


@click.command(epilog="Example: dray driver test examples/driver/fan_driver.py")
@click.argument("target", metavar="DRIVER|MODULE|FILE.py|COMMAND")
@click.option(
    "--timeout",
    "timeout_s",
    default=15.0,
    show_default=True,
    type=click.FloatRange(1, 600),
    help="Seconds for each step.",
)
@click.option(
    "--only", default="", metavar="TEXT", help="After registration and slices, only checks whose names contain this."
)
@click.option("-v", "--verbose", count=True)
def test(target: str, timeout_s: float, only: str, verbose: int) -> None:
    """Check any driver over the real protocol: registration, slices, claims, crashes, bad input, and what its slices use.

    The driver runs as a process of its own against a cluster in this one. A COMMAND gets --kubeconfig, --node-name,
    --kubelet-root and --cdi-dir, unless it says where they belong with {kubeconfig}, {node}, {root} and {cdi}.
    """
    import logging

    from dray.telemetry import set_up_logging
    from dray.testing.driver_checks import check_driver
    from dray.testing.driver_process import Target, UnknownTarget

    set_up_logging(verbose)
    if not verbose:
        logging.getLogger("dray").setLevel(logging.CRITICAL)
    try:
        parsed = Target.parse(target)
    except UnknownTarget as error:
        raise click.UsageError(str(error)) from None

    async def run() -> int:
        failed = warned = 0
        async for verdict in check_driver(parsed, timeout_s, only):
            mark = "FAIL" if verdict.problem else "skip" if verdict.skipped else "warn" if verdict.warning else "ok"
            click.echo(f"{mark:<5}{verdict.check}")
            if text := verdict.problem or verdict.skipped or verdict.warning:
                click.echo(f"     {text}")
            failed += bool(verdict.problem)
            warned += bool(verdict.warning)
        click.echo(_summary(failed, warned))
        return failed

    sys.exit(1 if asyncio.run(run()) else 0)


def _summary(failed: int, warned: int) -> str:
    warnings = f"{warned} {'warning' if warned == 1 else 'warnings'}"
    if failed:
        checks = f"{failed} {'check' if failed == 1 else 'checks'} failed"
        return f"{checks}, {warnings}" if warned else checks
    return f"the driver conforms, with {warnings}" if warned else "the driver conforms"


@click.command(
    epilog="Example: dray driver webhook --listen 127.0.0.1:8443 --tls-cert-file hook.crt --tls-private-key-file hook.key"
)
@click.option("--listen", default="127.0.0.1:0", show_default=True, help="HOST:PORT; port 0 takes a free one.")
@click.option("--tls-cert-file", "certificate", required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--tls-private-key-file", "key", required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--ready-file", default="", help="Gets the URL once the webhook is ready.")
def webhook(listen: str, certificate: str, key: str, ready_file: str) -> None:
    """Serve an admission webhook that checks the opaque parameters of Dray's own drivers.

    It answers AdmissionReviews about ResourceClaims, ResourceClaimTemplates and DeviceClasses, until SIGTERM.
    """
    import ssl

    from dray.cli.main import BrokenWorld

    try:
        asyncio.run(_serve_webhook(listen, Path(certificate), Path(key), ready_file))
    except (OSError, ssl.SSLError) as error:
        raise BrokenWorld(str(error)) from error


async def _serve_webhook(listen: str, certificate: Path, key: Path, ready_file: str) -> None:
    from dray.cli.options import parse_address
    from dray.driver.example import DRIVERS, DRIVERS_OF_HARDWARE
    from dray.driver.parameter_webhook import ParameterWebhook
    from dray.http.server import url_of
    from dray.signals import stop_signal

    drivers = (DRIVERS | DRIVERS_OF_HARDWARE).values()
    serving = ParameterWebhook((make() for make in drivers), certificate, key)
    url = url_of("https", *await serving.start(*parse_address(listen)))
    click.echo(f"the webhook listens at {url}/")
    if ready_file:
        Path(ready_file).write_text(url)
    await stop_signal().wait()
    await serving.stop()


OTHERS = {"test": test, "webhook": webhook}


@click.group(cls=DriverGroup)
def driver() -> None:
    """Run a driver that comes with Dray on a node, test any driver, or check parameters when they are written.

    Example: dray driver gpu --kubeconfig admin.kubeconfig --node-name worker-1 --kubelet-root ./worker-1 --cdi-dir ./cdi
    """
