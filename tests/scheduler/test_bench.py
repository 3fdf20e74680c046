"""The benchmark workloads in their smallest size: each can be read, and some run on a whole cluster."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.api.codec import to_object
from dray.api.resource import DeviceClass, ResourceSlice
from dray.cli.bench import bench
from dray.sim.bench.load import missed
from dray.sim.bench.workload import (
    load_workload,
    slice_documents,
)

WORKLOADS = Path(__file__).parent.parent.parent / "benchmarks" / "workloads" / "cluster"


@pytest.mark.parametrize("path", sorted(WORKLOADS.glob("*.yaml")), ids=lambda path: path.stem)
def test_workload_is_complete(path):
    workload = load_workload(path)
    assert workload.name == path.stem
    assert workload.about
    assert workload.pods_per_second
    smallest = workload.scaled(0.001)
    published = [to_object(document, ResourceSlice) for document in slice_documents(smallest)]
    assert any(row.spec.devices for row in published)
    assert all(to_object(document, DeviceClass) for document in workload.classes)


@pytest.mark.parametrize("name", ["partitions", "steady"])
def test_smallest_size_runs(name):
    result = CliRunner().invoke(bench, [name, "--workloads", str(WORKLOADS), "--scale", "0.01", "-o", "json"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.output)["workloads"]
    assert row["workload"] == name
    assert row["pods_per_second"] > 0
    assert {"decision_p50_ms", "decision_p99_ms", "attempt_p99_ms", "steps", "memory_mb"} <= row.keys()


def test_unknown_workload_is_a_usage_error():
    result = CliRunner().invoke(bench, ["nonsense", "--workloads", str(WORKLOADS)])
    assert result.exit_code == 2
    assert "no workload nonsense" in result.output


def test_missed_expectations_are_named():
    workload = load_workload(WORKLOADS / "large.yaml")

    class Measured:
        pods_per_second, attempt_p99_ms, memory_mb = 50.0, 60.0, 2000.0

    assert missed(workload, Measured()) == [
        "50 pods/s instead of 100",
        "attempt p99 60 ms instead of 50",
        "2000 MB instead of 1500",
    ]


def test_a_control_plane_that_gives_no_answer_is_named(monkeypatch):
    def starved(*_):
        raise TimeoutError

    monkeypatch.setattr("dray.cli.bench.measure_workload", starved)
    ran = CliRunner().invoke(bench, ["burst", "--workloads", str(WORKLOADS)], standalone_mode=False)
    assert str(ran.exception) == "burst: the control plane gave no answer in time; is the machine busy?"
