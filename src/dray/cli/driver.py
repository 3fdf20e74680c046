"""`dray driver NAME`: one of the shipped drivers, on one node."""

import click


class DriverGroup(click.Group):
    """One command per shipped driver, and `test` for any driver."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from dray.driver.example import DRIVERS

        return [*sorted(DRIVERS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from dray.driver.example import DRIVERS

        if cmd_name not in DRIVERS:
            return None

        @click.command(cmd_name, context_settings={"ignore_unknown_options": True, "help_option_names": []})
        @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
        def start(arguments: tuple[str, ...]) -> None:
            from dray.cli.main import BrokenWorld
            from dray.client import ApiError, KubeconfigError, ServerUnreachable
            from dray.driver import run

            try:
                run(DRIVERS[cmd_name](), arguments)
            except (KubeconfigError, ServerUnreachable, ApiError, OSError) as error:
                raise BrokenWorld(str(error)) from error

        start.short_help = f"Serve the {cmd_name} driver on a node."
        return start


@click.group(cls=DriverGroup)
def driver() -> None:
    """Run a driver that comes with Dray on a node.

    Example: dray driver gpu --kubeconfig admin.kubeconfig --node-name worker-1 --kubelet-root ./worker-1 --cdi-dir ./cdi
    """
