"""Real API servers for the controllers, in-process and over HTTPS."""

import pytest

from tests.controllers.cluster import Cluster
from tests.controllers.machine import Machine
from tests.controllers.serving import EmbeddedServer

# These run over both transports; the others, which differ only in what is watched, in-process.
OVER_HTTPS = (
    "test_claim_cases",
    "test_claim_creation",
    "test_claim_release",
    "test_claim_races",
    "test_claim_writers",
    "test_garbage",
    "test_housekeeping",
    "test_pod_groups",
    "test_quotas",
    "test_taint_cases",
    "test_taint_eviction",
)


@pytest.fixture
async def server(tmp_path):
    server = await EmbeddedServer.start(tmp_path / "server")
    yield server
    await server.stop()


def pytest_generate_tests(metafunc):
    if "cluster" in metafunc.fixturenames:
        both = metafunc.module.__name__.rpartition(".")[2] in OVER_HTTPS
        metafunc.parametrize("cluster", ["in-process", "https"] if both else ["in-process"], indirect=True)


@pytest.fixture
async def cluster(request, server):
    transport = server.in_process() if request.param == "in-process" else await server.https()
    cluster = Cluster(transport)
    await cluster.namespace("ns")
    yield cluster
    await cluster.stop()
    await transport.close()


@pytest.fixture(params=["in-process", "https"])
async def machine(request, tmp_path, monkeypatch):
    monkeypatch.setattr("dray.client.informer.BACKOFF_START_S", 0.05)
    machine = Machine(tmp_path / "server", request.param)
    await machine.start()
    yield machine
    await machine.stop()
