"""Images and events of a pod's containers, and what its worker finds after a restart."""

import asyncio

from dray.kubelet.errors import ContainerError, DriverError
from tests.kubelet.worker_rig import Stopped, WorkerRig, node_pod

RIG = WorkerRig


PRESENT = ("Pulled", 'Container image "i" already present on machine and can be accessed by the pod')
CREATED, STARTED = ("Created", "Container created"), ("Started", "Container started")


async def test_each_step_of_a_container_is_an_event_about_that_container(rig):
    await rig.start(node_pod(init=("log:Always",)))
    await rig.delete()
    steps = [PRESENT, CREATED, STARTED]
    assert rig.events.told == [
        *steps,
        *steps,
        ("Killing", "Stopping container main"),
        ("Killing", "Stopping container log"),
    ]
    about = [path for _, _, _, path in rig.events.all]
    assert about[:6] == ["spec.initContainers{log}"] * 3 + ["spec.containers{main}"] * 3
    assert about[6:] == ["spec.containers{main}", "spec.initContainers{log}"]


def with_policy(policy):
    return node_pod(spec={"containers": [{"name": "main", "image": "new", "imagePullPolicy": policy}]})


async def test_an_image_that_is_not_there_is_pulled(rig):
    await rig.start(with_policy("IfNotPresent"))
    assert [reason for reason, _ in rig.events.told] == ["Pulling", "Pulled", "Created", "Started"]
    assert rig.events.told[0][1] == 'Pulling image "new"'
    assert rig.events.told[1][1].startswith('Successfully pulled image "new" in ')


async def test_always_pulls_what_is_there_already(rig):
    rig.runtime.images = {"new"}
    await rig.start(with_policy("Always"))
    assert rig.events.told[0] == ("Pulling", 'Pulling image "new"')


async def test_never_does_not_pull(rig):
    await rig.start(with_policy("Never"))
    text = 'Container image "new" is not present with pull policy of Never'
    assert rig.container()["state"]["waiting"] == {"reason": "ErrImageNeverPull", "message": text}
    assert rig.events.seen == [("ErrImageNeverPull", text), ("Failed", "Error: ErrImageNeverPull")]
    rig.runtime.images.add("new")
    await rig.settle(10.5)
    assert rig.status["phase"] == "Running"


async def test_an_image_that_cannot_be_pulled_is_backed_off_from(rig):
    rig.runtime.pull_errors = [ContainerError("ErrImagePull", "no such host")]
    await rig.start(with_policy("IfNotPresent"))
    reasons = [each["containerStatuses"][0]["state"].get("waiting", {}).get("reason") for each in rig.api.statuses]
    assert reasons[-2:] == ["ErrImagePull", "ImagePullBackOff"]
    assert rig.events.seen == [
        ("Failed", 'Failed to pull image "new": no such host'),
        ("Failed", "Error: ErrImagePull"),
    ]
    assert ("BackOff", 'Back-off pulling image "new"') in rig.events.told
    await rig.settle(10.5)
    assert rig.status["phase"] == "Running"


async def test_containers_of_an_earlier_life_get_their_grace(rig):
    """The agent was restarted while the pod was being deleted."""
    await rig.start(node_pod(status={"phase": "Running", "startTime": "2024-01-01T00:00:00Z"}))
    rig.task.cancel()
    await asyncio.gather(rig.task, return_exceptions=True)
    left = rig.runtime.running["main"]

    async def find(pod, name):
        return Stopped(left, name, rig.runtime.log), 3

    rig.runtime.find_container = find
    deleted = {"deletionTimestamp": "2024-01-01T00:01:00Z", "deletionGracePeriodSeconds": 9}
    await rig.start(node_pod(metadata=deleted, status={"phase": "Running", "startTime": "2024-01-01T00:00:00Z"}))
    assert left.grace_s == 9
    assert rig.container()["state"]["terminated"]["exitCode"] == 143
    assert rig.container()["restartCount"] == 3
    assert rig.api.deleted == ["p"]


async def test_a_sandbox_that_died_is_made_anew_and_its_claims_are_prepared_again(rig):
    await rig.start(node_pod(containers=("main", "second")))
    rig.runtime.sandboxes.clear()
    rig.runtime.start_errors["main"] = [ContainerError("CreateContainerError", "CreateContainer: sandbox not found")]
    rig.runtime.running["main"].end(137)
    await rig.settle()
    changed = ("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
    assert rig.events.told[-2:] == [changed, ("Killing", "Stopping container second")]
    await rig.settle(1.1)
    assert rig.claims.log == ["prepare", "prepare"]
    assert rig.runtime.sandboxes == {"uid-1"}
    assert rig.status["phase"] == "Running"
    assert rig.runtime.log.count("start second 0") == 2
    await rig.delete()
    assert (rig.runtime.log.count("stop main"), rig.runtime.log.count("stop second")) == (1, 2)


async def test_a_sandbox_that_dies_under_living_containers_takes_them_along(rig):
    await rig.start(node_pod())
    rig.runtime.sandboxes.clear()
    rig.runtime.sandbox_ends.set()
    await rig.settle()
    assert rig.events.told[-2][0] == "SandboxChanged"
    assert rig.runtime.log == ["start main 0", "stop main"]
    rig.runtime.sandbox_ends.clear()
    await rig.settle(1.1)
    assert rig.claims.log == ["prepare", "prepare"]
    assert rig.runtime.log[2:] == ["start main 0"]
    assert rig.condition("PodReadyToStartContainers") == "True"


async def test_containers_restart_while_the_api_server_is_away(rig):
    await rig.start(node_pod())
    rig.api.away = True
    rig.runtime.running["main"].end(1)
    await rig.settle()
    assert rig.runtime.log == ["start main 0", "start main 1"]
    assert rig.claims.log == ["prepare"]


async def test_a_device_that_its_runtime_cannot_find_is_looked_for_again(rig):
    rig.runtime.start_errors["main"] = [ContainerError("CreateContainerError", "unresolvable CDI devices v/c=d")]
    await rig.start(node_pod(policy="Never"))
    assert rig.container()["state"]["waiting"]["reason"] == "CreateContainerError"
    assert ("Failed", "Error: unresolvable CDI devices v/c=d") in rig.events.seen
    await rig.settle(10.5)
    assert rig.status["phase"] == "Running"


async def test_a_pod_that_is_active_for_too_long_fails(rig):
    await rig.start(node_pod(spec={"activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": 4}))
    await rig.settle(45)
    assert rig.status["phase"] == "Running"
    for _ in range(3):
        await rig.settle(10)
    text = "Pod was active on the node longer than the specified deadline"
    assert (rig.status["phase"], rig.status["reason"], rig.status["message"]) == ("Failed", "DeadlineExceeded", text)
    assert ("DeadlineExceeded", text) in rig.events.told
    assert rig.runtime.running["main"].grace_s == 4
    assert rig.claims.log == ["prepare", "unprepare"]
    assert rig.api.deleted == [], "it stays for people to look at"


async def test_waiting_for_devices_counts_as_active(rig):
    rig.claims.prepare_errors = [DriverError("DRA driver d is not registered")] * 99
    await rig.start(node_pod(spec={"activeDeadlineSeconds": 30}))
    for _ in range(5):
        await rig.settle(10)
    assert (rig.status["phase"], rig.status["reason"]) == ("Failed", "DeadlineExceeded")
