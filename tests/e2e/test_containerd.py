"""Pods with claims in real containers: containerd makes them, and puts in what CDI files say."""

import json
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.e2e.containerd import IMAGE, Containerd, version, why_not
from tests.e2e.processes import ClusterOfProcesses, wait_until
from tests.e2e.test_processes import EXAMPLES, checkpoint, free_port, is_clean, phase, published

if why_not():
    pytest.skip(why_not(), allow_module_level=True)

POD = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: one-card}}
spec:
  spec:
    devices:
      requests: [{{name: card, exactly: {{deviceClassName: gpu}}}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
data: {{greeting: hello from a volume}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  securityContext: {{fsGroup: 2345}}
  volumes:
  - {{name: settings, configMap: {{name: settings}}}}
  - {{name: scratch, emptyDir: {{}}}}
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: one-card}}]
  containers:
  - name: main
    image: {image}
    command: [sh, -c, 'env; cat /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/gpu/card/*-metadata.json; echo ready; exec sleep 1000']
    env: [{{name: OWN, value: mine}}]
    resources: {{claims: [{{name: gpu}}]}}
  - name: other
    image: {image}
    command: [sh, -c, 'env; id; cat /settings/greeting; echo kept > /scratch/file && cat /scratch/file; cat $TOKENS/namespace; echo; echo no > /file; echo ready; exec sleep 1000']
    env: [{{name: TOKENS, value: /var/run/secrets/kubernetes.io/serviceaccount}}]
    volumeMounts: [{{name: settings, mountPath: /settings}}, {{name: scratch, mountPath: /scratch}}]
    securityContext: {{runAsUser: 1234, readOnlyRootFilesystem: true}}
    lifecycle: {{postStart: {{exec: {{command: [sh, -c, 'echo hooked > /scratch/hook']}}}}}}
    readinessProbe: {{exec: {{command: [cat, /scratch/ready]}}, periodSeconds: 1, failureThreshold: 1}}
