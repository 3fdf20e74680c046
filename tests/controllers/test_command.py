"""`dray controller-manager` as people run it: a process, a kubeconfig, a Lease, signals."""

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import sys

import aiohttp
import pytest
from click.testing import CliRunner

from dray.cli.controller_manager import controller_manager
from dray.client import LEASES, NAMESPACES, SERVICE_ACCOUNTS
from tests.builders.manifests import a_namespace
from tests.controllers.cluster import Cluster
from tests.controllers.serving import EmbeddedServer
from tests.waiting import eventually


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextlib.asynccontextmanager
async def the_command(*arguments):
    code = "from dray.cli.main import main; main()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, "controller-manager", *arguments), stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
async def kubeconfig(tmp_path):
    server = await EmbeddedServer.start(tmp_path / "server")
    transport = await server.https()
    path = tmp_path / "kubeconfig"
    path.write_text(server.running.credentials.admin_kubeconfig(server.url))
    cluster = Cluster(transport)
    yield path, cluster
    await transport.close()
    await server.stop()


async def furnished(cluster, name):
    await cluster.client.create(NAMESPACES, a_namespace(name))

    async def look():
        return await cluster.client.find(SERVICE_ACCOUNTS, "default", name)

    await cluster.eventually(look, 30)


async def renewed(cluster, times):
    """The leader has renewed its lease so often: whoever else wants it has asked for it meanwhile."""
    seen = set()

    async def look():
        seen.add((await cluster.client.get(LEASES, "kube-controller-manager", "kube-system")).spec.renew_time)
        return len(seen) > times

    await cluster.eventually(look)


async def called_in_vain(port, times):
    """Somebody has tried to connect so often, and was turned away."""
    calls = 0

    def refuse(_, writer):
        nonlocal calls
        calls += 1
        writer.transport.abort()

    async with await asyncio.start_server(refuse, "127.0.0.1", port):
        await eventually(lambda: calls >= times, "calls to a server that is not there")


async def stopped(process):
    process.send_signal(signal.SIGTERM)
    _, complaint = await asyncio.wait_for(process.communicate(), 15)
    assert process.returncode == 0, complaint.decode()


async def test_it_leads_serves_and_hands_over(kubeconfig):
    path, cluster = kubeconfig
    port = free_port()
    arguments = ("--kubeconfig", str(path), "--leader-elect-retry-period", "0.3")
    async with the_command(*arguments, "--secure-port", str(port)) as first:
        await furnished(cluster, "one")
        lease = await cluster.client.get(LEASES, "kube-controller-manager", "kube-system")
        holder = lease.spec.holder_identity
        assert holder
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
            async with session.get(f"https://127.0.0.1:{port}/healthz") as answer:
                assert (answer.status, await answer.text()) == (200, "ok")
            async with session.get(f"https://127.0.0.1:{port}/healthz?verbose") as answer:
                assert "[+]ping ok" in await answer.text()
            async with session.get(f"https://127.0.0.1:{port}/metrics") as answer:
                assert 'workqueue_adds_total{name="serviceaccount"}' in await answer.text()
        async with the_command(*arguments, "--secure-port", "0") as second:
            await renewed(cluster, times=4)
            lease = await cluster.client.get(LEASES, "kube-controller-manager", "kube-system")
            assert lease.spec.holder_identity == holder
            await stopped(first)
            await furnished(cluster, "two")
            lease = await cluster.client.get(LEASES, "kube-controller-manager", "kube-system")
            assert lease.spec.holder_identity not in ("", holder)
            await stopped(second)


async def test_it_stands_for_election_again_when_it_lost_its_lease(kubeconfig):
    path, cluster = kubeconfig
    timing = ("--leader-elect-lease-duration", "2", "--leader-elect-renew-deadline", "1")
    arguments = ("--kubeconfig", str(path), *timing, "--leader-elect-retry-period", "0.3", "--secure-port", "0")
    async with the_command(*arguments) as process:
        await furnished(cluster, "before")
        thief = {"spec": {"holderIdentity": "thief"}}
        await cluster.client.patch(LEASES, "kube-controller-manager", thief, "kube-system")

        async def is_taken_back():
            lease = await cluster.client.get(LEASES, "kube-controller-manager", "kube-system")
            return lease.spec.holder_identity != "thief"

        await cluster.eventually(is_taken_back)
        await furnished(cluster, "after")
        assert process.returncode is None
        await stopped(process)


async def test_it_waits_for_a_server_that_is_not_there_yet(tmp_path):
    directory, port = tmp_path / "server", free_port()
    server = await EmbeddedServer.start(directory)
    path = tmp_path / "kubeconfig"
    path.write_text(server.running.credentials.admin_kubeconfig(f"https://127.0.0.1:{port}"))
    await server.stop()
    arguments = ("--kubeconfig", str(path), "--no-leader-elect", "--secure-port", "0")
    async with the_command(*arguments) as process:
        await called_in_vain(port, times=2)
        assert process.returncode is None
        server = await EmbeddedServer.start(directory)
        transport = await server.https(port)
        cluster = Cluster(transport)
        await furnished(cluster, "late")
        await stopped(process)
        await transport.close()
        await server.stop()


@pytest.fixture
def own_logging():
    logger = logging.getLogger("dray")
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["--kubeconfig", "/no/such/file"], 3, "No such file", id="no-kubeconfig"),
        pytest.param(["--concurrent-resourceclaim-syncs", "0"], 2, "must be larger than 0, got 0", id="no-workers"),
        pytest.param(["--controllers", "nonsense"], 2, "not in the list of known controllers", id="unknown-controller"),
        pytest.param(["--feature-gates", "Nonsense=true"], 2, "Nonsense", id="unknown-gate"),
        pytest.param(["--emulate", "1.2"], 2, "1.2", id="unknown-release"),
    ],
)
def test_wrong_usage_and_a_broken_world(arguments, code, message, tmp_path):
    config = tmp_path / "config"
    config.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: 'https://x'}}]"
    )
    if "--kubeconfig" not in arguments:
        arguments = [*arguments, "--kubeconfig", str(config)]
    result = CliRunner().invoke(controller_manager, arguments)
    assert result.exit_code == code
    assert message in result.output


def test_certificates_nobody_can_read_are_a_broken_world(tmp_path):
    from dray.client import Connection, KubeconfigError
    from dray.client.credentials import NoCredentials, Proof
    from dray.client.https import ssl_context

    with pytest.raises(KubeconfigError, match="certificates for https://x"):
        ssl_context(Connection("https://x", NoCredentials(), ca=b"nonsense"), Proof())
    assert isinstance(ssl_context(Connection("https://x", NoCredentials()), Proof()), ssl.SSLContext)
