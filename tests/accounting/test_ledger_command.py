"""`dray ledger` over a dump and over a live API server."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner

from dray.cli.main import cli

DUMP = Path(__file__).parent / "data" / "dump.yaml"


def run(*args: str, **more):
    return CliRunner().invoke(cli, ["ledger", *args], **more)


def lines(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in text.splitlines()]


def test_table_by_spec_and_by_claims():
    result = run("-f", str(DUMP))
    assert result.exit_code == 0
    assert lines(result.stdout) == [
        ["NODE", "RESOURCE", "ALLOCATABLE", "BY SPEC", "BY CLAIMS", "REQUESTED", "FREE"],
        ["node-1", "cpu", "128", "500m", "102", "102500m", "25500m"],
        ["node-1", "memory", "256Gi", "1Gi", "5Gi", "6Gi", "250Gi"],
        ["node-2", "cpu", "8", "0", "0", "0", "8"],
        ["node-2", "memory", "16Gi", "0", "0", "0", "16Gi"],
    ]
    assert "warning: pod default/web: claims take from the node, but the pod's status does not say so" in result.stderr


def test_wide_shows_every_resource_and_pods():
    shown = [line[:2] for line in lines(run("-f", str(DUMP), "-o", "wide", "--node", "node-1").stdout)]
    assert shown[1:] == [["node-1", name] for name in ("cpu", "memory", "hugepages-2Mi", "pods")]


def test_why():
    result = run("-f", str(DUMP), "--why", "cpu")
    pool = ["node-1", "default/pod1, default/pod2", "pool", "-", "shared-cpu-claim"]
    assert lines(result.stdout)[1:] == [
        [*pool, "cpu.example.com/node-1/socket-0", "100", "ConsumeFrom"],
        ["node-1", "default/web", "container", "app", "-", "-", "500m", "-"],
        [
            "node-1",
            "default/web",
            "claim",
            "-",
            "web-xpu-x7k2p",
            "xpu.example.com/node-1/xpu-0",
            "2",
            "overhead per pod",
        ],
    ]


@pytest.mark.parametrize(("output", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_documents(output, load):
    document = load(run("-f", str(DUMP), "-o", output, "--why", "memory").stdout)
    node = document["nodes"][0]
    assert node["resources"]["cpu"] == {
        "allocatable": "128",
        "bySpec": "500m",
        "byClaims": "102",
        "requested": "102500m",
        "free": "25500m",
    }
    assert node["claimStates"] == {
        "default/shared-cpu-claim": {
            "allocated": {"cpu": "100"},
            "consumed": {"cpu": "30"},
            "consumers": ["default/pod1", "default/pod2"],
        }
    }
    assert [row["quantity"] for row in document["why"]["memory"]] == ["1Gi", "4Gi", "1Gi"]


def test_dump_from_standard_input_as_json():
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "1"}}}
    result = run("-f", "-", input=json.dumps({"kind": "List", "apiVersion": "v1", "items": [node]}))
    assert lines(result.stdout)[1] == ["n", "cpu", "1", "0", "0", "0", "1"]


def test_dump_of_a_folder(tmp_path):
    (tmp_path / "nodes.yaml").write_text("{kind: Node, apiVersion: v1, metadata: {name: node}}")
    (tmp_path / "readme.txt").write_text("not an object")
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "elsewhere"}}
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "PodList", "apiVersion": "v1", "items": [pod]}))
    result = run("-f", str(tmp_path), "-o", "json")
    document = json.loads(result.stdout)
    assert [node["name"] for node in document["nodes"]] == ["node"]
    assert document["warnings"] == ["node elsewhere is not among the objects, but has pods"]


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        pytest.param(["-f", "/no/such/file"], 2, "No such file", id="no-file"),
        pytest.param(["-f", str(DUMP), "--node", "nope"], 2, "no node named nope", id="no-node"),
        pytest.param(["-f", str(DUMP), "--kubeconfig", "x"], 2, "exclude each other", id="two-sources"),
        pytest.param(["--kubeconfig", "/no/such/kubeconfig"], 3, "kubeconfig", id="no-cluster"),
    ],
)
def test_exit_codes(args, code, text):
    result = run(*args)
    assert result.exit_code == code
    assert text in result.stderr


def test_bad_objects_are_named_and_the_rest_is_shown(tmp_path):
    dump = tmp_path / "dump.yaml"
    dump.write_text(
        """
apiVersion: v1
kind: Node
metadata: {name: node}
status: {allocatable: {cpu: "4", pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: bad, namespace: default}
spec: {nodeName: node, containers: [{name: c, resources: {requests: {cpu: "-1"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: good, namespace: default}
spec: {nodeName: node, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
"""
    )
    result = run("-f", str(dump))
    assert lines(result.stdout)[1] == ["node", "cpu", "4", "1", "0", "1", "3"]
    assert "warning: pod default/bad is not counted: c: cpu -1 is below zero" in result.stderr
    dump.write_text("kind: Node\nmetadata: [")
    assert run("-f", str(dump)).exit_code == 2


@pytest.fixture
def live_cluster(tmp_path):
    """An API server of five lists, as small as HTTP allows, and the kubeconfig for it."""
    items = {
        "/api/v1/nodes": [{"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}}],
        "/api/v1/pods": [
            {
                "metadata": {"name": "p", "namespace": "default"},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            }
        ],
    }

    class Lists(BaseHTTPRequestHandler):
        def do_GET(self):
            path = urlsplit(self.path).path
            body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items.get(path, [])}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Lists)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "clusters": [cluster],
                "contexts": [context],
                "users": [{"name": "u", "user": {}}],
                "current-context": "x",
            }
        )
    )
    yield str(kubeconfig)
    server.shutdown()
    thread.join()
    server.server_close()


async def test_live(live_cluster):
    result = await asyncio.to_thread(run, "--kubeconfig", live_cluster)
    assert result.exit_code == 0, result.stderr
    assert lines(result.stdout)[1] == ["n", "cpu", "4", "1", "0", "1", "3"]
