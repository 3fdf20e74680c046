"""A pod's life on the node: restarts, init containers and sidecars, admission, and its end."""

import asyncio
from dataclasses import replace

import pytest

from dray.api import codec
from dray.api.core import Node
from dray.kubelet.errors import DriverError
from tests.kubelet.worker_rig import WorkerRig, node_pod

RIG = WorkerRig


# --- restart policies and phases


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")],
)
async def test_a_pod_ends_with_its_containers_where_its_policy_says_so(rig, policy, code, phase):
    rig.runtime.ends["main"] = [code]
    await rig.start(node_pod(policy=policy))
    assert rig.status["phase"] == phase
    assert rig.container()["state"]["terminated"]["exitCode"] == code
    assert rig.claims.log == ["prepare", "unprepare"]
    assert rig.api.deleted == []


@pytest.mark.parametrize(("policy", "code"), [("Always", 0), ("Always", 1), ("OnFailure", 1)])
async def test_a_container_is_restarted_at_once_the_first_time_and_then_slower_and_slower(rig, policy, code):
    rig.runtime.ends["main"] = [code] * 4
    await rig.start(node_pod(policy=policy))
    assert rig.runtime.log == ["start main 0", "start main 1"]
    assert rig.container()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert rig.container()["lastState"]["terminated"]["exitCode"] == code
    assert (
        "back-off 10s restarting failed container=main pod=p_ns(uid-1)"
        in rig.container()["state"]["waiting"]["message"]
    )
    await rig.settle(9)
    assert len(rig.runtime.log) == 2
    await rig.settle(1.5)
    assert len(rig.runtime.log) == 3
    await rig.settle(19)
    assert len(rig.runtime.log) == 3
    await rig.settle(1.5)
    assert len(rig.runtime.log) == 4
    await rig.settle(40.5)
    assert rig.container()["state"] == {"running": {"startedAt": "2024-01-01T00:00:01Z"}}
    assert rig.container()["restartCount"] == 4
    assert rig.status["phase"] == "Running"
    assert ("BackOff", "Back-off restarting failed container main in pod p_ns(uid-1)") in rig.events.seen


async def test_a_container_that_ran_long_starts_over_with_short_waits(rig):
    rig.runtime.ends["main"] = [1, 1, 1]
    await rig.start(node_pod())
    await rig.settle(10.5)
    await rig.settle(20.5)
    assert len(rig.runtime.log) == 4
    await rig.settle(700)
    rig.runtime.ends["main"] = []
    rig.runtime.running["main"].end(1)
    await rig.settle(10.5)
    assert len(rig.runtime.log) == 5


# --- init containers and sidecars


async def test_init_containers_run_one_after_the_other_before_the_rest(rig):
    rig.runtime.ends["second"] = [0]
    await rig.start(node_pod(init=("first", "second")))
    assert rig.runtime.log == ["start first 0"]
    assert (rig.status["phase"], rig.condition("Initialized")) == ("Pending", "False")
    assert rig.container()["state"]["waiting"]["reason"] == "PodInitializing"
    rig.runtime.running["first"].end(0)
    await rig.settle()
    assert rig.runtime.log == ["start first 0", "start second 0", "start main 0"]
    assert (rig.status["phase"], rig.condition("Initialized"), rig.condition("Ready")) == ("Running", "True", "True")


async def test_a_pod_is_initialized_while_its_containers_still_start(rig, monkeypatch):
    pulled = asyncio.Event()

    async def pull_image(image):
        await pulled.wait()
        rig.runtime.images.add(image)

    monkeypatch.setattr(rig.runtime, "pull_image", pull_image)
    rig.runtime.images.clear()
    await rig.start(node_pod())
    assert (rig.status["phase"], rig.condition("Initialized")) == ("Pending", "True")
    assert rig.condition("PodReadyToStartContainers") == "True"
    pulled.set()
    await rig.settle()
    assert rig.status["phase"] == "Running"


async def test_a_failed_init_container_fails_a_pod_that_is_never_restarted(rig):
    rig.runtime.ends["first"] = [4]
    await rig.start(node_pod(init=("first",), policy="Never"))
    assert rig.status["phase"] == "Failed"
    assert "start main 0" not in rig.runtime.log


async def test_a_failed_init_container_is_tried_again(rig):
    rig.runtime.ends["first"] = [4, 0]
    await rig.start(node_pod(init=("first",)))
    assert rig.runtime.log == ["start first 0", "start first 1", "start main 0"]


async def test_sidecars_start_first_stay_up_and_stop_last(rig):
    await rig.start(node_pod(init=("log:Always", "net:Always")))
    assert rig.runtime.log == ["start log 0", "start net 0", "start main 0"]
    rig.runtime.running["log"].end(1)
    await rig.settle()
    assert rig.runtime.log[-1] == "start log 1"
    await rig.delete()
    assert rig.runtime.log[-4:] == ["stop main", "stop net", "stop log", "stop pod"]


async def test_sidecars_do_not_keep_a_finished_pod_alive(rig):
    rig.runtime.ends["main"] = [0]
    await rig.start(node_pod(init=("log:Always",), policy="Never"))
    assert rig.status["phase"] == "Succeeded"
    assert "stop log" in rig.runtime.log


