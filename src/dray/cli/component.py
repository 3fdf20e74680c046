"""What the scheduler and the controller manager have in common as processes: whom they talk to, where they say how they
are, and what they do when they no longer lead."""

from __future__ import annotations

import contextlib
import logging
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from dray import __version__
from dray.cli.gates import gate_options, gates_from
from dray.cli.main import BrokenWorld
from dray.client import (
    Client,
    Connection,
    KubeconfigError,
    LeaderElector,
    LeadershipLost,
    LeaseTiming,
    load_connection,
)
from dray.event_loop import run_loop
from dray.features import FeatureGates
from dray.telemetry import Registry, set_up_logging

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Component:
    """`address` is for health and metrics; port 0 serves neither."""

    connection: Connection
    gates: FeatureGates
    address: tuple[str, int]

    def client(self, name: str) -> Client:
        from dray.client.https import HttpsTransport

        return Client(HttpsTransport(self.connection), user_agent=f"{name}/{__version__}")

    @contextlib.asynccontextmanager
    async def health(self, registry: Registry, checks: Mapping[str, Callable[[], bool]]) -> AsyncIterator[None]:
        """Health and metrics are served meanwhile."""
        host, port = self.address
        if not port:
            yield
            return
        from dray.cli.health_server import health_server

        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(health_server(host, port, registry, dict(checks)))
            except OSError as error:
                raise BrokenWorld(f"cannot serve health on {host}:{port}: {error}") from None
            yield


async def lead(
    client: Client,
    lease: str,
    timing: LeaseTiming,
    work: Callable[[], Coroutine[Any, Any, None]],
    namespace: str = "kube-system",
) -> None:
    """Do `work` while holding the lease; `LeadershipLost` when it is gone."""
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    elector = LeaderElector(client.named("leader-election"), lease, identity, namespace=namespace, timing=timing)
    await elector.run(work)


def component_options(secure_port: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options of a part of the control plane, which gets them as `component`."""
    options = (
        click.option(
            "--kubeconfig", type=click.Path(dir_okay=False), help="Default: $KUBECONFIG, ~/.kube/config, the pod's own."
        ),
        click.option("--context", default="", help="Context of the kubeconfig; default: its current one."),
        click.option("--bind-address", default="127.0.0.1", show_default=True, help="For /healthz and /metrics."),
        click.option(
            "--secure-port", default=secure_port, show_default=True, help="0 serves neither health nor metrics."
        ),
        gate_options,
        click.option("-v", "--verbosity", default=0, help="4 and more shows decisions."),
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_component(**given: Any) -> None:
            names = ("kubeconfig", "context", "bind_address", "secure_port", "feature_gates", "emulate", "verbosity")
            command(component=_read(**{name: given.pop(name) for name in names}), **given)

        decorated: Callable[..., None] = with_component
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def _read(
    *,
    kubeconfig: str | None,
    context: str,
    bind_address: str,
    secure_port: int,
    feature_gates: str,
    emulate: str | None,
    verbosity: int,
) -> Component:
    set_up_logging(verbosity)
    gates = gates_from(feature_gates, emulate)
    try:
        connection = load_connection(kubeconfig, context)
    except KubeconfigError as error:
        raise BrokenWorld(str(error)) from None
    return Component(connection, gates, (bind_address, secure_port))


def run_as_leader(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do `work` to its end; begin anew whenever the lease was lost."""
    while True:
        try:
            run_loop(work())
            return
        except LeadershipLost as error:
            # The API server was away for long, or somebody else leads: begin anew, and wait for the lease.
            log.warning("%s; standing for election again", error)
        except KubeconfigError as error:
            raise BrokenWorld(str(error)) from None
