"""`dray allocate` over scenarios."""

import json
import random

from click.testing import CliRunner

from dray.cli.main import cli

NODES = [{"metadata": {"name": name}} for name in ("n0", "n1")]
SLICES = [
    {
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n0",
            "devices": [{"name": "d0", "allowMultipleAllocations": True}],
        },
    }
]
EXACTLY = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
CLAIM = {
    "metadata": {"namespace": "ns", "name": "c"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": EXACTLY}]}},
}
WORLD = {
    "features": {"consumableCapacity": True},
    "slices": SLICES,
    "classes": [{"metadata": {"name": "any"}, "spec": {}}],
    "allocatedClaims": [],
    "claims": [CLAIM],
}


def run(*scenarios, options=()):
    text = "".join(json.dumps(scenario) + "\n" for scenario in scenarios)
    outcome = CliRunner().invoke(cli, ["allocate", "--scenarios", "-", *options], input=text)
    return outcome, [json.loads(line) for line in outcome.output.splitlines()] if not outcome.exit_code else []


def test_one_node():
    outcome, (fits, not_there) = run(
        {"name": "a", "node": NODES[0], **WORLD}, {"name": "b", "node": NODES[1], **WORLD}, options=["--reasons"]
    )
    assert outcome.exit_code == 0
    assert fits["outcome"] == "allocated"
    (result,) = fits["allocations"][0]["devices"]["results"]
    assert (result["device"], bool(result["shareID"])) == ("d0", True)
    assert not_there["outcome"] == "unallocatable"
    assert not_there["reasons"] == ["claim ns/c, request r: the node has no devices"]


def test_many_nodes_with_timing():
    _, (result,) = run({"name": "a", "nodes": NODES, **WORLD}, options=["--timing"])
    assert [(one["node"], one["outcome"]) for one in result["nodes"]] == [("n0", "allocated"), ("n1", "unallocatable")]
    assert result["coldMicros"] > 0
    assert result["warmMicros"] > 0
    assert result["steps"] >= 1


def test_error_and_no_claims():
    _, (wrong, empty) = run(
        {"name": "a", "node": NODES[0], **WORLD, "classes": []}, {"name": "b", "node": NODES[0], **WORLD, "claims": []}
    )
    assert wrong["outcome"] == "error"
    assert "could not retrieve device class any" in wrong["error"]
    assert (empty["outcome"], empty["allocations"]) == ("allocated", [])


def test_search_that_takes_too_long_is_an_error_and_the_next_scenario_is_answered():
    """No two devices may share a coordinate, and 20 of 120 random points are wanted: nobody waits for that answer."""
    chance = random.Random(0)
    devices = [
        {"name": f"d{i}", "attributes": {axis: {"int": chance.randrange(20)} for axis in "abc"}} for i in range(120)
    ]
    published = json.loads(json.dumps(WORLD["slices"][0]))
    published["spec"] |= {"devices": devices, "nodeName": "n0"}
    wanted = {"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 20}}
    constraints = [{"distinctAttribute": f"{published['spec']['driver']}/{axis}"} for axis in "abc"]
    claim = {
        "metadata": {"namespace": "ns", "name": "c"},
        "spec": {"devices": {"requests": [wanted], "constraints": constraints}},
    }
    hard = {"name": "hard", "node": NODES[0], **WORLD, "slices": [published], "claims": [claim]}
    hard["features"] = {"consumableCapacity": True}
    _, (late, fits) = run(hard, {"name": "easy", "node": NODES[0], **WORLD}, options=["--timeout", "0.05"])
    assert (late["outcome"], late["error"]) == ("error", "filter operation aborted: deadline exceeded")
    assert fits["outcome"] == "allocated"


def test_a_line_that_is_no_scenario():
    outcome, _ = run("nonsense")
    assert outcome.exit_code == 2
    assert "line 1" in outcome.output
