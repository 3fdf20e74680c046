"""`kill -9` of a loaded server: what it acknowledged is there after the next start, and the server is as before."""

import asyncio
import base64
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest
import yaml
from tests.builders.manifests import a_claim, a_result, an_allocation
from tests.waiting import eventually

from dray.store.backup import Backup
from dray.store.errors import StoreError

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}


class Server:
    """The `dray apiserver` process, on one data directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> aiohttp.ClientSession:
        """A session with the administrator's certificate, once the server is ready."""
        ready, kubeconfig = self._directory / "ready", self._directory / "kubeconfig"
        ready.unlink(missing_ok=True)
        self._spawn(kubeconfig, ready)
        await eventually(ready.exists, lambda: (self._directory / "log").read_text())
        config = yaml.safe_load(kubeconfig.read_text())
        return aiohttp.ClientSession(
            config["clusters"][0]["cluster"]["server"], connector=aiohttp.TCPConnector(ssl=_context(config))
        )

    def _spawn(self, kubeconfig: Path, ready: Path) -> None:
        command = "from dray.cli.main import main; main()"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", command, "apiserver", "--listen", "127.0.0.1:0"),
                *("--data", str(self._directory / "data"), "--kubeconfig", str(kubeconfig), "--ready-file", str(ready)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=(self._directory / "log").open("ab"),
        )

    def kill(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _context(config: dict[str, list[dict[str, dict[str, str]]]]) -> ssl.SSLContext:
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
        pair.flush()
        context.load_cert_chain(pair.name)
    return context


async def write_until_it_breaks(session: aiohttp.ClientSession, prefix: str, acknowledged: dict[str, str]) -> None:
    number = 0
    while True:
        name = f"{prefix}-{number}"
        body = {"metadata": {"name": name}, "data": {"text": "x" * 1500}}
        try:
            async with session.post(CONFIG_MAPS, json=body) as response:
                if response.status != 201:
                    return
                acknowledged[name] = (await response.json())["metadata"]["resourceVersion"]
        except (aiohttp.ClientError, ConnectionError):
            return
        number += 1


async def allocate_until_it_breaks(session: aiohttp.ClientSession, prefix: str, acknowledged: dict[str, str]) -> None:
    """Claims whose status is written once they are there; what counts is the status."""
    number = 0
    while True:
        name = f"{prefix}-{number}"
        status = {"allocation": an_allocation(a_result(device=name))}
        try:
            async with session.post(CLAIMS, json=a_claim(name, namespace="")) as response:
                if response.status != 201:
                    return
            async with session.patch(
                f"{CLAIMS}/{name}/status", json={"status": status}, headers=MERGE_PATCH
            ) as response:
                if response.status != 200:
                    return
                acknowledged[name] = (await response.json())["metadata"]["resourceVersion"]
        except (aiohttp.ClientError, ConnectionError):
            return
        number += 1


async def revisions(session: aiohttp.ClientSession, path: str) -> dict[str, str]:
    async with session.get(path) as response:
        items = (await response.json())["items"]
    return {entry["metadata"]["name"]: entry["metadata"]["resourceVersion"] for entry in items}


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.torture)])
async def test_nothing_acknowledged_is_lost(tmp_path: Path, rounds: int) -> None:
    server = Server(tmp_path)
    acknowledged: dict[str, str] = {}
    allocated: dict[str, str] = {}
    for number in range(rounds):
        async with await server.start() as session:
            writers = [
                asyncio.create_task(write_until_it_breaks(session, f"r{number}w{writer}", acknowledged))
                for writer in range(7)
            ]
            writers.append(asyncio.create_task(allocate_until_it_breaks(session, f"r{number}", allocated)))
            before, least = len(acknowledged), len(allocated) + 2
            enough = before + 40 + 20 * (number % 4)
            await eventually(lambda: len(acknowledged) >= enough and len(allocated) >= least, "acknowledged writes")  # noqa: B023
            server.kill()
            await asyncio.gather(*writers)
        async with await server.start() as session:
            assert acknowledged.items() <= (await revisions(session, CONFIG_MAPS)).items()
            assert allocated.items() <= (await revisions(session, CLAIMS)).items()
            server.kill()
    assert len(acknowledged) > rounds * 8


async def test_cluster_that_is_lost_comes_back_from_its_backup(tmp_path: Path) -> None:
    """Copies go on while the server is under load; then server and copier are killed and the data directory is gone."""
    server = Server(tmp_path)
    acknowledged: dict[str, str] = {}
    file = tmp_path / "backup"
    async with await server.start() as session:
        authority = (tmp_path / "data" / "pki" / "ca.crt").read_bytes()
        writers = [
            asyncio.create_task(write_until_it_breaks(session, f"w{writer}", acknowledged)) for writer in range(4)
        ]
        copier = run_dray("backup", str(file), "--data", str(tmp_path / "data"), "--every", "0.1")
        await eventually(lambda: len(copies(file)) >= 3, "three copies")
        copier.kill()
        server.kill()
        await asyncio.gather(*writers)
    shutil.rmtree(tmp_path / "data")
    copied = copies(file)[-1][1]
    assert run_dray("restore", str(file), "--data", str(tmp_path / "data")).wait() == 0
    async with await server.start() as session:
        found = await revisions(session, CONFIG_MAPS)
        server.kill()
    assert (tmp_path / "data" / "pki" / "ca.crt").read_bytes() == authority, (
        "clients of the lost cluster trust this one"
    )
    expected = {name: revision for name, revision in acknowledged.items() if int(revision) <= copied}
    assert expected
    assert expected.items() <= found.items()
    assert all(int(revision) <= copied for revision in found.values())


def run_dray(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "dray", *arguments], stdout=subprocess.DEVNULL)


def copies(file: Path) -> list[tuple[float, int]]:
    if not file.exists():
        return []
    try:
        with closing(Backup(file)) as backup:
            return backup.moments()
    except StoreError:
        return []