# --- the end


async def test_a_deleted_pod_is_stopped_given_back_reported_and_let_go_in_this_order(rig):
    await rig.start(node_pod())
    await rig.delete(grace=7)
    assert rig.runtime.running["main"].grace_s == 7
    assert rig.claims.log == ["prepare", "unprepare"]
    assert rig.status["phase"] == "Failed"
    assert rig.container()["state"]["terminated"]["exitCode"] == 143
    assert rig.api.deleted == ["p"]


async def test_nothing_is_let_go_while_a_driver_holds_a_claim(rig):
    rig.claims.unprepare_errors = [DriverError("NodeUnprepareResources: busy")] * 2
    observed = []
    rig.context = replace(rig.context, observe_operation=lambda name, is_error, _: observed.append((name, is_error)))
    await rig.start(node_pod())
    await rig.delete()
    assert rig.api.deleted == []
    assert rig.status["phase"] == "Running"
    await rig.settle(1.1)
    await rig.settle(2.1)
    assert rig.claims.log.count("unprepare") == 3
    assert rig.api.deleted == ["p"]
    assert observed == [
        ("PrepareResources", False),
        *[("UnprepareResources", failed) for failed in (True, True, False)],
    ]


async def test_a_driver_that_is_back_is_asked_at_once(rig):
    rig.claims.unprepare_errors = [DriverError("NodeUnprepareResources: gone")]
    await rig.start(node_pod())
    await rig.delete()
    assert rig.api.deleted == []
    rig.worker.wake()
    await rig.settle()
    assert rig.api.deleted == ["p"]


async def test_a_pod_deleted_while_its_claims_are_being_prepared_gives_them_back(rig):
    rig.claims.gate.clear()
    await rig.start(node_pod())
    await rig.delete()
    assert rig.claims.log == ["prepare", "unprepare"]
    assert rig.runtime.log == ["stop pod"]
    assert rig.api.deleted == ["p"]


async def test_a_force_deleted_pod_is_killed_quickly_and_nothing_is_written_for_it(rig):
    await rig.start(node_pod())
    written = len(rig.api.statuses)
    rig.worker.remove()
    await rig.settle()
    assert rig.runtime.running["main"].grace_s <= 1
    assert rig.claims.log == ["prepare", "unprepare"]
    assert (len(rig.api.statuses), rig.api.deleted) == (written, [])
    assert rig.task.done()


async def test_a_pod_that_had_ended_before_is_only_cleaned_up(rig):
    await rig.start(node_pod(status={"phase": "Succeeded"}))
    assert rig.runtime.log == ["stop pod"]
    assert rig.api.statuses == []
    await rig.delete()
    assert rig.api.deleted == ["p"]


# --- admission


@pytest.mark.parametrize(
    ("requests", "reason", "message"),
    [
        ({"cpu": "3"}, "OutOfcpu", "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"),
        (
            {"memory": "2Gi"},
            "OutOfmemory",
            "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
        ),
    ],
)
async def test_a_pod_without_room_fails_without_being_prepared(rig, requests, reason, message):
    spec = {"containers": [{"name": "main", "image": "i", "resources": {"requests": requests}}]}
    await rig.start(node_pod(spec=spec))
    assert (rig.status["phase"], rig.status["reason"]) == ("Failed", reason)
    assert rig.status["message"] == f"Pod was rejected: {message}"
    assert rig.events.seen == [(reason, message)]
    assert (rig.claims.log, rig.runtime.log, rig.rejections) == ([], ["stop pod"], [reason])


OLD = codec.to_object({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}, Node)
NEW = codec.to_object({"metadata": {"name": "n1", "labels": {"fast": "yes"}}}, Node)
PLAIN = codec.to_object({"metadata": {"name": "n1"}}, Node)
WANTS = {"nodeSelector": {"fast": "yes"}}


@pytest.mark.parametrize(("old", "wanted"), [(OLD, {}), (PLAIN, WANTS)], ids=["taint", "label"])
async def test_a_pod_is_not_turned_away_because_of_old_labels_or_taints(rig, old, wanted):
    rig.context, rig.node = replace(rig.context, node=lambda: old), NEW
    await rig.start(node_pod(spec=wanted))
    assert (rig.status["phase"], rig.nodes_read) == ("Running", 1)


async def test_a_node_that_is_wanted_is_not_read_again(rig):
    rig.context, rig.node = replace(rig.context, node=lambda: NEW), OLD
    await rig.start(node_pod())
    assert (rig.status["phase"], rig.nodes_read) == ("Running", 0)


async def test_labels_and_taints_of_now_turn_a_pod_away(rig):
    rig.context, rig.node = replace(rig.context, node=lambda: PLAIN), OLD
    await rig.start(node_pod(spec=WANTS))
    assert (rig.status["phase"], rig.status["reason"], rig.nodes_read) == ("Failed", "NodeAffinity", 1)
    assert rig.rejections == ["NodeAffinity"]


async def test_room_is_given_back_with_the_pod(rig):
    spec = {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}
    await rig.start(node_pod(spec=spec))
    await rig.delete()
    assert rig.context.admission.admit(node_pod(spec=spec, uid="uid-2"), None) is None
