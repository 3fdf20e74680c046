"""Every symptom on the troubleshooting page, brought about: the message on the page is the one that users see."""

import json
from pathlib import Path

import pytest

from dray.client import ApiError
from dray.client.rest import MERGE_PATCH
from dray.client.transport import Call
from dray.testing import cluster

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
CLAIM_PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


@pytest.fixture(scope="module")
def running():
    with cluster(nodes=3, devices=("gpu", "cpu")) as running:
        running.apply(ROOT / "examples/gpu/classes.yaml")
        for name in ("lonely", "half"):
            running.apply(a_slice(name, slices=2 if name == "half" else 1))
            running.apply(a_class(name, f'device.driver == "{name}.example.com"'))
        running.apply(a_class("cpu", 'device.driver == "cpu.example.com"'))
        running.apply(a_class("unguarded", 'device.attributes["gpu.example.com"].modle == "H200"'))
        yield running


def a_slice(name, *, slices):
    pool = {"name": name, "generation": 1, "resourceSliceCount": slices}
    spec = {"driver": f"{name}.example.com", "nodeName": "node-1", "pool": pool, "devices": [{"name": "d"}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def a_class(name, expression):
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def a_claim(name, device_class="gpu", config=(), **exactly):
    devices = {
        "requests": [{"name": "r", "exactly": {"deviceClassName": device_class, **exactly}}],
        "config": list(config),
    }
    metadata = {"name": name}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": devices},
    }


def a_pod(name, *, claim="", template="", cpu="", **spec):
    source = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}} if cpu else {}}
    if claim or template:
        container["resources"]["claims"] = [{"name": "c"}]
        spec["resourceClaims"] = [{"name": "c", **source}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


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
    pytest.param(a_claim("nine", count=9), {}, "cannot allocate all claims", id="too-few-devices"),
    pytest.param(a_claim("missing-class", "missing-class"), {}, "device class missing-class", id="no-class"),
    pytest.param(a_claim("unguarded", "unguarded"), {}, "CEL runtime error", id="selector-error"),
    pytest.param(
        a_claim("half-all", "half", allocationMode="All"), {}, "currently being updated", id="incomplete-pool"
    ),
    pytest.param(None, {"cpu": "9"}, "Insufficient cpu", id="no-cpu"),
    pytest.param(
        a_claim("two-cpus", "cpu", capacity={"requests": {"cpu": "1"}}),
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
    running.apply(a_pod(name, claim=name if claim else "", **spec))
    assert expected in on_the_page(running.wait_until_unschedulable(name))


def test_a_template_that_is_not_there(running):
    running.apply(a_pod("no-template", template="nowhere"))
    assert "nowhere" in on_the_page(event(running, "no-template", "FailedResourceClaimCreation"))


def test_a_driver_that_is_not_there(running):
    running.apply(a_claim("lonely", "lonely"), a_pod("lonely", claim="lonely"))
    assert "is not registered" in on_the_page(event(running, "lonely", "FailedPrepareDynamicResources"))


def test_a_driver_that_says_no(running):
    parameters = {"kind": "GpuConfig", "timeSlice": "Huge"}
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": parameters}}]
    running.apply(a_claim("badcfg", config=config), a_pod("badcfg", claim="badcfg"))
    assert "timeSlice 'Huge'" in on_the_page(event(running, "badcfg", "FailedPrepareDynamicResources"))


def test_a_node_that_says_no(running):
    running.apply(a_pod("outof", cpu="9", nodeName="node-1"))
    pod = running.wait_for_pod("outof", lambda pod: pod.status.phase == "Failed", "Failed")
    assert pod.status.reason == "OutOfcpu"
    assert "requested: 9000" in on_the_page(pod.status.message)


def test_quota_and_a_device_that_another_claim_holds(running):
    running.apply(a_claim("held"), a_pod("holder", claim="held"))
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
        running.apply(a_claim("quota", count=2))
    assert refused.value.code == 403


async def patch(running, what, document):
    call = Call("PATCH", f"{CLAIM_PATH}/{what}", {}, json.dumps(document).encode(), MERGE_PATCH)
    answer = await running.client.transport.request(call)
    if answer.status >= 400:
        raise ApiError.from_answer(answer.status, answer.body)
