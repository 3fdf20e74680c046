"""The layout: nodes that are alike in one row, lines as wide as the terminal, all waiting pods by cause."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dray.cli.explain import explain
from dray.explain.dump import Dump, add_document
from dray.explain.pod_text import text_of
from dray.sim.pod_explanation import explain_pod, explained_cluster
from tests.explain.manifests import Cluster, gpu_claim, gpu_node, gpu_pod, gpu_request, gpu_slice


def invoked(cluster: Cluster, path: Path, *words: str) -> Result:
    file = path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    return CliRunner().invoke(explain, [*words, "-f", str(file)])


def many_nodes() -> Cluster:
    cluster = Cluster()
    cluster.request["count"] = 3
    for number in range(2, 41):
        cluster.add(gpu_node(f"node-{number}"), gpu_slice(f"node-{number}"))
    cluster.add(gpu_node("cpu-1"))
    return cluster


def test_nodes_that_are_alike_share_a_row(tmp_path: Path) -> None:
    lines = invoked(many_nodes(), tmp_path, "pod/train").output.splitlines()
    rows = lines[lines.index("") + 2 :][:2]
    assert rows[0].startswith("node-1 … node-40, 40 alike   too-few-devices")
    assert rows[1].startswith("cpu-1 ")
    wide = invoked(many_nodes(), tmp_path, "pod/train", "-o", "wide").output
    assert sum(line.startswith("node-") for line in wide.splitlines()) == 40


def test_lines_are_wrapped_to_the_width() -> None:
    dump = Dump()
    for document in many_nodes().documents():
        assert add_document(dump, document, None) == ""
    for width in (60, 90):
        text = text_of(explain_pod(dump.world(), "default", "train"), width=width)
        assert max(map(len, text.splitlines())) <= width
    head, _, _ = text.partition("devices on")
    assert "".join(head.split()) in "".join(text_of(explain_pod(dump.world(), "default", "train"), width=1000).split())


def test_the_ways_to_name_a_pod(tmp_path: Path) -> None:
    cluster = many_nodes()
    outputs = {invoked(cluster, tmp_path, *words).output for words in (("pod/train",), ("pod", "train"), ("train",))}
    assert len(outputs) == 1
    assert "one pod at a time" in invoked(cluster, tmp_path, "train", "other").output


def test_all_waiting_pods_by_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = many_nodes()
    for number in range(7):
        cluster.add(gpu_claim(f"claim-{number}", gpu_request(count=4)), gpu_pod(f"pod-{number}", f"claim-{number}"))
    cluster.add(gpu_pod("gated", "", schedulingGates=[{"name": "example.com/later"}]))
    result = invoked(cluster, tmp_path, "--all")
    assert result.exit_code == 1
    assert "8 pods: too-few-devices (the node has fewer devices than are asked for)" in result.output
    assert "  ... and 3 more" in result.output
    assert "1 pod: scheduling-gates" in result.output
    made = []
    original = explained_cluster.Simulation
    monkeypatch.setattr(
        explained_cluster, "Simulation", lambda *given, **more: made.append(1) or original(*given, **more)
    )
    documents = json.loads(invoked(cluster, tmp_path, "--all", "-o", "json").stdout)
    assert len(documents) == 9
    assert len(made) == 1  # The cluster is compiled once for all of them.


def on_a_terminal(cluster: Cluster, path: Path, columns: int, **environment: str) -> str:
    """What the command writes to a terminal of that width."""
    file = path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-c", "from dray.cli.main import main; main()", "explain", "pod/train", "-f", str(file)]
    base = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env={**base, "TERM": "xterm", **environment})
    os.close(terminal)
    written = b""
    try:
        while part := os.read(main, 65536):
            written += part
    except OSError:
        pass  # The terminal is closed when the command has ended.
    assert process.wait(30) == 1
    os.close(main)
    return written.decode().replace("\r\n", "\n")


def test_bold_and_colours_on_a_terminal(tmp_path: Path) -> None:
    text = on_a_terminal(many_nodes(), tmp_path, 100)
    lines = text.splitlines()
    assert lines[0].startswith("\x1b[1mdefault/train waits: ")
    assert any(line.startswith("  \x1b[32m\x1b[1mhelps:\x1b[0m ") for line in lines)
    assert any("\x1b[31mtoo-few-devices\x1b[0m" in line for line in lines)
    shown = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert max(map(len, shown)) <= 100


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["no-color", "dumb"])
def test_no_colours_where_they_are_not_wanted(tmp_path: Path, environment: dict[str, str]) -> None:
    assert "\x1b" not in on_a_terminal(many_nodes(), tmp_path, 100, **environment)


def test_no_colours_in_a_pipe(tmp_path: Path) -> None:
    assert "\x1b" not in invoked(many_nodes(), tmp_path, "pod/train").output


def test_pods_that_are_kept_from_starting_are_among_all(tmp_path: Path) -> None:
    cluster = many_nodes()
    claim = gpu_claim("hung-gpu")
    pod = gpu_pod("hung", "hung-gpu", nodeName="node-2")
    pod["status"] = {"phase": "Pending"}
    cluster.add(claim, pod)
    output = invoked(cluster, tmp_path, "--all").output
    assert "1 pod: pod-without-devices" in output
    assert "default/hung is on node node-2, but its claim hung-gpu has no devices" in output
