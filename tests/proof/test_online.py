"""The checker beside a running cluster, and as `dray doctor --watch`."""

import asyncio
import subprocess
import sys

import pytest
from tests.builders.manifests import a_device, a_result
from tests.proof.builders import CLAIMS, SLICES, Story, bound_pod, node_slice, ns_claim, small_node
from tests.waiting import eventually_blocking

from dray.client import CLAIMS as CLAIM_KIND
from dray.proof import OnlineCheck, SeenEvent
from dray.proof.online import LAG_S
from dray.proof.recording import FOLLOWED
from dray.testing import cluster


def told(story: Story) -> list[str]:
    """What is reported when the story's changes arrive kind by kind, claims before the slices they refer to."""
    found = []
    check = OnlineCheck(lambda violation: found.append(violation.rule))
    for resource in (CLAIMS, "pods", "nodes", SLICES):
        records = story.history.streams().get(("a", resource), [])
        for record in records:
            check.add(record)
    check.due(LAG_S)
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
    check = OnlineCheck(found.append)
    for record in story.history.records:
        check.add(record)
    check.due(LAG_S - 0.1)
    assert not found
    check.due(LAG_S)
    assert len(found) == 1
    assert check.events == sum(isinstance(each, SeenEvent) for each in story.history.records)


@pytest.fixture(scope="module")
def running():
    with cluster(nodes=1) as c:
        c.apply("examples/gpu/classes.yaml", "examples/gpu/one-gpu.yaml")
        c.wait_until_running("one-gpu")
        yield c


async def test_a_live_cluster_keeps_its_promises(running):
    command = [sys.executable, "-m", "dray", "doctor", "--watch", "--for", "1", "--kubeconfig", str(running.kubeconfig)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "every promise was kept" in done.stderr


def watches(running) -> int:
    return sum(len(cache.watchers) for cache in running.plane.running.server.core.caches())


def test_a_promise_broken_by_force_is_named(running):
    """The administrator takes a claim away from a running pod: the doctor sees it, with exit code 1."""
    (claim,) = running.claims_of("one-gpu")
    command = [sys.executable, "-m", "dray", "doctor", "--watch", "--for", "4", "--kubeconfig", str(running.kubeconfig)]
    before = watches(running)
    doctor = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert doctor.stderr is not None
        assert "watching" in doctor.stderr.readline()
        eventually_blocking(lambda: watches(running) >= before + len(FOLLOWED), "the doctor to watch every kind")
        document = running.run(running.client.get_document(CLAIM_KIND, claim.metadata.name, "default"))
        document["status"] = {}
        running.run(running.client.update_status(CLAIM_KIND, document))
        output, errors = doctor.communicate(timeout=60)
    finally:
        doctor.kill()
    assert doctor.returncode == 1, errors
    assert "running-without-claim" in output
    assert "deallocated-in-use" in output
