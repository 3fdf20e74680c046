"""Every symptom on the troubleshooting page, brought about: the message on the page is the one that users see."""

import json
from pathlib import Path

import pytest

from dray.client import ApiError
from dray.client.rest import MERGE_PATCH
from dray.client.transport import Call
from dray.testing import cluster
from tests.builders.manifests import a_claim, a_class, a_pod, a_request, a_slice

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
CLAIM_PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


@pytest.fixture(scope="module")
def running():
    with cluster(nodes=3, devices=("gpu", "cpu")) as running:
        running.apply(ROOT / "examples/gpu/classes.yaml")
        for name in ("lonely", "half"):
            running.apply(
                a_slice(
                    name, "d", node="node-1", driver=f"{name}.example.com", pool=name, slices=2 if name == "half" else 1
                )
            )
            running.apply(a_class(name, f'device.driver == "{name}.example.com"'))
        running.apply(a_class("cpu", 'device.driver == "dra.cpu"'))
        running.apply(a_class("unguarded", 'device.attributes["gpu.example.com"].modle == "H200"'))
        yield running


def waiting_pod(name, *, claim="", template="", cpu="", **spec):
    claims, templates = ({"c": claim} if claim else {}), ({"c": template} if template else {})
    return a_pod(name, claims=claims, templates=templates, requests={"cpu": cpu} if cpu else {}, **spec)


def on_the_page(message):
    """The part of a message that the page shows: its longest quoted line that is in the message."""
    quoted = [line.strip() for line in PAGE.splitlines() if line.startswith("    ")]
    found = [line for line in quoted if line in message]
    assert found, f"not on the page: {message}"
    return max(found, key=len)


def events_of(running, name):
    listed = running.run(running.client.raw("GET", "/api/v1/namespaces/default/events"))
    return [each for each in json.loads(listed.body)["items"] if each["involvedObject"]["name"] == name]


def event(running, name, reason):
    running.wait_until(lambda: any(each["reason"] == reason for each in events_of(running, name)), f"event {reason}")
    return next(each["message"] for each in events_of(running, name) if each["reason"] == reason)


WAITING = [
    pytest.param(a_claim("nine", a_request(count=9)), {}, "cannot allocate all claims", id="too-few-devices"),
    pytest.param(
        a_claim("missing-class", a_request(device_class="missing-class")),
        {},
        "device class missing-class",
        id="no-class",
    ),
    pytest.param(
        a_claim("unguarded", a_request(device_class="unguarded")), {}, "CEL runtime error", id="selector-error"
    ),
    pytest.param(
        a_claim("half-all", a_request(device_class="half", allocationMode="All")),
        {},
        "currently being updated",
        id="incomplete-pool",
    ),
    pytest.param(None, {"cpu": "9"}, "Insufficient cpu", id="no-cpu"),
    pytest.param(
        a_claim("two-cpus", a_request(device_class="cpu", capacity={"requests": {"dra.cpu/cpu": "1"}})),
        {"resources": {"requests": {"cpu": "500m"}}},
        "pod level request",
        id="budget",
    ),
]


@pytest.mark.parametrize(("claim", "spec", "expected"), WAITING)
def test_a_pod_that_waits(running, claim, spec, expected):
    name = claim["metadata"]["name"] if claim else "no-cpu"
    if claim:
        running.apply(claim)
    running.apply(waiting_pod(name, claim=name if claim else "", **spec))
    assert expected in on_the_page(running.wait_until_unschedulable(name))


def test_a_template_that_is_not_there(running):
    running.apply(waiting_pod("no-template", template="nowhere"))
    assert "nowhere" in on_the_page(event(running, "no-template", "FailedResourceClaimCreation"))


def test_a_driver_that_is_not_there(running):
    running.apply(a_claim("lonely", a_request(device_class="lonely")), waiting_pod("lonely", claim="lonely"))
    assert "is not registered" in on_the_page(event(running, "lonely", "FailedPrepareDynamicResources"))


def test_a_driver_that_says_no(running):
    parameters = {"kind": "GpuConfig", "timeSlice": "Huge"}
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": parameters}}]
    running.apply(a_claim("badcfg", config=config), waiting_pod("badcfg", claim="badcfg"))
    assert "timeSlice 'Huge'" in on_the_page(event(running, "badcfg", "FailedPrepareDynamicResources"))


def test_a_node_that_says_no(running):
    running.apply(waiting_pod("outof", cpu="9", nodeName="node-1"))
    pod = running.wait_for_pod("outof", lambda pod: pod.status.phase == "Failed", "Failed")
    assert pod.status.reason == "OutOfcpu"
    assert "requested: 9000" in on_the_page(pod.status.message)


def test_quota_and_a_device_that_another_claim_holds(running):
    running.apply(a_claim("held"), waiting_pod("holder", claim="held"))
    running.wait_until_running("holder")
    running.apply(a_claim("thief"))
    (held,) = running.claims_of("holder")
    allocation = json.loads(running.run(running.client.raw("GET", f"{CLAIM_PATH}/held")).body)["status"]["allocation"]
    with pytest.raises(ApiError) as refused:
        running.run(patch(running, "thief/status", {"status": {"allocation": allocation}}))
    assert refused.value.code == 409
    assert f"is already allocated to claim default/{held.metadata.name}" in str(refused.value)
    assert "is already allocated to claim default/held" in PAGE

    hard = {"gpu.deviceclass.resource.k8s.io/devices": "1"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "devices"}, "spec": {"hard": hard}}
    running.apply(quota)
    path = "/api/v1/namespaces/default/resourcequotas/devices"
    running.wait_until(lambda: b'"used"' in running.run(running.client.raw("GET", path)).body, "the quota's status")
    with pytest.raises(ApiError, match="exceeded quota: devices, requested: gpu") as refused:
        running.apply(a_claim("quota", a_request(count=2)))
    assert refused.value.code == 403


async def patch(running, what, document):
    call = Call("PATCH", f"{CLAIM_PATH}/{what}", {}, json.dumps(document).encode(), MERGE_PATCH)
    answer = await running.client.transport.request(call)
    if answer.status >= 400:
        raise ApiError.from_answer(answer.status, answer.body)
