"""An API server whose etcd comes late, goes away and comes back: one process from beginning to end."""

import asyncio
import time

import pytest
from click.testing import CliRunner

from dray.cli import apiserver
from dray.cli.main import EXIT_BROKEN_WORLD, cli
from dray.client import NAMESPACES, ApiError, Call, connect
from tests.e2e.processes import Process
from tests.torture.etcd_cluster import EtcdCluster


@pytest.fixture
def etcd(tmp_path):
    etcd = EtcdCluster(tmp_path / "etcd", 1)
    yield etcd
    etcd.stop()


def wait_for(holds, what, process, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert process.is_running, process.log.read_text()
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}\n{process.log.read_text()}"
        time.sleep(0.05)


async def create_patiently(client, name, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            await client.create(NAMESPACES, {"metadata": {"name": name}})
            return
        except ApiError as error:
            if error.code == 409:
                return  # One of the attempts without an answer had happened.
            if error.code != 503 or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.1)


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


def test_an_etcd_that_never_comes_is_a_broken_world(tmp_path, monkeypatch):
    monkeypatch.setattr(apiserver, "ETCD_PATIENCE_S", 0.5)
    nobody = ["apiserver", "--data", str(tmp_path), "--listen", "127.0.0.1:0", "--store", "etcd://127.0.0.1:1"]
    result = CliRunner().invoke(cli, nobody)
    assert result.exit_code == EXIT_BROKEN_WORLD
    assert "etcd at 127.0.0.1:1" in result.output
    assert "trying again" in result.output
