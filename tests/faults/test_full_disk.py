"""No space left: for the API server's store, and on a node for checkpoints and CDI files."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest

from dray.client import CONFIG_MAPS, ApiError, ServerUnreachable, connect
from tests.e2e.processes import ClusterOfProcesses, wait_until
from tests.faults.small_disk import small_disk
from tests.torture.etcd_cluster import free_port

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

if shutil.which("mount") is None:
    pytest.skip("mount is not installed: nothing to fill", allow_module_level=True)


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="dray-f", ignore_cleanup_errors=True) as name:
        yield Path(name)


async def write_until_refused(client, acknowledged: dict[str, str], start: int) -> ApiError:
    for number in range(start, start + 2000):
        document = {"metadata": {"name": f"c{number}", "namespace": "default"}, "data": {"text": "x" * 8000}}
        try:
            stored = await client.create(CONFIG_MAPS, document, "default")
        except ApiError as error:
            return error
        acknowledged[f"c{number}"] = stored.metadata.resource_version
    raise AssertionError("the disk never became full")


async def names_and_revisions(client) -> dict[str, str]:
    return {
        each.metadata.name: each.metadata.resource_version for each in (await client.list(CONFIG_MAPS, "default")).items
    }


async def test_the_store(folder):
    """Writes are refused with the reason, reads go on, nothing acknowledged is lost, and with room it works again."""
    with small_disk(folder / "data", "12m") as disk:
        cluster = ClusterOfProcesses(folder, free_port())
        acknowledged: dict[str, str] = {}
        try:
            cluster.start_apiserver()
            client = connect(cluster.kubeconfig)
            disk.fill(leaving=600_000)
            refusal = await write_until_refused(client, acknowledged, 0)
            assert refusal.code in (503, 507), refusal
            assert "full" in str(refusal)
            assert acknowledged.items() <= (await names_and_revisions(client)).items()
            cluster.apiserver.kill()
            disk.make_room()
            cluster.start_apiserver()
            assert acknowledged.items() <= (await names_and_revisions(client)).items()
            await client.create(CONFIG_MAPS, {"metadata": {"name": "after"}}, "default")
            await client.close()
        finally:
            cluster.stop()


async def test_the_store_recovers_without_a_restart(folder):
    with small_disk(folder / "data", "12m") as disk:
        cluster = ClusterOfProcesses(folder, free_port())
        try:
            cluster.start_apiserver()
            client = connect(cluster.kubeconfig)
            disk.fill(leaving=400_000)
            acknowledged: dict[str, str] = {}
            await write_until_refused(client, acknowledged, 0)
            disk.make_room()
            await client.create(CONFIG_MAPS, {"metadata": {"name": "after"}}, "default")
            assert acknowledged.items() <= (await names_and_revisions(client)).items()
            await client.close()
        except ServerUnreachable as error:
            raise AssertionError(f"the server did not survive\n{cluster.logs()}") from error
        finally:
            cluster.stop()


def test_a_node(folder):
    """A pod whose claims cannot be noted waits with an event, and runs once there is room."""
    with small_disk(folder / "n", "2m") as disk:
        cluster = ClusterOfProcesses(folder, free_port())
        try:
            cluster.start()
            cluster.kubectl("apply", "-f", str(EXAMPLES / "gpu/classes.yaml"))
            wait_until(lambda: "gpu.example.com" in cluster.kubectl("get", "resourceslices"), "devices", cluster)
            disk.fill()
            cluster.kubectl("apply", "-f", str(EXAMPLES / "gpu/one-gpu.yaml"))
            wait_until(
                lambda: "No space left" in cluster.kubectl("get", "events", "-o", "jsonpath={.items[*].message}"),
                "an event about the full disk",
                cluster,
            )
            status = json.loads(cluster.kubectl("get", "pod", "one-gpu", "-o", "json"))["status"]
            assert status["phase"] == "Pending"
            assert not list(cluster.cdi.glob("*")), "nothing may be prepared before it is noted"
            disk.make_room()
            wait_until(
                lambda: cluster.kubectl("get", "pod", "one-gpu", "-o", "jsonpath={.status.phase}") == "Running",
                "the pod to run once there is room",
                cluster,
                90,
            )
        finally:
            cluster.stop()
