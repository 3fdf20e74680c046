"""`dray.testing.cluster` as the author of a test uses it: helpers, own drivers, timeouts that explain, short tracebacks."""

import re
import subprocess
import sys
import textwrap
import time

import pytest

from dray.client import ApiError
from dray.driver import Device, Driver, Pool, PreparedDevice, PrepareError
from dray.testing import NodePool, NodePoolError, TimedOut, cluster

CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: lamp}
spec: {selectors: [{cel: {expression: device.driver == "lamp.example.com"}}]}
"""


def pod(name, script="echo lit; sleep 1000", count=1, restart="Always"):
    return f"""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}}}
spec: {{devices: {{requests: [{{name: lamp, exactly: {{deviceClassName: lamp, count: {count}}}}}]}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: {restart}
  terminationGracePeriodSeconds: 1
  resourceClaims: [{{name: lamp, resourceClaimName: {name}}}]
  containers: [{{name: main, image: any, command: [sh, -c, "{script}"], resources: {{claims: [{{name: lamp}}]}}}}]
"""


class LampDriver(Driver):
    name = "lamp.example.com"
    fused = False

    def pools(self, node_name):
        return [Pool(node_name, (Device(name="lamp-0"), Device(name="lamp-1")))]

    def prepare(self, claim):
        if self.fused:
            raise PrepareError("the fuse has blown")
        return [PreparedDevice(device) for device in claim.devices]


@pytest.fixture(scope="module")
def lamps():
    with cluster(drivers=[LampDriver()]) as c:
        c.apply(CLASS)
        yield c


@pytest.fixture
def ending(lamps):
    """Names of pods to delete after the test."""
    names = []
    yield names
    lamps.delete(*[f"{kind}/{name}" for name in names for kind in ("resourceclaim", "pod")])


def test_logs_events_and_objects(lamps, ending):
    ending.append("light")
    lamps.apply(pod("light"))
    assert lamps.wait_for_log("light", "lit") == "lit\n"
    assert lamps.logs("light", container="main") == "lit\n"
    reasons = [event.reason for event in lamps.events("light")]
    assert "Scheduled" in reasons
    assert len(lamps.events()) >= len(reasons)
    assert [each["metadata"]["name"] for each in lamps.objects("deviceclasses")] == ["lamp"]
    assert [each["metadata"]["name"] for each in lamps.objects("pod", "default")] == ["light"]


def test_delete_waits_and_does_not_mind_what_is_gone(lamps):
    lamps.apply(pod("short"))
    lamps.wait_until_running("short")
    lamps.delete(pod("short"))
    assert lamps.objects("pods") == lamps.objects("resourceclaims") == []
    lamps.delete(pod("short"), "pod/never-there")
    with pytest.raises(FileNotFoundError, match=r"no/such\.yaml"):
        lamps.delete("no/such.yaml")
    with pytest.raises(ValueError, match="'lamp/one': neither a file with"):
        lamps.delete("lamp/one")


@pytest.mark.parametrize("document", [{"kind": "Pod"}, {"apiVersion": "v1", "kind": "Pod", "metadata": "p"}])
def test_what_is_no_object_is_refused(lamps, document):
    with pytest.raises(ValueError, match=r"an object needs apiVersion, kind and metadata\.name: "):
        lamps.apply(document)


def test_a_driver_of_ones_own_is_at_hand(lamps, ending):
    assert isinstance(lamps.driver("lamp.example.com"), LampDriver)
    with pytest.raises(LookupError, match=r"no driver lamp\.example\.com serves on node-7"):
        lamps.driver("lamp.example.com", "node-7")


def test_a_pod_that_waits_is_explained_when_the_time_is_up(lamps, ending):
    ending.append("three")
    lamps.apply(pod("three", count=3))
    with pytest.raises(TimedOut) as caught:
        lamps.wait_until_running("three", timeout_s=1)
    lines = str(caught.value).splitlines()
    assert lines[0] == "waited 1 s for pod three to be Running"
    assert lines[1].startswith("  default/three waits: ")
    assert any("ask for 2 instead of 3" in line for line in lines)
    assert lamps.explain("three") in textwrap.dedent("\n".join(lines[1:]))
    assert lamps.verdict("three").helps


def test_a_driver_that_refuses_is_named_when_the_time_is_up(lamps, ending):
    ending.append("dark")
    lamps.driver("lamp.example.com").fused = True
    try:
        lamps.apply(pod("dark"))
        with pytest.raises(TimedOut, match="the fuse has blown"):
            lamps.wait_until_running("dark", timeout_s=3)
    finally:
        lamps.driver("lamp.example.com").fused = False


def test_a_pod_that_has_finished_is_not_waited_for(lamps, ending):
    ending.append("broken")
    lamps.apply(pod("broken", "echo no bulb; exit 3", restart="Never"))
    started = time.monotonic()
    with pytest.raises(TimedOut) as caught:
        lamps.wait_until_succeeded("broken", timeout_s=60)
    assert time.monotonic() - started < 30
    assert str(caught.value).startswith("pod broken has finished without being Succeeded\n")
    assert "printed: no bulb" in str(caught.value)


def test_a_pod_that_is_not_there_is_told_from_one_that_waits(lamps):
    with pytest.raises(TimedOut, match="there is no such pod in namespace default; pods there: none"):
        lamps.wait_until_running("nobody", timeout_s=0.2)


def test_refusals_of_the_server_are_raised_as_they_are(lamps):
    with pytest.raises(ApiError, match=r'spec\.selectors\[0\]\.cel\.expression: Invalid value: "devise'):
        lamps.apply(CLASS.replace("device.driver", "devise.driver"))


# --- starting -------------------------------------------------------------------------------------------------------------


class Unready(LampDriver):
    def pools(self, node_name):
        raise RuntimeError("no lamps in this house")


def test_a_driver_that_cannot_start_fails_the_test_with_its_own_words():
    with pytest.raises(RuntimeError, match="no lamps in this house"), cluster(drivers=[Unready()]):
        pass


def test_wrong_nodes_are_refused_before_anything_starts():
    with pytest.raises(NodePoolError, match="tpu: no such devices"), cluster(devices=("tpu",)):
        pass
    with pytest.raises(TypeError, match="those of the node pools"), cluster([NodePool()], drivers=[LampDriver]):
        pass


# --- the plugin -----------------------------------------------------------------------------------------------------------

TESTS = """
import pytest
from dray.testing import TimedOut

pytestmark = pytest.mark.dray_cluster(nodes=0)

def test_without_nodes(dray_cluster, dray_namespace):
    assert dray_cluster.objects("nodes") == []
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    dray_cluster.apply(manifest, namespace=dray_namespace)
    dray_cluster.wait_until_running("p", dray_namespace, timeout_s=0.3)

def test_of_a_missing_pod(dray_cluster):
    dray_cluster.pod("nobody")

def test_of_a_missing_file(dray_cluster):
    dray_cluster.apply("no-such.yaml")

def test_of_an_unknown_kind(dray_cluster):
    dray_cluster.apply({"apiVersion": "v1", "kind": "Podd", "metadata": {"name": "p"}})

def test_of_a_wrong_object(dray_cluster):
    dray_cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"container": []}})
