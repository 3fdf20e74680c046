"""The manifests in `deploy/`: the API server takes them all, and their roles are enough for the parts to work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dray.client import NODES, ApiError, connect
from dray.testing import cluster

ROOT = Path(__file__).parent.parent.parent
BASE = ROOT / "deploy" / "base"
EXAMPLES = ROOT / "examples"
NAMESPACE = "dray-system"


def manifests(folder=BASE):
    """What `kubectl apply -k` makes of a folder, with the folders that it builds on."""
    documents = []
    for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        if (folder / name).is_dir():
            documents += manifests(folder / name)
        else:
            documents += [document for document in yaml.safe_load_all((folder / name).read_text()) if document]
    return documents


def find(kind, name):
    return next(each for each in manifests() if (each["kind"], each["metadata"]["name"]) == (kind, name))


class Part:
    """A process started with the arguments of its manifest, as its service account."""

    def __init__(self, running, folder, workload, account, *, node="", more=()):
        self._log = folder / f"{account}.log"
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        # Gates of a release would leave features out that the roles are there for.
        arguments = [each for each in container["args"] if not each.startswith(("--emulate", "--bind-address"))]
        arguments = [each.replace("/etc/dray", str(folder)) for each in arguments]
        self.kubeconfig = kubeconfig = folder / f"{account}.kubeconfig"
        kubeconfig.write_text(kubeconfig_of(running, account, node))
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "NODE_NAME": node}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dray", *arguments, *more], env=environment, stdout=log, stderr=log
            )

    def end(self):
        self._process.terminate()
        self._process.wait(20)

    @property
    def log(self):
        return self._log.read_text()


def kubeconfig_of(running, account, node):
    """The administrator's, with a token of the account instead of a certificate."""
    request = {"spec": {"expirationSeconds": 3600}}
    if node:
        # A driver's token says on which node its pod runs; so the pod has to be there.
        pod = {"metadata": {"name": "driver"}, "spec": {"nodeName": node, "serviceAccountName": account}}
        pod["spec"]["containers"] = [{"name": "driver", "image": "dray", "command": ["sleep", "600"]}]
        running.apply({"apiVersion": "v1", "kind": "Pod", **pod}, namespace=NAMESPACE)
        request["spec"]["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": "driver"}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    answer = running.run(running.client.raw("POST", path, body=json.dumps(request).encode()))
    config = yaml.safe_load(running.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": json.loads(answer.body)["status"]["token"]}
    return yaml.safe_dump(config)


@pytest.fixture(scope="module")
def running():
    bare = {"with_controllers": False, "with_scheduler": False, "runtime_config": "api/all=true"}
    with cluster(nodes=1, devices=(), **bare) as running:
        # A new node's taint is taken away by a controller that does not run here.
        running.run(running.client.patch(NODES, "node-1", {"spec": {"taints": None}}))
        for namespace in ("default", NAMESPACE):
            running.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            running.apply(account, namespace=namespace)
        for document in manifests():
            running.apply(document)
        yield running


@pytest.fixture(scope="module")
def parts(running, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    (folder / "scheduler.yaml").write_text(find("ConfigMap", "dray-scheduler")["data"]["scheduler.yaml"])
    node_root = running.nodes.kubelets[0]._options.root_dir
    paths = ("--kubelet-root", str(node_root), "--cdi-dir", str(node_root / "cdi"))
    no_port = ("--secure-port", "0")
    parts = [
        Part(running, folder, find("Deployment", "dray-scheduler"), "dray-scheduler", more=no_port),
        Part(running, folder, find("Deployment", "dray-controller-manager"), "dray-controller-manager", more=no_port),
        Part(running, folder, find("DaemonSet", "dray-driver-gpu"), "dray-driver", node="node-1", more=paths),
    ]
    yield parts
    for part in parts:
        part.end()


def with_our_scheduler(file):
    documents = [each for each in yaml.safe_load_all((EXAMPLES / file).read_text()) if each]
    for document in documents:
        if document["kind"] == "Pod":
            document["spec"]["schedulerName"] = "dray-scheduler"
    return documents


POOL_STATUS = {
    "apiVersion": "resource.k8s.io/v1alpha3",
    "kind": "ResourcePoolStatusRequest",
    "metadata": {"name": "gpus"},
    "spec": {"driver": "gpu.example.com"},
}


def pool_status(running):
    path = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests/gpus"
    return running.run(running.client.raw("GET", path)).body


def refusals(running):
    text = running.run(running.client.raw("GET", "/metrics")).body.decode()
    return [line for line in text.splitlines() if line.startswith("apiserver_request_total") and 'code="403"' in line]


def test_the_server_stores_every_object(running):
    assert len(manifests()) == 21
    stored = running.run(running.client.raw("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"))
    assert {each["metadata"]["name"] for each in json.loads(stored.body)["items"]} == {
        "dray-scheduler",
        "dray-controller-manager",
    }


def test_the_server_takes_the_driver_of_nvidia_cards(running):
    (driver,) = [each for each in manifests(ROOT / "deploy/nvidia") if each not in manifests()]
    running.apply(driver)
    stored = running.run(
        running.client.raw("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/dray-driver-nvidia")
    )
    (container,) = json.loads(stored.body)["spec"]["template"]["spec"]["containers"]
    assert container["args"] == driver["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_server_takes_the_drivers_of_cpus_and_memory(running):
    (driver,) = [each for each in manifests(ROOT / "deploy/cpu") if each not in manifests()]
    running.apply(driver)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/dray-driver-cpu"
    stored = json.loads(running.run(running.client.raw("GET", path)).body)["spec"]
    containers = stored["template"]["spec"]["containers"]
    assert [each["args"][1] for each in containers] == ["cpu", "memory"]
    assert all(each["securityContext"]["capabilities"] == {"drop": ["ALL"]} for each in containers)
    # Two plugins that set the CPUs of one container are one too many.
    assert stored["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0


def test_the_server_takes_the_driver_of_interfaces(running):
    added = [each for each in manifests(ROOT / "deploy/net") if each not in manifests()]
    assert [each["kind"] for each in added] == ["ClusterRole", "ClusterRoleBinding", "DaemonSet"]
    for each in added:
        running.apply(each)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/dray-driver-net"
    stored = json.loads(running.run(running.client.raw("GET", path)).body)
    (container,) = stored["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]


def test_the_roles_are_enough(running, parts):
    def told():
        return "\n".join(part.log[-2000:] for part in parts)

    for file in (
        "gpu/classes.yaml",
        "gpu/one-gpu.yaml",
        "features/extended-resources.yaml",
        "features/device-taints.yaml",
    ):
        for document in with_our_scheduler(file):
            running.apply(document)
    try:
        for pod in ("one-gpu", "extended", "repair"):
            running.wait_until_running(pod, timeout_s=60)
        assert "cannot allocate all claims" in running.wait_until_unschedulable("careful")
        running.apply(EXAMPLES / "features/eviction.yaml")
        running.wait_until_gone("repair")
        running.delete_pod("one-gpu")
        running.wait_until_gone("one-gpu")
        running.apply(POOL_STATUS)
        running.wait_until(lambda: b'"poolCount":1' in pool_status(running), "the pool's status", state=told)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told()}") from error
    assert refusals(running) == [], told()


def test_a_driver_reads_claims_and_nodes_and_writes_slices():
    (role,) = (
        each for each in manifests() if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", "dray-driver")
    )
    allowed = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert allowed == {
        "nodes": {"get"},
        "resourceclaims": {"get"},
        "resourceslices": {"get", "list", "watch", "create", "update", "patch", "delete"},
    }


def test_a_driver_may_not_write_slices_of_another_node(running, parts):
    pool = {"name": "elsewhere", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": "node-2", "pool": pool, "devices": [{"name": "a"}]}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "x"}, "spec": spec}

    async def write():
        client = connect(parts[2].kubeconfig)
        try:
            await client.raw("POST", "/apis/resource.k8s.io/v1/resourceslices", body=json.dumps(body).encode())
        finally:
            await client.close()

    with pytest.raises(ApiError, match="a driver on node node-1 may not write slices of node node-2"):
        running.run(write())


def test_every_object_passes_lint():
    done = subprocess.run(
        [sys.executable, "-m", "dray", "lint", "-f", BASE], capture_output=True, text=True, check=False
    )
    assert " error: " not in done.stdout, done.stdout
