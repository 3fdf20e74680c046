"""Every gate: off, on and off and on again over the same objects, and parts of which only some know the gate."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dray.client import ApiError
from dray.client.transport import Call
from dray.features import GATES
from tests.builders.manifests import (
    a_claim,
    a_class,
    a_container,
    a_device,
    a_pod,
    a_pod_group,
    a_request,
    a_result,
    a_slice,
    an_allocation,
    claim_entries,
)
from tests.skew.plane import ON, SkewedPlane, skewed_plane, without

Document = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"


@dataclass(frozen=True)
class Use:
    """An object that uses the gate: where it is created, and a field that only this gate keeps.

    With the gate off the field is dropped, or the object refused. A `status` is written after the object is there.
    """

    path: str
    manifest: Document
    field: str
    status: Document | None = None
    is_refused: bool = False
    # With the gate off, an object that has the field cannot be updated.
    is_frozen: bool = False


def _slice(field: str, device: Document, *, is_refused: bool = False, is_frozen: bool = False, **fields: Any) -> Use:
    manifest = a_slice("use", a_device("d", **device), driver="u.example.com", **fields)
    return Use(SLICES, manifest, field, None, is_refused, is_frozen)


def _claim(field: str, request: Document, *, is_refused: bool = False, **fields: Any) -> Use:
    return Use(CLAIMS, a_claim("use", request, **fields), field, None, is_refused)


COUNTERS = [{"counterSet": "c", "counters": {"slots": {"value": "1"}}}]
CONDITIONS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
HEALTH = {"resourceID": "cdi", "health": "Healthy", "message": "fine"}
CONTAINER_STATUS = {
    "name": "main",
    "image": "x",
    "imageID": "",
    "ready": False,
    "restartCount": 0,
    "allocatedResourcesStatus": [{"name": "claim:c", "resources": [HEALTH]}],
}
ATTRIBUTE = {"claimName": "c", "requestName": "r", "attribute": "model"}
CLAIMED = a_pod("use", a_container(uses=["c"]), resourceClaims=claim_entries({"c": "nobody-makes-it"}))
WITH_ATTRIBUTE = a_pod(
    "use",
    a_container(uses=["c"], env=[{"name": "MODEL", "valueFrom": {"resourceSliceAttributeRef": ATTRIBUTE}}]),
    resourceClaims=claim_entries({"c": "nobody-makes-it"}),
)
DEVICE_STATUS = {
    "allocation": an_allocation(a_result("elsewhere")),
    "devices": [{"driver": a_result()["driver"], "pool": "n1", "device": "elsewhere", "data": {"a": 1}}],
}
FRACTIONS = {"value": "80", "requestPolicy": {"default": "2", "validValues": ["1100m", "2"]}}
BLOCKING = {"strategy": "BlockOrShare"}
DERIVED = [{"name": "u.example.com/half", "expression": "1"}]

USES: dict[str, Use] = {
    "DynamicResourceAllocation": Use(PODS, CLAIMED, "spec.resourceClaims"),
    "DRAAdminAccess": _claim("spec.devices.requests.0.exactly.adminAccess", a_request(adminAccess=True)),
    "DRAPrioritizedList": _claim(
        "spec.devices.requests.0.firstAvailable",
        {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "any"}]},
        is_refused=True,
    ),
    "DRAResourceClaimDeviceStatus": Use(CLAIMS, a_claim("use"), "status.devices", DEVICE_STATUS),
    "DRAExtendedResource": Use(
        CLASSES, a_class("use", extendedResourceName="u.example.com/gpu"), "spec.extendedResourceName"
    ),
    "DRADeviceTaints": _slice("spec.devices.0.taints", {"taints": [{"key": "k", "effect": "NoSchedule"}]}),
    "DRAPartitionableDevices": _slice("spec.devices.0.consumesCounters", {"consumesCounters": COUNTERS}),
    "DRAConsumableCapacity": _slice("spec.devices.0.allowMultipleAllocations", {"allowMultipleAllocations": True}),
    "DRAFractionalCapacityRange": _slice(
        "spec.devices.0.capacity.memory",
        {"allowMultipleAllocations": True, "capacity": {"memory": FRACTIONS}},
        is_refused=True,
    ),
    "DRACapacityStrategies": _slice(
        "spec.devices.0.capacity.memory.requestPolicy.strategy",
        {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8", "requestPolicy": BLOCKING}}},
    ),
    "DRADeviceBindingConditions": _slice("spec.devices.0.bindingConditions", CONDITIONS),
    "DRAListTypeAttributes": _slice(
        "spec.devices.0.attributes.a.ints", {"attributes": {"a": {"ints": [1, 2]}}}, is_refused=True
    ),
    "DRANodeAllocatableResources": _slice(
        "spec.devices.0.nodeAllocatableResourceMappings",
        {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}},
    ),
    "GenericWorkload": Use(PODS, a_pod("use", schedulingGroup={"podGroupName": "g"}), "spec.schedulingGroup"),
    "DRAWorkloadResourceClaims": Use(
        GROUPS, a_pod_group("use", *claim_entries({"c": "nobody-makes-it"})), "spec.resourceClaims"
    ),
    "DRADerivedAttributes": _claim(
        "spec.devices.requests.0.exactly.derivedAttributes",
        a_request(derivedAttributes=DERIVED),
        constraints=[{"requests": ["r"], "matchAttribute": "u.example.com/half"}],
    ),
    "DRADeviceCompatibilityGroups": _slice(
        "spec.devices.0.consumesCounters.0.compatibilityGroups",
        {"consumesCounters": [{**COUNTERS[0], "compatibilityGroups": ["g"]}]},
    ),
    "DRAOptionalNodeOperations": _slice("spec.skipNodeOperations", {}, skipNodeOperations=["*"]),
    "DRAPartitionableDevicesType": _slice(
        "spec.partitionTypeAttribute",
        {"consumesCounters": COUNTERS, "attributes": {"u.example.com/type": "half"}},
        partitionTypeAttribute="u.example.com/type",
        is_frozen=True,
    ),
    "DRADownwardDeviceAttributes": Use(
        PODS,
        WITH_ATTRIBUTE,
        "spec.containers.0.env.0.valueFrom.resourceSliceAttributeRef",
        is_refused=True,
        is_frozen=True,
    ),
    "ResourceHealthStatus": Use(
        PODS,
        CLAIMED,
        "status.containerStatuses.0.allocatedResourcesStatus",
        {"containerStatuses": [CONTAINER_STATUS]},
    ),
    "ResourceHealthStatusMessage": Use(
        PODS,
        CLAIMED,
        "status.containerStatuses.0.allocatedResourcesStatus.0.resources.0.message",
        {"containerStatuses": [CONTAINER_STATUS]},
    ),
    "PodLevelResources": Use(PODS, a_pod("use", resources={"requests": {"cpu": "1"}}), "spec.resources"),
}

# These gates keep no field of an object: what they change is tested where it happens, and here only that all else works.
WITHOUT_FIELDS = {
    "DRADeviceTaintRules",
    "DRAResourceClaimGranularStatusAuthorization",
    "DRASchedulerFilterTimeout",
    "DRAResourcePoolStatus",
    "NodeDeclaredFeatures",
    "InPlacePodVerticalScaling",
    "InPlacePodLevelResourcesVerticalScaling",
    "PodTopologyLabelsAdmission",
    "SchedulerPopFromBackoffQ",
    "NominatedNodeNameForExpectation",
    "WatchList",
    "DeclarativeValidation",
    "DeclarativeValidationBeta",
}


def test_every_gate_is_in_the_table() -> None:
    assert set(USES) | WITHOUT_FIELDS == set(GATES)
    assert not set(USES) & WITHOUT_FIELDS


def found_in(document: Any, path: str) -> Any:
    for key in path.split("."):
        if isinstance(document, list):
            document = document[int(key)] if int(key) < len(document) else None
        else:
            document = (document or {}).get(key)
    return document


async def write(plane: SkewedPlane, use: Use, name: str) -> Document:
    manifest = {**use.manifest, "metadata": {**use.manifest["metadata"], "name": name}}
    if use.path == SLICES:
        # A pool of its own: devices of two slices of one pool must differ.
        manifest["spec"] = {**manifest["spec"], "pool": {**manifest["spec"]["pool"], "name": name}}
    if use.path == CLASSES:
        manifest["spec"] = {**manifest["spec"], "extendedResourceName": f"u.example.com/{name}"}
    made = await plane.raw("POST", use.path, json.dumps(manifest).encode())
    if use.status is not None:
        # A device of its own: no two claims may hold the same.
        status = json.loads(json.dumps(use.status).replace("elsewhere", name))
        made = await patch(plane, f"{use.path}/{name}/status", {"status": status})
    return made


async def patch(plane: SkewedPlane, path: str, body: Document) -> Document:
    call = Call("PATCH", path, body=json.dumps(body).encode(), content_type=MERGE_PATCH)
    answer = await plane.client.transport.request(call)
    if answer.status >= 400:
        raise ApiError.from_answer(answer.status, answer.body)
    found: Document = json.loads(answer.body)
    return found


async def label(plane: SkewedPlane, use: Use, name: str) -> Document:
    return await patch(plane, f"{use.path}/{name}", {"metadata": {"labels": {"touched": "yes"}}})


async def allow_admin_access(plane: SkewedPlane) -> None:
    labels = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await patch(plane, "/api/v1/namespaces/default", labels)


@pytest.mark.parametrize("gate", USES)
async def test_a_field_is_kept_by_the_objects_that_have_it(tmp_path: Path, gate: str) -> None:
    """On, off, on: what was written stays, what is written meanwhile is dropped or refused, and then it is kept again."""
    use, off = USES[gate], without(gate)
    async with skewed_plane(tmp_path, scheduler=None) as plane:
        await plane.make_node()
        await allow_admin_access(plane)
        before = found_in(await write(plane, use, "before"), use.field)
        assert before
    async with skewed_plane(tmp_path, server=off, scheduler=None) as plane:
        await keeps(plane, use, before)
        if use.is_refused:
            with pytest.raises(ApiError):
                await write(plane, use, "meanwhile")
        else:
            assert not found_in(await write(plane, use, "meanwhile"), use.field)
    async with skewed_plane(tmp_path, scheduler=None) as plane:
        assert found_in(await label(plane, use, "before"), use.field) == before
        assert found_in(await write(plane, use, "after"), use.field)


async def keeps(plane: SkewedPlane, use: Use, before: Any) -> None:
    """An update that does not speak of the field leaves it there."""
    stored = await plane.raw("GET", f"{use.path}/before")
    assert found_in(stored, use.field) == before
    if use.is_frozen:
        with pytest.raises(ApiError):
            await label(plane, use, "before")
    else:
        assert found_in(await label(plane, use, "before"), use.field) == before


async def schedules(plane: SkewedPlane, name: str) -> None:
    """A pod with a claim of its own, and one without, find their node."""
    await plane.claim(name)
    await plane.pod(name, name)
    await plane.pod(f"{name}-plain")
    assert [await plane.node_of(each) for each in (name, f"{name}-plain")] == ["n1", "n1"]


DEVICES = [{"name": f"d{number}"} for number in range(4)]


@pytest.mark.parametrize("gate", GATES)
async def test_pods_find_their_nodes_before_meanwhile_and_after(tmp_path: Path, gate: str) -> None:
    off = without(gate)
    async with skewed_plane(tmp_path, controllers=ON) as plane:
        await plane.make_node()
        await plane.publish(*DEVICES)
        await schedules(plane, "before")
        assert (await plane.report()).is_clean
    async with skewed_plane(tmp_path, server=off, scheduler=off, controllers=off) as plane:
        await schedules(plane, "meanwhile")
        assert (await plane.report()).is_clean
    async with skewed_plane(tmp_path, controllers=ON) as plane:
        await schedules(plane, "after")
        assert (await plane.report()).is_clean


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("parts", ["server", "others"])
async def test_parts_that_disagree(tmp_path: Path, gate: str, parts: str) -> None:
    """Only the server, or only scheduler and controllers, have the gate off: pods find nodes, and nothing is given twice."""
    off = without(gate)
    gates = {"server": off} if parts == "server" else {"scheduler": off, "controllers": off}
    async with skewed_plane(tmp_path, **({"controllers": ON} | gates)) as plane:
        await plane.make_node()
        await plane.publish(*DEVICES)
        await allow_admin_access(plane)
        for name in ("one", "two"):
            await schedules(plane, name)
        use = USES.get(gate)
        if use is not None and not (parts == "server" and use.is_refused):
            await write(plane, use, "use")
            await schedules(plane, "beside-it")
        assert (await plane.report()).is_clean
