"""A command loads the code that it needs: counted modules, since times differ from machine to machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.explain.manifests import Cluster
from tests.waiting import eventually_blocking

from dray.cli.main import EXIT_BROKEN_WORLD

COUNTING = (sys.executable, "-X", "importtime", "-m", "dray")
MODULE = re.compile(r"import time: .*\| +(\S+)$", re.MULTILINE)

# Loaded with the first policy, webhook, definition of a custom resource, token, or call of another server.
NOT_OF_A_SERVER = (
    "dray.apiserver.write.policies",
    "dray.apiserver.write.admission.webhook_plugins",
    "dray.apiserver.custom_resources.custom_kind",
    "dray.apiserver.custom_resources.definition_validation",
    "dray.client",
    "dray.explain",
    "dray.scheduler",
    "dray.sim",
    "aiohttp",
    "grpc",
    "jwt",
)


def modules_of(said: str) -> set[str]:
    return set(MODULE.findall(said))


def loaded(found: set[str], unwanted: tuple[str, ...]) -> set[str]:
    return {name for name in found for room in unwanted if name == room or name.startswith(f"{room}.")}


def dray_modules(found: set[str]) -> set[str]:
    return {name for name in found if name.partition(".")[0] == "dray"}


def modules_of_command(*arguments: str, code: int = 0) -> set[str]:
    done = subprocess.run([*COUNTING, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    return modules_of(done.stderr)


def test_the_server_starts_without_what_most_clusters_never_use(tmp_path: Path) -> None:
    """CEL is loaded last, when the server is ready, and without waiting for an expression."""
    said = tmp_path / "stderr"
    arguments = ["apiserver", "--listen", "127.0.0.1:0", "--data", tmp_path / "data"]
    with said.open("w") as stderr:
        server = subprocess.Popen(
            [*COUNTING, *arguments, "--kubeconfig", tmp_path / "kubeconfig"], stdout=subprocess.DEVNULL, stderr=stderr
        )
        try:
            eventually_blocking(
                lambda: "dray.cel" in modules_of(said.read_text()) or server.poll() is not None, "CEL is loaded", 120
            )
            os.kill(server.pid, signal.SIGTERM)
            assert server.wait(60) == 0
        finally:
            server.kill()
    in_order = MODULE.findall(said.read_text())
    first_of_cel = next(number for number, name in enumerate(in_order) if name.startswith("dray.cel."))
    at_start, later = set(in_order[:first_of_cel]), in_order[first_of_cel:]
    assert all(name == "dray.cel" or name.startswith("dray.cel.") for name in later)
    assert not loaded(at_start, NOT_OF_A_SERVER)
    assert "dray.apiserver.server" in at_start
    assert len(dray_modules(at_start)) <= 215


def test_help_loads_the_command_line_only() -> None:
    found = modules_of_command("--help")
    assert dray_modules(found) == {
        "dray", "dray.cli", "dray.cli.keyboard_interrupt", "dray.cli.main", "dray.cli.output", "dray.visible_text",
    }  # fmt: skip
    assert not loaded(found, ("asyncio", "msgspec", "yaml"))


@pytest.mark.parametrize(
    ("command", "needed", "most", "unwanted"),
    [
        ("list", "dray.sim.running_clusters", 20, ("dray.api", "dray.client", "dray.apiserver", "dray.scheduler")),
        ("lint", "dray.validation.lint", 105, ("dray.cel", "dray.client", "dray.scheduler", "aiohttp")),
        ("explain", "dray.sim.pod_explanation", 227, ("dray.apiserver", "dray.store", "dray.validation", "aiohttp")),
    ],
)
def test_light_commands_load_little(command: str, needed: str, most: int, unwanted: tuple[str, ...]) -> None:
    found = modules_of_command(command, "--help")
    assert needed in found
    assert not loaded(found, unwanted)
    assert len(dray_modules(found)) <= most


def test_a_waiting_pod_is_explained_without_what_only_other_questions_need(tmp_path: Path) -> None:
    """No device is given, so nobody guards them; the pod has no node on which it could be kept from starting; no configuration names a foreign plugin."""
    cluster = Cluster()
    cluster.request["count"] = 3
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    found = modules_of_command("explain", "pod/train", "-f", str(file), code=1)
    assert "dray.sim.pod_explanation.rehearsals" in found
    assert not loaded(found, ("dray.apiserver", "dray.store", "dray.explain.doctor", "importlib.metadata"))


WATCHING_THE_COLLECTOR = """
import atexit, gc
from dray.cli.main import main
looks = []
gc.callbacks.append(lambda phase, info: looks.append(phase))
atexit.register(lambda: print(len(looks), gc.get_freeze_count(), len(gc.get_objects()), gc.get_threshold()[0]))
main()
"""


def test_a_command_is_loaded_and_ends_without_looking_for_garbage() -> None:
    """At its end Python would look through everything that is left, several times."""
    command = [sys.executable, "-c", WATCHING_THE_COLLECTOR, "explain", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    looks, frozen, left, young = map(int, done.stdout.splitlines()[-1].split())
    assert looks == 0
    assert frozen > 50_000
    assert left < frozen / 10
    # Commands that go on for days hold no more garbage than this; only a short one that reads a cluster holds more.
    assert young == 50_000


def test_a_cluster_is_asked_without_a_library_for_proxies(tmp_path: Path) -> None:
    """The environment names none, and nobody answers."""
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here"}}],
        "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:1"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    bare = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    command = [*COUNTING, "devices", "--kubeconfig", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=bare)
    assert done.returncode == EXIT_BROKEN_WORLD
    found = modules_of(done.stderr)
    assert "dray.client.https" in found
    assert not loaded(found, ("urllib.request", "http.client", "email", "aiohttp"))
