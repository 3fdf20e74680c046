"""The layout: nodes that are alike in one row, lines as wide as the terminal, all waiting pods by cause."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from dray.cli.explain import explain
from dray.explain.dump import Dump, add_document
from dray.explain.pod_text import text_of
from dray.sim.pod_explanation import explain_pod
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
    text = text_of(explain_pod(dump.world(), "default", "train"), width=90)
    head, _, _ = text.partition("devices on")
    assert max(map(len, head.splitlines())) <= 90
    assert "".join(head.split()) in "".join(text_of(explain_pod(dump.world(), "default", "train"), width=1000).split())


def test_the_ways_to_name_a_pod(tmp_path: Path) -> None:
    cluster = many_nodes()
    outputs = {invoked(cluster, tmp_path, *words).output for words in (("pod/train",), ("pod", "train"), ("train",))}
    assert len(outputs) == 1
    assert "one pod at a time" in invoked(cluster, tmp_path, "train", "other").output


def test_all_waiting_pods_by_cause(tmp_path: Path) -> None:
    cluster = many_nodes()
    for number in range(7):
        cluster.add(gpu_claim(f"claim-{number}", gpu_request(count=4)), gpu_pod(f"pod-{number}", f"claim-{number}"))
    cluster.add(gpu_pod("gated", "", schedulingGates=[{"name": "example.com/later"}]))
    result = invoked(cluster, tmp_path, "--all")
    assert result.exit_code == 1
    assert "8 pods: too-few-devices (the node has fewer devices than are asked for)" in result.output
    assert "  ... and 3 more" in result.output
    assert "1 pod: scheduling-gates" in result.output
    documents = json.loads(invoked(cluster, tmp_path, "--all", "-o", "json").stdout)
    assert len(documents) == 9
