"""Real API servers for the controllers: in-process, and over HTTPS where `DRAY_TEST_TRANSPORT` or a marker says so."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cluster import Cluster
from serving import EmbeddedServer


@pytest.fixture
async def server(tmp_path):
    server = await EmbeddedServer.start(tmp_path / "server")
    yield server
    await server.stop()


@pytest.fixture(params=["in-process", "https"])
async def cluster(request, server):
    transport = server.in_process() if request.param == "in-process" else await server.https()
    cluster = Cluster(transport)
    await cluster.namespace("ns")
    yield cluster
    await cluster.stop()
    await transport.close()
