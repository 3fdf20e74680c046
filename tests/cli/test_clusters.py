"""`dray up` beside other clusters: in a kubeconfig that others use, in the background, listed and ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.waiting import eventually_blocking

from dray.cli.main import cli
from dray.client.kubeconfig import load_connection
from dray.sim.running_clusters import ClusterNameError, RunningClusters, cluster_name

BIN = Path(sys.executable).parent
DEADLINE_S = 90.0
OTHERS = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "prod", "cluster": {"server": "https://prod:6443"}}],
    "users": [{"name": "alice", "user": {"token": "theirs"}}],
    "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "alice"}}],
    "current-context": "prod",
}


class Shell:
    """Commands with a state folder and a kubeconfig of their own."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "config"
        self.state = folder / "state"
        self._environment = {**os.environ, "XDG_STATE_HOME": str(self.state)}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [BIN / "dray", *words], env=self._environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def run(self, *words: str, code: int = 0) -> str:
        """In this process, which is faster."""
        result = CliRunner().invoke(cli, words, env=self._environment)
        assert result.exit_code == code, result.output
        return result.output

    def up(self, *words: str, code: int = 0) -> str:
        place = ("--nodes", "0", "--detach", "--kubeconfig", str(self.kubeconfig))
        process = self.start("up", *place, *words)
        printed, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == code, printed
        return printed

    def listed(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in json.loads(self.run("list", "-o", "json"))["clusters"]}

    def contexts(self) -> list[str]:
        return [each["name"] for each in yaml.safe_load(self.kubeconfig.read_text())["contexts"]]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.run("down", "--all")


def test_clusters_in_the_background_share_a_kubeconfig_with_others(shell: Shell) -> None:
    shell.kubeconfig.write_text(yaml.safe_dump(OTHERS))
    printed = shell.up()
    assert "dray down dray ends it." in printed
    assert "dray-lab" in shell.up("--name", "lab")
    listed = shell.listed()
    assert {name: each["state"] for name, each in listed.items()} == {"dray": "running", "dray-lab": "running"}
    assert shell.contexts() == ["prod", "dray", "dray-lab"]
    for name in listed:
        assert load_connection(shell.kubeconfig, name).server == listed[name]["server"]
    assert "no devices" in shell.run("devices", "--kubeconfig", str(shell.kubeconfig), "--context", "dray")
    assert "a cluster named dray-lab is running" in shell.up("--name", "lab", code=2)
    assert "which one? dray, dray-lab, or --all" in shell.run("down", code=2)

    assert shell.run("down", "lab") == "dray-lab has ended\n"
    assert shell.contexts() == ["prod", "dray"]
    assert shell.run("down") == "dray has ended\n"
    assert yaml.safe_load(shell.kubeconfig.read_text()) == {**OTHERS, "current-context": ""}
    assert shell.run("list") == "no cluster is running; dray up starts one\n"
    assert "no cluster is running" in shell.run("down", code=1)
    assert list((shell.state / "dray" / "clusters").iterdir()) == []


def test_a_cluster_that_was_killed_is_tidied_up(shell: Shell) -> None:
    shell.kubeconfig.write_text(yaml.safe_dump(OTHERS))
    shell.up()
    os.kill(shell.listed()["dray"]["process"], signal.SIGKILL)
    eventually_blocking(lambda: shell.listed()["dray"]["state"] == "died", "its end", DEADLINE_S)
    assert shell.run("list", "-o", "wide").split()[:2] == ["NAME", "STATE"]
    # Its name is free again, and its entries are replaced.
    shell.up()
    assert shell.contexts() == ["prod", "dray"]
    os.kill(shell.listed()["dray"]["process"], signal.SIGKILL)
    eventually_blocking(lambda: shell.listed()["dray"]["state"] == "died", "its end", DEADLINE_S)
    shell.run("down", "dray")
    assert shell.contexts() == ["prod"]


def test_a_start_that_fails_says_why_and_leaves_nothing(shell: Shell) -> None:
    shell.kubeconfig.write_text(yaml.safe_dump(OTHERS))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        printed = shell.up("--listen", listen, code=3)
    assert f"--listen {listen}: " in printed
    assert "ddress already in use" in printed
    assert shell.listed() == {}
    assert yaml.safe_load(shell.kubeconfig.read_text()) == OTHERS


def test_a_cluster_in_the_foreground_is_listed_and_ended_too(shell: Shell) -> None:
    process = shell.start("up", "--nodes", "0", "--kubeconfig", str(shell.kubeconfig))
    eventually_blocking(lambda: shell.listed().get("dray", {}).get("state") == "running", "the cluster", DEADLINE_S)
    shell.run("down")
    assert process.wait(DEADLINE_S) == 0
    # Nobody else is in the file.
    assert not shell.kubeconfig.exists()


def test_an_interrupted_wait_ends_the_cluster_that_was_starting(shell: Shell) -> None:
    # A million devices: long enough on a fast machine, too.
    many = ("--nodes", "5000", "--devices", "gpu")
    process = shell.start("up", *many, "--detach", "--kubeconfig", str(shell.kubeconfig))
    eventually_blocking(lambda: "dray" in shell.listed(), "the cluster", DEADLINE_S)
    process.send_signal(signal.SIGINT)
    process.wait(DEADLINE_S)
    assert shell.listed() == {}


def test_a_broken_kubeconfig_is_refused_before_anything_starts(shell: Shell) -> None:
    shell.kubeconfig.write_text("clusters: [")
    assert "not a kubeconfig: no YAML in line 1; the file is left as it is" in shell.up(code=3)
    assert shell.kubeconfig.read_text() == "clusters: ["


@pytest.mark.parametrize(("given", "name"), [("lab", "dray-lab"), ("dray", "dray"), ("dray-2", "dray-2")])
def test_names_are_known_as_ours(given: str, name: str) -> None:
    assert cluster_name(given) == name


@pytest.mark.parametrize("given", ["", "A", "../x", "a b", "-a", "a" * 64])
def test_what_is_no_name_is_refused(given: str) -> None:
    with pytest.raises(ClusterNameError):
        cluster_name(given)


def test_unnamed_clusters_get_the_first_free_name(tmp_path: Path) -> None:
    running = RunningClusters(tmp_path)
    with running.reserve(None) as first:
        with running.reserve(None) as second:
            assert (first.name, second.name) == ("dray", "dray-2")
        with running.reserve(None) as third:
            assert third.name == "dray-2"


def test_without_a_home_the_records_are_among_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none/state")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with RunningClusters.of_user().reserve("lab"):
        assert [each.name for each in tmp_path.iterdir()] == [f"dray-clusters-{os.geteuid()}"]