"""


@pytest.fixture
def cluster(request):
    with tempfile.TemporaryDirectory(prefix="dray-c", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        containerd = Containerd(folder / "c", folder / "cdi", applies_cdi=request.param)
        runtime = f"cri://{containerd.socket}"
        cluster = ClusterOfProcesses(folder, free_port(), kubelet_options=("--runtime", runtime))
        cluster.containerd = containerd
        try:
            containerd.start()
            cluster.start()
            cluster.kubectl("apply", "-f", str(EXAMPLES / "gpu/classes.yaml"))
            wait_until(lambda: "gpu.example.com" in published(cluster), "the driver to publish", cluster)
            yield cluster
        finally:
            cluster.stop()
            containerd.stop()


def run_pod(cluster, name):
    (cluster.folder / "pod.yaml").write_text(POD.format(name=name, image=IMAGE))
    cluster.kubectl("apply", "-f", str(cluster.folder / "pod.yaml"))
    wait_until(lambda: phase(cluster, name) == "Running", f"{name} to run", cluster, 90)
    for container in ("main", "other"):
        wait_until(
            lambda each=container: "ready" in cluster.kubectl("logs", name, "-c", each, check=False),
            f"output of {container}",
            cluster,
        )


def containers_of(cluster, name):
    pod = json.loads(cluster.kubectl("get", "pod", name, "-o", "json"))
    return {each["name"]: (each["containerID"], each["restartCount"]) for each in pod["status"]["containerStatuses"]}


def delete_pod(cluster, name):
    cluster.kubectl("delete", "pod", name, "--wait=true", "--timeout=60s")
    wait_until(lambda: is_clean(cluster) and not cluster.containerd.containers(), "everything to be gone", cluster, 90)


@pytest.mark.skipif(version() < (1, 7), reason="containerd before 1.7 does not know CDI devices")
@pytest.mark.parametrize("cluster", [True], indirect=True, ids=["with-cdi"])
def test_a_claims_devices_are_in_its_container_and_in_no_other(cluster):
    run_pod(cluster, "real")
    output = cluster.kubectl("logs", "real", "-c", "main")
    assert "GPU_DEVICE_GPU_0=gpu-0" in output
    assert "OWN=mine" in output
    assert '"kind": "DeviceMetadata"' in output, "the file with the devices' attributes is mounted"
    assert "GPU_DEVICE" not in cluster.kubectl("logs", "real", "-c", "other")
    stamped = cluster.kubectl("logs", "real", "-c", "main", "--timestamps", "--tail=1")
    assert stamped.endswith("Z ready\n"), stamped
    node = json.loads(cluster.kubectl("get", "node", "worker", "-o", "json"))
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    before = containers_of(cluster, "real")
    assert all(id_.startswith("containerd://") for id_, _ in before.values())

    cluster.kubelet.restart()
    cluster.containerd.restart()
    wait_until(lambda: "gpu.example.com" in published(cluster), "devices to be published again", cluster)
    assert containers_of(cluster, "real") == before, "neither the agent's nor the runtime's restart ends containers"

    for id_, _ in before.values():
        cluster.containerd.ctr("tasks", "kill", "--signal", "SIGKILL", id_.removeprefix("containerd://"))
    wait_until(
        lambda: all(restarts == 1 for _, restarts in containers_of(cluster, "real").values()), "restarts", cluster, 60
    )
    wait_until(lambda: "ready" in cluster.kubectl("logs", "real", "-c", "main"), "output after the restart", cluster)
    assert "GPU_DEVICE_GPU_0=gpu-0" in cluster.kubectl("logs", "real", "-c", "main")
    assert "ready" in cluster.kubectl("logs", "real", "-c", "main", "--previous")
    delete_pod(cluster, "real")


@pytest.mark.parametrize("cluster", [False], indirect=True, ids=["without-cdi"])
def test_a_runtime_that_does_not_know_cdi_starts_containers_without_their_devices(cluster):
    """Nobody on the node can tell; the claim is prepared and given back all the same."""
    run_pod(cluster, "bare")
    output = cluster.kubectl("logs", "bare", "-c", "main")
    assert "OWN=mine" in output
    assert "GPU_DEVICE" not in output
    assert len(checkpoint(cluster)) == 1
    check_volumes(cluster.kubectl("logs", "bare", "-c", "other"))
    check_probes(cluster, "bare")
    check_streams(cluster, "bare")
    delete_pod(cluster, "bare")


def check_volumes(output):
    """A ConfigMap, a folder that the pod's group may write to, and the files of the service account; a user, and nothing else to write to."""
    for line in ("hello from a volume", "kept", "default", "uid=1234 gid=0 groups=0,2345"):
        assert line in output
    assert "can't create /file: Read-only file system" in output


def check_probes(cluster, pod):
    def is_ready():
        found = cluster.ask(f"/api/v1/namespaces/default/pods/{pod}")["status"]["containerStatuses"]
        return {each["name"]: each["ready"] for each in found}

    assert is_ready() == {"main": True, "other": False}
    assert cluster.kubectl("exec", pod, "-c", "other", "--", "cat", "/scratch/hook").strip() == "hooked"
    cluster.kubectl("exec", pod, "-c", "other", "--", "sh", "-c", "echo > /scratch/ready")
    wait_until(lambda: all(is_ready().values()), "the readiness probe to succeed", cluster)


def check_streams(cluster, pod):
    """Commands in a container and ports of its pod, which containerd serves over SPDY."""
    assert cluster.kubectl("exec", pod, "-c", "main", "--", "sh", "-c", "echo $OWN").strip() == "mine"
    failed = cluster.kubectl("exec", pod, "-c", "main", "--", "sh", "-c", "echo oops >&2; exit 3", check=False)
    assert "oops" in failed
    assert "command terminated with exit code 3" in failed
    assert "executable file not found" in cluster.kubectl("exec", pod, "-c", "main", "--", "none", check=False)
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(
        [*command, "exec", "-i", pod, "-c", "main", "--", "cat"], input="x" * 200_000, capture_output=True, text=True
    )
    assert done.stdout == "x" * 200_000
    port = cluster.kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}").rpartition(":")[2]
    forward = subprocess.Popen([*command, "port-forward", pod, f":{port}"], stdout=subprocess.PIPE, text=True)
    try:
        local = forward.stdout.readline().split()[2]
        found = cluster.kubectl("--server", f"https://{local}", "get", "--raw", "/version")
        assert "gitVersion" in found, "the pod has the machine's network, where the API server listens"
    finally:
        forward.kill()
        forward.wait()
