"""Options that several commands share: feature gates, and how `dray up` and `dray apiserver` serve the API."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.atomic_files import write_private
from dray.cli.main import BrokenWorld
from dray.features import RELEASES, FeatureGateError, FeatureGates
from dray.telemetry import MOST_VERBOSE

if TYPE_CHECKING:
    from dray.kubeconfig_file import ClusterEntry


def gate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--emulate", type=click.Choice(RELEASES), help="Gates as in this Kubernetes release.")(
        command
    )
    return click.option("--feature-gates", default="", metavar="A=true,B=false", help="Switch gates on top of that.")(
        command
    )


def output_option(wide: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`-o table|wide|json|yaml`; `wide` is the sentence that says what it adds."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "wide", "json", "yaml"]),
        default="table",
        show_default=True,
        help=wide,
    )


def verbosity_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-v 5`, or `-v` alone for 1."""
    return click.option(
        "-v",
        "--verbosity",
        type=click.IntRange(0, MOST_VERBOSE),
        default=0,
        is_flag=False,
        flag_value=1,
        metavar="N",
        help="4 shows decisions and calls, 5 each step, 6 chosen devices, 7 why each other device was not.",
    )(command)


def gates_from(feature_gates: str, emulate: str | None) -> FeatureGates:
    try:
        gates = FeatureGates.for_release(emulate) if emulate else FeatureGates.default()
        return FeatureGates.parse(feature_gates, gates) if feature_gates else gates
    except FeatureGateError as problem:
        raise click.UsageError(str(problem)) from None


@dataclass(frozen=True, slots=True)
class Serving:
    """Where to serve, what is kept where, and as which release."""

    host: str
    port: int
    data: Path | None
    store: str
    kubeconfig: Path | None
    ready_file: Path | None
    gates: FeatureGates
    minor: str
    emulates: bool
    runtime_config: str

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names and addresses by which the server is reached."""
        if self.host not in ("0.0.0.0", "::"):
            return ("127.0.0.1", self.host)
        name = socket.gethostname()
        with contextlib.suppress(OSError):
            found = (str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
            return tuple(dict.fromkeys(("127.0.0.1", name, *found)))
        return ("127.0.0.1", name)

    @contextlib.contextmanager
    def data_directory(self) -> Iterator[Path]:
        """The given one, or one that is gone afterwards."""
        if self.data is not None:
            yield self.data.absolute()
            return
        with tempfile.TemporaryDirectory(prefix="dray-", ignore_cleanup_errors=True) as directory:
            yield Path(directory)

    def write_kubeconfig(self, path: Path, entry: ClusterEntry) -> None:
        """Adds the cluster to the file and makes it current; other clusters in it stay."""
        from dray.kubeconfig_file import add_cluster

        with _kubeconfig_errors(path):
            add_cluster(path, entry)

    def check_kubeconfig(self, name: str) -> None:
        """Refuses a file that is no kubeconfig, or has that name for another cluster, before anything is started."""
        from dray.kubeconfig_file import check_cluster

        if self.kubeconfig is not None:
            with _kubeconfig_errors(self.kubeconfig):
                check_cluster(self.kubeconfig, name)

    def cannot_listen(self, error: OSError) -> BrokenWorld:
        return BrokenWorld(f"--listen {self.host}:{self.port}: {error.strerror or error}")

    def write_url(self, url: str) -> None:
        if self.ready_file is not None:
            write_private(self.ready_file, f"{url}\n".encode())


@contextlib.contextmanager
def _kubeconfig_errors(path: Path) -> Iterator[None]:
    from dray.kubeconfig_file import KubeconfigError

    try:
        yield
    except KubeconfigError as error:
        raise BrokenWorld(f"--kubeconfig {path}: {error}; the file is left as it is") from None
    except OSError as error:
        raise BrokenWorld(f"--kubeconfig {path}: {error.strerror or error}") from None


_FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        help="Keep the store and keys here (default: a temporary directory).",
    ),
    click.option(
        "--store",
        default="",
        metavar="URL",
        help="sqlite:///FILE or etcd://HOST:PORT[,HOST:PORT...] (default: SQLite in the data directory).",
    ),
    click.option("--kubeconfig", type=_FILE, help="Add the administrator's context to this file once ready."),
    click.option("--ready-file", type=_FILE, help="Write the server's URL here once ready."),
    gate_options,
    click.option(
        "--runtime-config",
        default="",
        metavar="KEY=BOOL,...",
        help="Turn API versions on or off, such as api/all=true.",
    ),
)


def serving_options(listen: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options of a command that serves the API, by default at `listen`; it gets them as `serving`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_serving(**given: Any) -> None:
            names = (
                "listen",
                "data",
                "store",
                "kubeconfig",
                "ready_file",
                "feature_gates",
                "emulate",
                "runtime_config",
            )
            command(serving=_read(**{name: given.pop(name) for name in names}), **given)

        decorated: Callable[..., None] = with_serving
        for option in reversed(_OPTIONS):
            decorated = option(decorated)
        return click.option(
            "--listen",
            default=listen,
            metavar="HOST:PORT",
            show_default=True,
            help="Where to serve HTTPS; port 0 takes a free one.",
        )(decorated)

    return decorate


def _read(*, listen: str, feature_gates: str, emulate: str | None, runtime_config: str, **places: Any) -> Serving:
    from dray.api.served_versions import BadRuntimeConfig, served_versions

    host, port = parse_address(listen)
    gates = gates_from(feature_gates, emulate)
    try:
        served_versions(runtime_config, gates)
    except BadRuntimeConfig as error:
        raise click.UsageError(str(error)) from None
    minor = (emulate or RELEASES[-1]).partition(".")[2]
    return Serving(
        host, port, gates=gates, minor=minor, emulates=emulate is not None, runtime_config=runtime_config, **places
    )


def parse_address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--listen {listen}: write HOST:PORT, as in 127.0.0.1:6443")
    return host.strip("[]") or "127.0.0.1", int(port)
