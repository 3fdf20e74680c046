"""Parts that start with credentials that nobody takes: they wait, and go on once that is mended."""

import pytest

from dray.apiserver.security.credentials import local_authority
from dray.client import NODES, SLICES, connect
from tests.torture.part_certificates import LASTS_S, PartCertificates
from tests.torture.rig import Part
from tests.waiting import eventually

NODE = "n1"


@pytest.fixture
def parts(tmp_path):
    """A server, a node agent and a driver; the test starts them."""
    files = ("--data", str(tmp_path / "data"), "--kubeconfig", str(tmp_path / "kubeconfig"))
    ready = ("--ready-file", str(tmp_path / "ready"))
    node = ("--kubeconfig", str(tmp_path / "node.kubeconfig"), "--node-name", NODE, "--cdi-dir", str(tmp_path / "cdi"))
    root = str(tmp_path / "n")
    parts = [
        Part(tmp_path, "apiserver", "apiserver", "--listen", "127.0.0.1:0", *files, *ready),
        Part(tmp_path, "kubelet", "kubelet", *node, "--root-dir", root, "--runtime", "none", "--healthz-port", "0"),
        Part(tmp_path, "driver", "driver", "gpu", *node, "--kubelet-root", root),
    ]
    yield parts
    for part in reversed(parts):
        part.stop()


async def test_parts_wait_for_credentials_that_are_taken(tmp_path, parts):
    server, *others = parts
    server.start()
    await eventually((tmp_path / "ready").exists, "the server to be ready", within_s=60)
    certificates, authority = PartCertificates(tmp_path), local_authority(tmp_path / "data")
    url = (tmp_path / "ready").read_text().strip()
    text = certificates.kubeconfig("node", url, authority, f"system:node:{NODE}", ("system:nodes",))
    (tmp_path / "node.kubeconfig").write_text(text)
    certificates.let_end("node", -1.0)
    for part in others:
        part.start()
    await wait_for_all(others, "trying again in", "cannot be registered now", "waits for node")
    # For the server's clock it has ended again, and TLS has no objection: now the answer is 401.
    server.set_weather(clock_wrong_by_s=LASTS_S + 3600)
    certificates.renew("node")
    await wait_for_all(others, "Unauthorized")
    server.calm_weather()
    client = connect(tmp_path / "kubeconfig", component="test")
    await eventually(lambda: client.find(NODES, NODE), "the node", within_s=60)
    await eventually(lambda: published(client), "its devices", within_s=60)
    assert all(part.is_running for part in others)
    await client.close()


async def published(client):
    return (await client.list(SLICES)).items


async def wait_for_all(parts, *texts):
    """One of the texts stands in the log of each part, which still runs."""
    for part in parts:

        def says_it(part=part):
            assert part.is_running, part.log.read_text()
            return any(text in part.log.read_text() for text in texts)

        await eventually(says_it, f"one of {texts} in the log", within_s=60)
