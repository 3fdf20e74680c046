"""Options that mean the same everywhere: `--context` beside `--kubeconfig`, and the forms of `-o`."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from dray.cli.main import COMMANDS, cli

CONTEXT = click.Context(cli)
# These write a kubeconfig, or hand all options on to a parser of their own.
WRITE_A_KUBECONFIG = {"up", "apiserver", "kubeconfig"}
PRINT_OBJECTS = ("cel", "devices", "doctor", "explain", "ledger", "lint", "list", "simulate", "top")


def options_of(name: str) -> dict[str, click.Parameter]:
    command = cli.get_command(CONTEXT, name)
    assert command is not None
    return {option: each for each in command.params for option in each.opts}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WRITE_A_KUBECONFIG))
def test_a_command_that_reads_a_kubeconfig_takes_a_context(name: str) -> None:
    options = options_of(name)
    assert ("--kubeconfig" in options) == ("--context" in options)


@pytest.mark.parametrize("name", PRINT_OBJECTS)
def test_commands_that_print_objects_have_the_same_forms(name: str) -> None:
    output = options_of(name)["-o"]
    assert isinstance(output.type, click.Choice)
    assert list(output.type.choices) == ["table", "wide", "json", "yaml"]


def a_kubeconfig(folder: Path) -> Path:
    """Two clusters that nobody serves."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": each, "cluster": {"server": f"https://127.0.0.1:{port}"}} for each, port in PORTS],
        "users": [],
        "contexts": [{"name": each, "context": {"cluster": each}} for each, _ in PORTS],
        "current-context": "one",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


PORTS = (("one", 1), ("two", 2))
QUESTIONS = (
    ["devices"],
    ["ledger"],
    ["cel", "true"],
    ["doctor"],
    ["explain", "pod/a"],
    ["top"],
    ["dashboard"],
)


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_the_context_says_which_cluster_is_asked(question: list[str], tmp_path: Path) -> None:
    place = ["--kubeconfig", str(a_kubeconfig(tmp_path))]
    for context, port in ((), 1), (("--context", "two"), 2):
        result = CliRunner().invoke(cli, [*question, *place, *context])
        assert result.exit_code == 3, result.output
        assert f"127.0.0.1:{port}" in result.output
    result = CliRunner().invoke(cli, [*question, *place, "--context", "three"])
    assert (result.exit_code, "'three' is not among its contexts" in result.output) == (3, True)


def test_a_dump_and_a_context_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "dump.yaml").write_text("")
    result = CliRunner().invoke(cli, ["devices", "-f", str(tmp_path / "dump.yaml"), "--context", "two"])
    assert (result.exit_code, "-f and --context exclude each other" in result.output) == (2, True)
