"""Quotas: what is charged, and what is stopped."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.admission.world import DRA, Document, World, admitted_claim, admitted_pod, exact, meta, open_world

from dray.apiserver.errors import ApiError


async def put_quota(world: World, name: str = "q", used: Document | None = None, **more: Any) -> None:
    hard = more.pop("hard")
    used = used or dict.fromkeys(hard, "0")
    await world.put("ResourceQuota", name, "ns", spec={"hard": hard, **more}, status={"hard": hard, "used": used})


async def used(world: World, name: str = "q") -> Document:
    found: Document = (await world.read("ResourceQuota", name, "ns"))["status"]["used"]
    return found


COUNT, GOLD = "count/resourceclaims.resource.k8s.io", "gold.deviceclass.resource.k8s.io/devices"
CLAIMS = f"{DRA}:resourceclaims"


async def test_claims_are_charged_and_stopped(world: World) -> None:
    await put_quota(world, hard={COUNT: "2", GOLD: "3"})
    await world.admit(CLAIMS, admitted_claim("one", exact(count=2)))
    assert await used(world) == {COUNT: "1", GOLD: "2"}
    error = await world.refused(CLAIMS, admitted_claim("two", exact(count=2)))
    assert (error.code, error.message) == (
        403,
        f'resourceclaims.resource.k8s.io "two" is forbidden: exceeded quota: q, requested: {GOLD}=2, used: {GOLD}=2, '
        f"limited: {GOLD}=3",
    )
    error = await world.refused(CLAIMS, admitted_claim("two", exact(allocationMode="All")))
    assert f"requested: {GOLD}=32" in error.message
    await world.admit(CLAIMS, admitted_claim("two", exact("silver", count=5)), dry_run=True)
    assert await used(world) == {COUNT: "1", GOLD: "2"}
    await world.admit(CLAIMS, admitted_claim("two", exact("silver", count=5)))
    error = await world.refused(CLAIMS, admitted_claim("three", exact(count=2)), dry_run=True)
    assert f"requested: {COUNT}=1,{GOLD}=2, used: {COUNT}=2,{GOLD}=2, limited: {COUNT}=2,{GOLD}=3" in error.message


async def test_alternatives_count_their_largest_per_class(world: World) -> None:
    await put_quota(world, hard={GOLD: "10", "silver.deviceclass.resource.k8s.io/devices": "10"})
    options = [
        {"name": "a", "deviceClassName": "gold", "allocationMode": "ExactCount", "count": 4},
        {"name": "b", "deviceClassName": "gold", "allocationMode": "ExactCount", "count": 2},
        {"name": "c", "deviceClassName": "silver", "allocationMode": "ExactCount", "count": 3},
    ]
    await world.admit(CLAIMS, admitted_claim("c", {"name": "r", "firstAvailable": options}, exact()))
    assert await used(world) == {GOLD: "5", "silver.deviceclass.resource.k8s.io/devices": "3"}


async def test_extended_resources_of_claims(world: World) -> None:
    implicit, explicit = "requests.deviceclass.resource.kubernetes.io/gold", "requests.example.com/gpu"
    await put_quota(world, hard={implicit: "3", explicit: "3"})
    await world.admit(CLAIMS, admitted_claim("before", exact(count=9)))
    assert await used(world) == {implicit: "0", explicit: "0"}
    await world.put("DeviceClass", "gold", spec={"extendedResourceName": "example.com/gpu"})
    await world.admit(CLAIMS, admitted_claim("c", exact(count=2)))
    assert await used(world) == {implicit: "2", explicit: "2"}
    assert f"{explicit}=2" in (await world.refused(CLAIMS, admitted_claim("d", exact(count=2)))).message
    requests = {"limits": {"example.com/gpu": "1"}, "requests": {"example.com/gpu": "1"}}
    pod = await world.put(
        "Pod", "p", "ns", **{key: admitted_pod(resources=requests)[key] for key in ("spec", "status")}
    )
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    made = admitted_claim("made", exact(count=1))
    made["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
    }
    await world.admit(CLAIMS, made)
    assert await used(world) == {implicit: "3", explicit: "2"}


async def test_pods_are_charged_for_what_they_ask(world: World) -> None:
    await put_quota(world, hard={"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi", "count/pods": "5"})
    error = await world.refused("pods", admitted_pod(resources={"requests": {"cpu": "1"}}))
    assert error.message == 'pods "p" is forbidden: failed quota: q: must specify limits.memory for: main'
    asks = {"requests": {"cpu": "600m", "memory": "1Mi"}, "limits": {"memory": "512Mi"}}
    await world.admit("pods", admitted_pod("a", resources=asks))
    assert await used(world) == {"pods": "1", "requests.cpu": "600m", "limits.memory": "512Mi", "count/pods": "1"}
    error = await world.refused("pods", admitted_pod("b", resources=asks))
    assert "requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1" in error.message


async def test_scopes_choose_pods(world: World) -> None:
    await put_quota(world, "best-effort", hard={"pods": "0"}, scopes=["BestEffort"])
    assert "best-effort" in (await world.refused("pods", admitted_pod())).message
    await world.admit("pods", admitted_pod(resources={"requests": {"cpu": "1"}}))
    await world.admit("configmaps", {"metadata": meta("c")})
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["team-critical"]}]}
    await world.put("PriorityClass", "team-critical", value=1000)
    await put_quota(world, "critical", hard={"pods": "0"}, scopeSelector=selector)
    critical = admitted_pod(resources={"requests": {"cpu": "1"}}, priorityClassName="team-critical")
    assert "exceeded quota: critical" in (await world.refused("pods", critical)).message


@pytest.mark.parametrize("is_terminating", [False, True])
async def test_pods_with_a_deadline_have_a_scope_of_their_own(world: World, is_terminating: bool) -> None:
    await put_quota(world, hard={"pods": "0"}, scopes=["Terminating" if is_terminating else "NotTerminating"])
    ends, stays = admitted_pod("ends", activeDeadlineSeconds=60), admitted_pod("stays")
    refused, admitted = (ends, stays) if is_terminating else (stays, ends)
    assert "exceeded quota: q" in (await world.refused("pods", refused)).message
    await world.admit("pods", admitted)


AFFINITY_TERM = {"topologyKey": "zone", "labelSelector": {}}
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


@pytest.mark.parametrize(
    ("affinity", "counts"),
    [
        ({}, False),
        ({"podAffinity": {REQUIRED: [AFFINITY_TERM]}}, False),
        ({"podAffinity": {REQUIRED: [AFFINITY_TERM, AFFINITY_TERM | {"namespaces": ["other"]}]}}, True),
        ({"podAntiAffinity": {REQUIRED: [AFFINITY_TERM | {"namespaceSelector": {}}]}}, True),
        (
            {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": AFFINITY_TERM | {"namespaces": ["other"]}}]}},
            True,
        ),
        ({"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": AFFINITY_TERM}]}}, False),
    ],
)
async def test_pods_that_look_into_other_namespaces_can_be_limited(
    world: World, affinity: Document, counts: bool
) -> None:
    scope = {"matchExpressions": [{"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}]}
    await put_quota(world, hard={"pods": "1"}, scopeSelector=scope)
    await world.admit("pods", admitted_pod("p", affinity=affinity))
    assert await used(world) == {"pods": "1" if counts else "0"}


async def test_any_kind_can_be_counted(world: World) -> None:
    await put_quota(world, hard={"configmaps": "1", "count/leases.coordination.k8s.io": "0"})
    await world.admit("configmaps", {"metadata": meta("a")})
    assert "configmaps=1" in (await world.refused("configmaps", {"metadata": meta("b")})).message
    assert (await world.refused("coordination.k8s.io:leases", {"metadata": meta("l")})).code == 403
    await world.admit("configmaps", {"metadata": meta("b")}, namespace="kube-system")


async def test_a_quota_without_status_waits_for_its_controller(world: World) -> None:
    await world.put("ResourceQuota", "q", "ns", spec={"hard": {"configmaps": "0"}}, status={})
    await world.admit("configmaps", {"metadata": meta("a")})


async def test_many_at_once_never_pass_the_limit(world: World) -> None:
    await put_quota(world, hard={GOLD: "7"})

    async def one(number: int) -> bool:
        try:
            await world.admit(CLAIMS, admitted_claim(f"c{number}", exact(count=2)))
        except ApiError:
            return False
        return True

    assert sum(await asyncio.gather(*(one(number) for number in range(20)))) == 3
    assert await used(world) == {GOLD: "6"}


async def test_claims_of_pods_count_as_an_option(tmp_path: Path) -> None:
    world = await open_world(tmp_path, quota_counts_claims=True)
    await put_quota(world, hard={"requests.cpu": "4"})
    asks = {"requests": {"cpu": "1"}}
    old = admitted_pod(resources=asks)
    await world.admit("pods", old)
    new = copy.deepcopy(old)
    new["status"]["nodeAllocatableResourceClaimStatuses"] = [
        {"resourceClaimName": "c", "containers": ["main"], "resources": {"cpu": "2"}}
    ]
    await world.admit("pods/status", new, old)
    assert await used(world) == {"requests.cpu": "3"}
    more = copy.deepcopy(new)
    more["status"]["nodeAllocatableResourceClaimStatuses"][0]["resources"]["cpu"] = "9"
    assert "exceeded quota" in (await world.refused("pods/status", more, new)).message
    await world.stop()
