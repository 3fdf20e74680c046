"""What the scheduler and the controller manager share as processes: their connection, health and metrics, and leader election."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from dray import __version__
from dray.apiserver.security.certificates import Authority
from dray.cli.main import BrokenWorld
from dray.cli.options import gate_options, gates_from, verbosity_option
from dray.client import Client, Connection, KubeconfigError, LeaderElector, LeadershipLost, LeaseTiming, load_connection
from dray.event_loop import run_loop
from dray.features import FeatureGates
from dray.http.health import HealthAndMetrics, HealthCheck, HealthChecks
from dray.http.server import HttpServer, server_tls
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
        from dray.client.older_resource_api import OlderResourceApi

        return Client(OlderResourceApi(HttpsTransport(self.connection)), user_agent=f"{name}/{__version__}")

    @contextlib.asynccontextmanager
    async def health(self, registry: Registry, checks: Mapping[str, Callable[[], bool]]) -> AsyncIterator[None]:
        """Health and metrics are served meanwhile."""
        host, port = self.address
        if not port:
            yield
            return
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
        verbosity_option,
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


Checks = Mapping[str, Callable[[], bool]]


@asynccontextmanager
async def health_server(host: str, port: int, registry: Registry, checks: Checks) -> AsyncIterator[int]:
    """Serves `/healthz`, `/readyz`, `/livez` and `/metrics` over TLS while the block runs; gives the port.

    The certificate is self-signed and made on the spot.
    """
    health = HealthChecks({name: _as_coroutine(check) for name, check in checks.items()})
    server = HttpServer(HealthAndMetrics(health, registry.text), _self_signed(host))
    _, found = await server.start(host, port)
    try:
        yield found
    finally:
        await server.stop()


def _as_coroutine(check: Callable[[], bool]) -> HealthCheck:
    async def passes() -> bool:
        return check()

    return passes


def _self_signed(host: str) -> ssl.SSLContext:
    pair = Authority.create("dray-component").issue_server("dray-component", [host, "localhost", "127.0.0.1"])
    context = server_tls()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "server.pem"
        file.touch(0o600)
        file.write_bytes(pair.certificate_pem + pair.key_pem)
        context.load_cert_chain(file)
    return context
