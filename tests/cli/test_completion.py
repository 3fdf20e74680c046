"""Shell completion, asked for as a shell does; and `dray` under its name as a kubectl plugin."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


def run(*command, **environment):
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": path, **environment},
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed_and_the_shell_takes_it(shell):
    done = run("dray", "completion", shell)
    assert done.returncode == 0
    assert "_DRAY_COMPLETE" in done.stdout
    if shutil.which(shell):
        assert run(shell, "-n", "-c", done.stdout).returncode == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("dray sch", {"scheduler"}, id="command"),
        pytest.param("dray up --no", {"--nodes", "--node-pools"}, id="option"),
        pytest.param("dray completion z", {"zsh"}, id="choice"),
    ],
)
def test_what_bash_is_offered(words, expected):
    count = str(len(words.split()) - 1)
    done = run("dray", _DRAY_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=count)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == expected


def test_what_zsh_and_fish_are_offered():
    """Each asks in its own way; neither has to be installed for that."""
    zsh = run("dray", _DRAY_COMPLETE="zsh_complete", COMP_WORDS="dray sch", COMP_CWORD="1").stdout.splitlines()
    assert zsh[:2] == ["plain", "scheduler"]
    assert zsh[2].startswith("Find a node")
    fish = run("dray", _DRAY_COMPLETE="fish_complete", COMP_WORDS="dray sch", COMP_CWORD="sch").stdout
    assert fish.partition("\t")[0].replace("\n", ",") == "plain,scheduler"


def test_another_shell_is_wrong_usage():
    done = run("dray", "completion", "tcsh")
    assert done.returncode == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.stderr


def test_as_a_plugin_of_kubectl(tmp_path):
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not on the PATH")
    (tmp_path / "kubectl-dray").symlink_to(BIN / "kubectl-dray")
    path = os.pathsep.join(
        [str(tmp_path), *(each for each in os.environ["PATH"].split(os.pathsep) if each != str(BIN))]
    )
    done = run("kubectl", "dray", "lint", "--help", PATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: kubectl dray lint")
