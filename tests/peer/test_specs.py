"""Kubernetes' own specs against `dray up`, whose simulated nodes say of bound pods that they run. No images are there, and nothing runs in pods."""

import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.e2e.processes import Process
from tests.peer.binaries import program, why_not
from tests.waiting import eventually_blocking

pytestmark = pytest.mark.torture

# More than ten nodes are simulated ones.
NODES = 11
RAN = re.compile(r"^(?:FAIL|SUCCESS)! -- (\d+) Passed \| (\d+) Failed", re.MULTILINE)
FAILED = re.compile(r"^\s+\[(?:FAIL|PANICKED)!?\] (.*)$", re.MULTILINE)


@pytest.mark.parametrize(
    ("focus", "skip", "most_failed"),
    [
        # Those that are left out need a real kubelet, or gates that the release does not switch on.
        pytest.param(r"\[DRA\]", "kubelet|Feature:DynamicResourceAllocation|DRADeviceCompatibilityGroups", 0, id="dra"),
        # The one that fails waits for a webhook that comes as an image; so do those that are left out.
        pytest.param(
            r"\[sig-api-machinery\].*\[Conformance\]",
            "AdmissionWebhook|ConversionWebhook|Aggregator|OrderedNamespaceDeletion",
            1,
            id="api-machinery",
        ),
        pytest.param(r"\[sig-scheduling\].*\[Conformance\]", "nothing-at-all", 0, id="scheduling"),
    ],
)
@pytest.mark.timeout(3600)
def test_kubernetes_specs(focus: str, skip: str, most_failed: int) -> None:
    if missing := why_not("e2e.test"):
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="dray-s", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        output = run_specs(folder, focus, skip)
    ran = RAN.search(output)
    assert ran is not None, output[-3000:]
    failed = sorted(set(FAILED.findall(output)))
    print(f"{focus}: {ran[1]} passed, {ran[2]} failed", *failed, sep="\n  ")
    assert int(ran[1]) > 0
    assert int(ran[2]) <= most_failed


def run_specs(folder: Path, focus: str, skip: str) -> str:
    kubeconfig, ready = folder / "kubeconfig", folder / "ready"
    options = ("--nodes", str(NODES), "--devices", "none", "--data", str(folder / "data"))
    files = ("--kubeconfig", str(kubeconfig), "--ready-file", str(ready))
    cluster = Process(folder, "up", "up", *options, *files, "--runtime-config", "api/all=true")
    cluster.start()
    try:
        eventually_blocking(ready.exists, lambda: cluster.log.read_text()[-2000:], 60)
        command = [
            program("e2e.test"),
            f"--kubeconfig={kubeconfig}",
            "--provider=local",
            "--ginkgo.no-color",
            f"--ginkgo.focus={focus}",
            f"--ginkgo.skip={skip}",
            f"--num-nodes={NODES}",
            "--minStartupPods=0",
            "--allowed-not-ready-nodes=-1",
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3500, check=False)
        return done.stdout + done.stderr
    finally:
        cluster.stop()
