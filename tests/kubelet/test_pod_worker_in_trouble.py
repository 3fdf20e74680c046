"""A pod's life on the node when drivers, runtime or API server fail it."""

import asyncio
from dataclasses import replace

import pytest

from dray.kubelet.claims import ClaimRefused
from dray.kubelet.errors import ContainerError, DriverError
from dray.kubelet.server import _report_failure as report_failure
from tests.kubelet.worker_rig import WorkerRig, node_pod

RIG = WorkerRig


async def test_claims_that_cannot_be_prepared_are_tried_again_and_the_event_says_why(rig):
    rig.claims.prepare_errors = [
        ClaimRefused("ResourceClaim c: not allocated"),
        DriverError("DRA driver d is not registered"),
    ]
    await rig.start(node_pod())
    assert rig.events.seen == [
        (
            "FailedPrepareDynamicResources",
            "Failed to prepare dynamic resources: prepare dynamic resources: ResourceClaim c: not allocated",
        )
    ]
    assert (rig.status["phase"], rig.runtime.log) == ("Pending", [])
    said = {each["type"]: (each["status"], each["reason"], each["message"]) for each in rig.status["conditions"]}
    unready = ("False", "ContainersNotReady", "containers with unready status: [main]")
    assert said == {
        "PodReadyToStartContainers": ("False", "PodSandboxNotReady", "no pod sandbox exists"),
        "Initialized": ("True", None, None),
        "Ready": unready,
        "ContainersReady": unready,
    }
    await rig.settle(1.1)
    assert rig.events.seen[-1][1].endswith("DRA driver d is not registered")
    await rig.settle(2.1)
    assert rig.status["phase"] == "Running"


async def test_claims_are_prepared_again_after_waits_that_double(rig):
    rig.claims.prepare_errors = [DriverError("not now")] * 9
    await rig.start(node_pod())
    for wait_s in (1, 2, 4, 8, 16, 32, 60, 60, 60):
        tried = len(rig.claims.log)
        await rig.settle(wait_s - 0.5)
        assert len(rig.claims.log) == tried, f"not before {wait_s} s"
        await rig.settle(0.5)
        assert len(rig.claims.log) == tried + 1
    assert rig.status["phase"] == "Running"


async def test_containers_that_cannot_be_started_are_counted(rig):
    counted = []
    rig.context = replace(rig.context, count_start_error=lambda *labels: counted.append(labels))
    rig.runtime.start_errors["before"] = [ContainerError("CreateContainerConfigError", "no such attribute")]
    rig.runtime.start_errors["main"] = [ContainerError("RunContainerError", "no such device")]
    rig.runtime.ends["before"] = [0]
    await rig.start(node_pod(init=("before",)))
    await rig.settle(10.5)
    await rig.settle(10.5)
    assert rig.status["phase"] == "Running"
    assert counted == [("init_container", "CreateContainerConfigError"), ("container", "RunContainerError")]


async def test_a_changed_pod_is_a_reason_to_try_at_once(rig):
    rig.claims.prepare_errors = [ClaimRefused("not yet")]
    await rig.start(node_pod())
    rig.worker.update(rig.worker.pod)
    await rig.settle()
    assert rig.status["phase"] == "Running"


@pytest.mark.parametrize(
    "error", [ContainerError("RunContainerError", "RunPodSandbox: no network"), OSError("disk full")]
)
async def test_a_sandbox_that_cannot_be_made_is_tried_again(rig, error):
    rig.runtime.sandbox_errors = [error]
    await rig.start(node_pod())
    assert rig.status["phase"] == "Pending"
    assert rig.events.seen[0][0] == "FailedCreatePodSandBox"
    await rig.settle(1.1)
    assert rig.status["phase"] == "Running"


async def test_a_bug_in_the_runtime_does_not_fail_the_pod(rig):
    rig.runtime.start_errors["main"] = [RuntimeError("surprise")]
    await rig.start(node_pod())
    await rig.settle(1.1)
    assert rig.status["phase"] == "Running"


