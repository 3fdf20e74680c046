"""The checker beside a running cluster, and as `dray proof`."""

import asyncio
import json
import subprocess
import sys

import pytest
from tests.builders.manifests import a_device, a_result
from tests.proof.builders import CLAIMS, SLICES, Story, bound_pod, node_slice, ns_claim, small_node
from tests.waiting import eventually_blocking

from dray.client import CLAIMS as CLAIM_KIND
from dray.proof import ObjectKey, ObjectPasts, OnlineCheck, SeenEvent, Violation, check
from dray.proof.online import LAG_S
from dray.proof.recording import FOLLOWED
from dray.testing import cluster


def told(story: Story) -> list[str]:
    """What is reported when the story's changes arrive kind by kind, claims before the slices they refer to."""
    found = []
    online = OnlineCheck(lambda violation: found.append(violation.rule))
    for resource in (CLAIMS, "pods", "nodes", SLICES):
        records = story.history.streams().get(("a", resource), [])
        for record in records:
            online.add(record)
    online.due(LAG_S)
    return found


def whole(story: Story) -> Story:
    """With something of every kind: nothing is judged before all kinds are known."""
    return story.shows(small_node(), bound_pod("other"), node_slice(a_device("d"), a_device("e")))


def test_order_between_kinds_does_not_matter():
    story = whole(Story()).shows(
        ns_claim("c", a_result("d"), reserved_for=("p",)), bound_pod("p", claims=("c",), phase="Running")
    )
    assert told(story) == []


def test_a_broken_promise_is_told():
    assert told(whole(Story()).shows(ns_claim("c", a_result("d")), ns_claim("e", a_result("d")))) == [
        "device-given-twice"
    ]


def test_nothing_is_judged_before_its_time():
    story = whole(Story()).shows(ns_claim("c", a_result("d")), ns_claim("e", a_result("d")))
    found = []
    online = OnlineCheck(found.append)
    for record in story.history.records:
        online.add(record)
    online.due(LAG_S - 0.1)
    assert not found
    online.due(LAG_S)
    assert len(found) == 1
    assert online.events == sum(isinstance(each, SeenEvent) for each in story.history.records)


@pytest.fixture(scope="module")
def running():
    with cluster(nodes=1) as c:
        c.apply("examples/gpu/classes.yaml", "examples/gpu/one-gpu.yaml")
        c.wait_until_running("one-gpu")
        yield c


async def test_a_live_cluster_keeps_its_promises(running):
    command = [sys.executable, "-m", "dray", "proof", "--for", "1", "--kubeconfig", str(running.kubeconfig)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "every promise was kept" in done.stderr


def watches(running) -> int:
    return sum(len(cache.watchers) for cache in running.plane.running.server.core.caches())


def proof(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dray", "proof", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_promise_broken_by_force_is_named(running, tmp_path):
    """The administrator takes a claim away from a running pod: the checker sees it, tells its past, and exits with 1."""
    (claim,) = running.claims_of("one-gpu")
    recording = tmp_path / "seen.ndjson"
    options = ["--for", "4", "--kubeconfig", str(running.kubeconfig), "--record", str(recording)]
    command = [sys.executable, "-m", "dray", "proof", *options]
    before = watches(running)
    checker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert checker.stderr is not None
        assert "watching" in checker.stderr.readline()
        eventually_blocking(lambda: watches(running) >= before + len(FOLLOWED), "the checker to watch every kind")
        document = running.run(running.client.get_document(CLAIM_KIND, claim.metadata.name, "default"))
        document["status"] = {}
        running.run(running.client.update_status(CLAIM_KIND, document))
        output, errors = checker.communicate(timeout=60)
    finally:
        checker.kill()
    assert checker.returncode == 1, errors
    assert "running-without-claim" in output
    assert "deallocated-in-use" in output
    assert f"resourceclaims default/{claim.metadata.name}" in output
    (device,) = (f"{each.driver}/{each.pool}/{each.device}" for each in claim.status.allocation.devices.results)
    assert f"allocated {device}, reserved for pods one-gpu" in output
    assert "not allocated" in output

    again = proof("-f", str(recording), "-o", "json")
    assert again.returncode == 1, again.stderr
    rules = {found["rule"]: found for found in map(json.loads, again.stdout.splitlines())}
    assert {"running-without-claim", "deallocated-in-use"} <= rules.keys()
    past = {each["name"]: each["changes"] for each in rules["deallocated-in-use"]["objects"]}
    assert [change["state"] for change in past[claim.metadata.name]][-1] == "not allocated"
    assert past["one-gpu"][-1]["state"].startswith("Running on ")


def test_a_recording_is_not_written_over(running, tmp_path):
    mine = tmp_path / "mine.ndjson"
    mine.write_text("precious")
    done = proof("--for", "1", "--kubeconfig", str(running.kubeconfig), "--record", str(mine))
    assert done.returncode == 2
    assert "File exists" in done.stderr
    assert mine.read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-f", "nowhere.ndjson"], "nowhere.ndjson: No such file or directory"),
        (["-f", "README.md"], "README.md is not a recording of dray proof"),
        (["-f", "README.md", "--for", "3"], "do not go with it"),
        (["--kubeconfig", "README.md"], "README.md"),
    ],
)
def test_wrong_usage_is_told(arguments, said):
    done = proof(*arguments)
    assert done.returncode in (2, 3)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_past_ends_at_the_violation_and_leaves_out_what_says_nothing_new():
    story = whole(Story()).shows(ns_claim("c"), ns_claim("c", a_result("d")), ns_claim("c", a_result("d")))
    story.shows(ns_claim("e", a_result("d")), ns_claim("e"))
    (violation,) = check(story.history).violations
    pasts = ObjectPasts()
    for record in story.history.records:
        pasts.take(record)
    told_of = {past.key.name: [change.state for change in past.changes] for past in pasts.of(violation)}
    device = "allocated gpu.example.com/n1/d"
    assert told_of == {"c": ["not allocated", device], "e": [device]}


def test_of_deleted_objects_only_the_last_are_remembered():
    pasts = ObjectPasts(deleted_objects=2)
    story = Story()
    for name in ("a", "b", "c"):
        story.shows(ns_claim(name)).deletes(ns_claim(name))
    for record in story.history.records:
        pasts.take(record)
    keys = tuple(ObjectKey(CLAIMS, "ns", name) for name in ("a", "b", "c"))
    violation = Violation("device-given-twice", story.revision, "d", "held twice", keys)
    assert [past.key.name for past in pasts.of(violation)] == ["b", "c"]
    assert [change.state for change in pasts.of(violation)[0].changes] == ["not allocated", "deleted"]