"""


def run_pytest(folder, *arguments):
    command = [sys.executable, "-m", "pytest", "-p", "dray.testing.pytest_plugin", "-p", "no:cacheprovider"]
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_a_traceback_has_the_test_alone(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    done = run_pytest(tmp_path, "--strict-markers", "--tb=short", "test_it.py")
    assert "5 failed" in done.stdout
    places = re.findall(r"^(\S+\.py):\d+: in ", done.stdout, re.MULTILINE)
    assert places == ["test_it.py"] * 5, done.stdout
    assert "TimedOut: waited 0.3 s for pod p to be Running" in done.stdout
    assert "there are no nodes" in done.stdout
    assert "No such file or directory: 'no-such.yaml'" in done.stdout
    assert "ValueError: Podd p: the API server knows no Podd of v1" in done.stdout
    assert ".spec.container: field not declared in schema" in done.stdout


def test_the_plugin_costs_nothing_until_it_is_used(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_nothing_is_imported():\n    assert not [n for n in sys.modules if n.startswith('dray.sim')]\n"
    )
    done = run_pytest(tmp_path, "-q", "test_it.py")
    assert "1 passed" in done.stdout, done.stdout


def test_pytest_finds_the_plugin_where_dray_is_installed():
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"dray.testing.pytest_plugin": "dray.testing.pytest_plugin"}