async def test_a_container_whose_environment_cannot_be_resolved_waits_and_recovers(rig):
    rig.runtime.start_errors["main"] = [
        ContainerError("CreateContainerConfigError", "claim c, request r: device d/p/x has no attribute model")
    ]
    await rig.start(node_pod(policy="Never"))
    assert rig.container()["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    assert rig.status["phase"] == "Pending"
    assert ("Failed", "Error: claim c, request r: device d/p/x has no attribute model") in rig.events.seen
    await rig.settle(10.5)
    assert rig.status["phase"] == "Running"


@pytest.mark.parametrize(
    ("policy", "phase"), [pytest.param("Never", "Failed", id="never"), pytest.param("OnFailure", "Pending", id="again")]
)
async def test_a_device_that_stays_away_fails_a_pod_that_is_not_restarted(rig, policy, phase):
    missing = ContainerError("CreateContainerConfigError", "no ResourceSlice has device x", final_after_s=60.0)
    rig.runtime.start_errors["main"] = [missing] * 5
    await rig.start(node_pod(policy=policy))
    await rig.settle(31)
    assert rig.status["phase"] == "Pending"
    await rig.settle(41)
    assert rig.status["phase"] == phase


async def test_an_environment_of_a_claim_that_is_not_there_is_a_config_error(rig):
    reference = {"claimName": "c", "requestName": "r", "attribute": "model"}
    env = [{"name": "MODEL", "valueFrom": {"resourceSliceAttributeRef": reference}}]
    await rig.start(node_pod(spec={"containers": [{"name": "main", "image": "i", "env": env}]}))
    assert rig.container()["state"]["waiting"] == {
        "reason": "CreateContainerConfigError",
        "message": "claim c: not allocated",
    }


async def test_statuses_catch_up_after_an_api_server_that_was_away(rig):
    rig.api.away = True
    await rig.start(node_pod())
    assert rig.runtime.log == ["start main 0"]
    assert rig.api.statuses == []
    rig.api.away = False
    await rig.settle(2.5)
    assert rig.status["phase"] == "Running"
    written = len(rig.api.statuses)
    await rig.settle(60)
    assert len(rig.api.statuses) == written


async def test_a_finished_pod_waits_for_the_api_to_tell_it(rig):
    await rig.start(node_pod(policy="Never"))
    rig.api.away = True
    rig.runtime.running["main"].end(0)
    await rig.settle()
    await rig.settle(1.1)
    rig.api.away = False
    await rig.settle(8)
    assert rig.status["phase"] == "Succeeded"


async def test_a_sandbox_that_lives_is_not_prepared_again_after_a_restart(rig):
    rig.runtime.sandboxes.add("uid-1")
    rig.claims.held.add("uid-1")
    rig.claims.prepare_errors = [DriverError("DRA driver d is not registered")] * 9
    await rig.start(node_pod(status={"phase": "Running", "startTime": "2024-01-01T00:00:00Z"}))
    assert rig.claims.log == []
    assert rig.runtime.log == ["start main 0"]


async def test_device_health_is_in_every_status(rig):
    rig.health = [{"name": "claim:c", "resources": [{"resourceID": "v/c=d", "health": "Unknown"}]}]
    await rig.start(node_pod())
    assert rig.container()["allocatedResourcesStatus"] == rig.health
    rig.health = [{"name": "claim:c", "resources": [{"resourceID": "v/c=d", "health": "Unhealthy", "message": "hot"}]}]
    await rig.worker.report()
    assert rig.container()["allocatedResourcesStatus"] == rig.health


async def test_conditions_keep_their_time_while_they_stay_the_same(rig):
    await rig.start(node_pod())
    first = {each["type"]: each["lastTransitionTime"] for each in rig.status["conditions"]}
    await rig.settle(100)
    rig.health = [{"name": "claim:c", "resources": []}]
    await rig.worker.report()
    assert {each["type"]: each["lastTransitionTime"] for each in rig.status["conditions"]} == first


async def test_a_pod_whose_sandbox_is_gone_is_not_ready_to_start_containers_before_it_has_another(rig):
    await rig.start(node_pod())
    assert rig.condition("PodReadyToStartContainers") == "True"
    rig.runtime.sandboxes.clear()
    rig.runtime.sandbox_errors = [ContainerError("RunContainerError", "RunPodSandbox: no network")]
    rig.runtime.sandbox_ends.set()
    await rig.settle()
    rig.runtime.sandbox_ends = asyncio.Event()
    await rig.settle(1.1)
    assert ("SandboxChanged" in str(rig.events.all), rig.condition("PodReadyToStartContainers")) == (True, "False")
    await rig.settle(2.1)
    assert (rig.status["phase"], rig.condition("PodReadyToStartContainers")) == ("Running", "True")


async def test_only_a_failure_of_a_task_is_logged(caplog):
    async def work(error):
        if error is not None:
            raise error

    tasks = [
        asyncio.create_task(work(error), name=name)
        for name, error in (("good", None), ("cancelled", asyncio.CancelledError()), ("bad", RuntimeError("no")))
    ]
    await asyncio.wait(tasks)
    for task in tasks:
        report_failure(task)
    assert [record.getMessage() for record in caplog.records] == ["bad ended unexpectedly"]
