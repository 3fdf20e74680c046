"""An API server whose etcd comes late, goes away and comes back: one process from beginning to end."""

import os
import signal
import time

import pytest
from click.testing import CliRunner

from dray.apiserver.security.certificates import Authority
from dray.cli.main import EXIT_BROKEN_WORLD, cli
from dray.client import NAMESPACES, ApiError, Call, connect
from tests.e2e.processes import Process
from tests.store.conftest import Etcd
from tests.torture.etcd_cluster import EtcdCluster
from tests.torture.rig import Part
from tests.waiting import eventually, eventually_blocking


@pytest.fixture
def etcd(tmp_path):
    etcd = EtcdCluster(tmp_path / "etcd", 1)
    yield etcd
    etcd.stop()


def wait_for(holds, what, process, timeout_s=60):
    def holds_or_died():
        assert process.is_running, process.log.read_text()
        return holds()

    eventually_blocking(holds_or_died, lambda: f"{what}\n{process.log.read_text()}", timeout_s)


async def create_patiently(client, name, timeout_s=60):
    async def is_created():
        try:
            await client.create(NAMESPACES, {"metadata": {"name": name}})
        except ApiError as error:
            if error.code == 409:
                return True  # One of the attempts without an answer had happened.
            if error.code != 503:
                raise
            return False
        return True

    await eventually(is_created, "etcd to be back", timeout_s)


async def test_an_api_server_outlives_its_etcd(tmp_path, etcd):
    kubeconfig, ready = tmp_path / "kubeconfig", tmp_path / "ready"
    where = ("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--store", etcd.url)
    files = ("--kubeconfig", str(kubeconfig), "--ready-file", str(ready))
    server = Process(tmp_path, "apiserver", "apiserver", *where, *files)
    server.start()
    try:
        wait_for(lambda: "trying again" in server.log.read_text(), "the server to miss its etcd", server)
        etcd.start()
        wait_for(ready.exists, "the server to be ready", server)
        client = connect(kubeconfig, component="test")
        before = await client.get(NAMESPACES, "default")
        etcd.stop()
        # Past the client, which would try again for ten seconds.
        refused = await client.transport.request(Call("GET", "/api/v1/namespaces/default"))
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        etcd.start()
        await create_patiently(client, "after")
        assert await client.get(NAMESPACES, "default") == before
        assert (await client.get(NAMESPACES, "after")).metadata.name == "after"
        await client.close()
        assert server.is_running
    finally:
        server.stop()


def server_on(tmp_path, store):
    where = ("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--store", store)
    return Part(tmp_path, "apiserver", "apiserver", *where, "--ready-file", str(tmp_path / "ready"))


def test_a_server_waits_until_etcd_has_a_quorum(tmp_path):
    etcd = EtcdCluster(tmp_path / "etcd", 3)
    server = server_on(tmp_path, etcd.url)
    try:
        etcd.start()
        for member in etcd.members[:2]:
            member.kill()
        server.start()
        wait_for(lambda: "waiting for the store since" in server.log.read_text(), "a word about it", server)
        assert not (tmp_path / "ready").exists()
        etcd.members[0].start()
        wait_for((tmp_path / "ready").exists, "the server to be ready", server)
    finally:
        server.stop()
        etcd.stop()


@pytest.mark.parametrize("state", ["nobody", "hangs"])
def test_a_server_that_waits_for_etcd_ends_when_told(tmp_path, etcd, state):
    if state == "hangs":
        etcd.start()
        os.kill(etcd.members[0].pid, signal.SIGSTOP)
    server = server_on(tmp_path, etcd.url)
    server.start()
    try:
        wait_for(lambda: "trying again" in server.log.read_text(), "the server to miss its etcd", server)
        began = time.monotonic()
        assert server.end() == 0
        assert time.monotonic() - began < 5
    finally:
        server.stop()


def test_a_wrong_clock_does_not_keep_a_server_from_its_etcd(tmp_path, etcd):
    """The rig sets clocks wrong; deadlines of gRPC are not to be among them, or every call is late at once."""
    etcd.start()
    server = server_on(tmp_path, etcd.url)
    server.set_weather(clock_wrong_by_s=-17 * 3600.0)
    server.start()
    try:
        wait_for((tmp_path / "ready").exists, "the server to be ready", server)
        assert "waiting" not in server.log.read_text()
    finally:
        server.stop()


def test_an_etcd_of_somebody_else_is_a_broken_world(tmp_path):
    authority, other = Authority.create("etcd-ca"), Authority.create("other")
    pair = authority.issue_server("etcd", ["127.0.0.1"])
    for name, text in (("cert", pair.certificate_pem), ("key", pair.key_pem), ("other", other.certificate_pem)):
        (tmp_path / name).write_bytes(text)
    flags = ("--cert-file", str(tmp_path / "cert"), "--key-file", str(tmp_path / "key"))
    etcd = Etcd(tmp_path / "etcd", flags, "https")
    etcd.start()
    try:
        # One of the endpoints does not answer: the refusal by the other still counts.
        assert "CERTIFICATE_VERIFY_FAILED" in broken_world(tmp_path, f"{etcd.address},127.0.0.1:1?ca={tmp_path}/other")
    finally:
        etcd.kill()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        pytest.param("127.0.0.1:etcd", "HOST:PORT", id="port-is-no-number"),
        pytest.param("127.0.0.1:1?cert=junk", "belong together", id="certificate-without-key"),
        pytest.param("127.0.0.1:1?ca=junk", "junk holds no certificate", id="ca-is-no-certificate"),
        pytest.param("127.0.0.1:1?cert=junk&key=junk", "no certificate and its key", id="certificate-is-none"),
    ],
)
def test_a_url_that_cannot_work_is_a_broken_world(tmp_path, monkeypatch, address, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk").write_text("junk")
    assert says in broken_world(tmp_path, address)


def broken_world(tmp_path, address):
    arguments = [
        "apiserver",
        "--data",
        str(tmp_path / "data"),
        "--listen",
        "127.0.0.1:0",
        "--store",
        f"etcd://{address}",
    ]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == EXIT_BROKEN_WORLD, result.output
    assert "waiting" not in result.output
    return result.output
