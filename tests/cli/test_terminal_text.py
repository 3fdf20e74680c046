"""Text on a terminal has no raw backticks: code stands in quotes there."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.explain.manifests import Cluster, gpu_request

from dray.cli.cel import cel
from dray.cli.explain import explain
from dray.cli.main import cli
from dray.cli.output import without_backticks
from dray.explain.reason_codes import CODES


def a_dump(path: Path, expression: str) -> str:
    cluster = Cluster()
    cluster.request.update(gpu_request(selectors=[{"cel": {"expression": expression}}])["exactly"])
    file = path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    return str(file)


def test_selectors_are_quoted(tmp_path: Path) -> None:
    dump = a_dump(tmp_path, 'device.attributes["gpu.example.com"].modell == "a100"')
    said = CliRunner().invoke(explain, ["pod/train", "-f", dump]).output
    assert "modell" in said
    assert "`" not in said
    told = (
        CliRunner().invoke(cel, ['device.attributes["gpu.example.com"].model == "x"', "-f", dump, "-o", "wide"]).output
    )
    assert "`" not in told


def test_quotes_come_in_pairs() -> None:
    assert without_backticks("write `a` instead of `b`") == "write “a” instead of “b”"
    assert without_backticks("one ` alone") == "one ` alone"


def commands(found: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(found, click.Group):
        return [path]
    context = click.Context(found)
    rows: list[tuple[str, ...]] = []
    for name in found.list_commands(context):
        command = found.get_command(context, name)
        assert command is not None
        rows += commands(command, (*path, name))
    return rows


@pytest.mark.parametrize("path", commands(cli), ids="-".join)
def test_help_has_no_backticks(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert "`" not in result.output


def test_the_words_for_codes_have_pairs_only() -> None:
    assert [code for code, row in CODES.items() if "`" in without_backticks(row.meaning + row.remedy)] == []
