"""A pod's life on the node, with a runtime that does what a test tells it and time that moves when told."""

import asyncio
from collections import defaultdict

import pytest

from dray.accounting import Enforcement
from dray.api import codec
from dray.api.core import Pod
from dray.api.quantity import Quantity
from dray.client import ApiError, ServerUnreachable
from dray.clock import SimulatedClock
from dray.kubelet.admission import Admission
from dray.kubelet.claims import ClaimCache, ClaimRefused
from dray.kubelet.container_devices import CdiDirectories
from dray.kubelet.containers import ContainerSpecs
from dray.kubelet.errors import ContainerError, DriverError
from dray.kubelet.pod_worker import NodeContext, PodWorker
from dray.kubelet.runtime.interface import Exit


class ScriptedContainer:
    def __init__(self, id_, started_at):
        self.id, self.started_at = id_, started_at
        self._exit = asyncio.get_running_loop().create_future()
        self.grace_s = None

    def end(self, code=0):
        if not self._exit.done():
            self._exit.set_result(
                Exit(code, reason="Completed" if code == 0 else "Error", finished_at="2024-01-01T00:00:09Z")
            )

    async def wait(self):
        return await asyncio.shield(self._exit)

    async def stop(self, grace_s):
        self.grace_s = grace_s
        self.end(143)


class ScriptedRuntime:
    """Containers run until told to end; `ends[name]` are exit codes of those that end at once."""

    name = "scripted"
    pulls_images = True
    applies_cdi = False
    writes_cri_logs = False

    def __init__(self):
        self.images = {"i"}
        self.pull_errors = []
        self.log = []
        self.running = {}
        self.ends = defaultdict(list)
        self.start_errors = defaultdict(list)
        self.sandbox_errors = []
        self.sandboxes = set()

    async def start_pod(self, pod, cgroup):
        if self.sandbox_errors:
            raise self.sandbox_errors.pop(0)
        self.sandboxes.add(pod.metadata.uid)
        return pod.metadata.uid

    async def version(self):
        return "scripted://1"

    async def pod_ip(self, sandbox):
        return ""

    async def has_image(self, image):
        return image in self.images

    async def pull_image(self, image):
        if self.pull_errors:
            raise self.pull_errors.pop(0)
        self.images.add(image)

    async def has_sandbox(self, pod_uid):
        return pod_uid in self.sandboxes

    async def start_container(self, pod, sandbox, spec):
        if self.start_errors[spec.name]:
            raise self.start_errors[spec.name].pop(0)
        self.log.append(f"start {spec.name} {spec.attempt}")
        container = ScriptedContainer(f"scripted://{spec.name}/{spec.attempt}", "2024-01-01T00:00:01Z")
        self.running[spec.name] = container
        if self.ends[spec.name]:
            container.end(self.ends[spec.name].pop(0))
        return Stopped(container, spec.name, self.log)

    async def find_container(self, pod, name):
        return None

    async def stop_pod(self, pod_uid):
        self.sandboxes.discard(pod_uid)
        self.log.append("stop pod")

    async def known_pods(self):
        return set(self.sandboxes)

    async def close(self):
        return None


class Stopped:
    """A container that notes when it is stopped."""

    def __init__(self, container, name, log):
        self._container, self._name, self._log = container, name, log
        self.id, self.started_at = container.id, container.started_at

    async def wait(self):
        return await self._container.wait()

    async def stop(self, grace_s):
        self._log.append(f"stop {self._name}")
        await self._container.stop(grace_s)


class ScriptedClaims:
    def __init__(self):
        self.cache = ClaimCache()
        self.held = set()
        self.prepare_errors = []
        self.unprepare_errors = []
        self.log = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def prepare(self, pod):
        self.log.append("prepare")
        self.held.add(pod.metadata.uid)
        await self.gate.wait()
        if self.prepare_errors:
            raise self.prepare_errors.pop(0)

    def knows_claims_of(self, pod):
        return pod.metadata.uid in self.held or not pod.spec.resource_claims

    def has_claims(self, uid):
        return uid in self.held

    async def unprepare(self, uid):
        self.log.append("unprepare")
        if self.unprepare_errors:
            raise self.unprepare_errors.pop(0)
        self.held.discard(uid)


class FakeApi:
    """Keeps the statuses that are written; `away` makes it unreachable."""

    def __init__(self, clock):
        self.clock = clock
        self.statuses = []
        self.deleted = []
        self.away = False

    async def patch(self, kind, name, patch, namespace="", **options):
        if self.away:
            raise ServerUnreachable("connection refused")
        self.statuses.append(patch["status"])

    async def delete(self, kind, name, namespace="", **options):
        if self.away:
            raise ServerUnreachable("connection refused")
        self.deleted.append(name)

    async def get(self, kind, name, namespace=""):
        raise ApiError(404, "NotFound", "not found")


class Events:
    def __init__(self):
        self.all = []

    def event(self, about, kind, reason, message):
        self.all.append((kind, reason, message, about.field_path))

    @property
    def seen(self):
        """What went wrong."""
        return [(reason, message) for kind, reason, message, _ in self.all if kind == "Warning"]

    @property
    def told(self):
        return [(reason, message) for kind, reason, message, _ in self.all if kind == "Normal"]


def a_pod(containers=("main",), init=(), policy="Always", uid="uid-1", **fields):
    def container(each):
        name, _, restart = each.partition(":")
        return {"name": name, "image": "i", **({"restartPolicy": restart} if restart else {})}

    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": uid, **fields.pop("metadata", {})},
        "spec": {
            "nodeName": "n1",
            "restartPolicy": policy,
            "containers": [container(each) for each in containers],
            "initContainers": [container(each) for each in init],
            **fields.pop("spec", {}),
        },
        "status": fields.pop("status", {}),
    }
    return codec.to_object(document, Pod)


class Rig:
    def __init__(self, tmp_path):
        self.clock = SimulatedClock()
        self.api = FakeApi(self.clock)
        self.events = Events()
        self.runtime = ScriptedRuntime()
        self.claims = ScriptedClaims()
        self.rejections = []
        capacity = {"cpu": Quantity.parse("2"), "memory": Quantity.parse("1Gi"), "pods": Quantity.parse("10")}
        self.health = []
        specs = ContainerSpecs(
            self.api, self.claims.cache, CdiDirectories([tmp_path]), tmp_path, lambda *_: None,
            allocatable=capacity, enforcement=Enforcement.KEP,
        )  # fmt: skip
        self.context = NodeContext(
            client=self.api, clock=self.clock, recorder=self.events, admission=Admission("n1", capacity),
            claims=self.claims, runtime=self.runtime, specs=specs, log_root=tmp_path, host_ip="10.0.0.1",
            node=lambda: None, device_statuses=lambda pod, container: self.health,
            count_rejection=self.rejections.append,
        )  # fmt: skip
        self.worker = None
        self.task = None

    async def start(self, pod):
        self.worker = PodWorker(self.context, pod)
        self.task = asyncio.create_task(self.worker.run())
        await self.settle()

    async def settle(self, seconds=0.0):
        for _ in range(5):
            await asyncio.sleep(0.002)
        if seconds:
            await self.clock.advance(seconds)
            for _ in range(5):
                await asyncio.sleep(0.002)

    async def delete(self, grace=5):
        pod = self.worker.pod
        document = codec.to_document(pod)
        document["metadata"] |= {"deletionTimestamp": "2024-01-01T00:01:00Z", "deletionGracePeriodSeconds": grace}
        self.worker.update(codec.to_object(document, Pod))
        await self.settle()

    @property
    def status(self):
        return self.api.statuses[-1]

    def container(self, name="main", kind="containerStatuses"):
        return next(each for each in self.status[kind] if each["name"] == name)

    def condition(self, kind):
        return next(each["status"] for each in self.status["conditions"] if each["type"] == kind)


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    if rig.task is not None:
        rig.task.cancel()
        await asyncio.gather(rig.task, return_exceptions=True)


# --- restart policies and phases


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")],
)
async def test_a_pod_ends_with_its_containers_where_its_policy_says_so(rig, policy, code, phase):
    rig.runtime.ends["main"] = [code]
    await rig.start(a_pod(policy=policy))
    assert rig.status["phase"] == phase
    assert rig.container()["state"]["terminated"]["exitCode"] == code
    assert rig.claims.log == ["prepare", "unprepare"]
    assert rig.api.deleted == []


@pytest.mark.parametrize(("policy", "code"), [("Always", 0), ("Always", 1), ("OnFailure", 1)])
async def test_a_container_is_restarted_at_once_the_first_time_and_then_slower_and_slower(rig, policy, code):
    rig.runtime.ends["main"] = [code] * 4
    await rig.start(a_pod(policy=policy))
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
    await rig.start(a_pod())
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
    await rig.start(a_pod(init=("first", "second")))
    assert rig.runtime.log == ["start first 0"]
    assert (rig.status["phase"], rig.condition("Initialized")) == ("Pending", "False")
    assert rig.container()["state"]["waiting"]["reason"] == "PodInitializing"
    rig.runtime.running["first"].end(0)
    await rig.settle()
    assert rig.runtime.log == ["start first 0", "start second 0", "start main 0"]
    assert (rig.status["phase"], rig.condition("Initialized"), rig.condition("Ready")) == ("Running", "True", "True")


async def test_a_failed_init_container_fails_a_pod_that_is_never_restarted(rig):
    rig.runtime.ends["first"] = [4]
    await rig.start(a_pod(init=("first",), policy="Never"))
    assert rig.status["phase"] == "Failed"
    assert "start main 0" not in rig.runtime.log


async def test_a_failed_init_container_is_tried_again(rig):
    rig.runtime.ends["first"] = [4, 0]
    await rig.start(a_pod(init=("first",)))
    assert rig.runtime.log == ["start first 0", "start first 1", "start main 0"]


async def test_sidecars_start_first_stay_up_and_stop_last(rig):
    await rig.start(a_pod(init=("log:Always", "net:Always")))
    assert rig.runtime.log == ["start log 0", "start net 0", "start main 0"]
    rig.runtime.running["log"].end(1)
    await rig.settle()
    assert rig.runtime.log[-1] == "start log 1"
    await rig.delete()
    assert rig.runtime.log[-4:] == ["stop main", "stop net", "stop log", "stop pod"]


async def test_sidecars_do_not_keep_a_finished_pod_alive(rig):
    rig.runtime.ends["main"] = [0]
    await rig.start(a_pod(init=("log:Always",), policy="Never"))
    assert rig.status["phase"] == "Succeeded"
    assert "stop log" in rig.runtime.log


# --- the end


async def test_a_deleted_pod_is_stopped_given_back_reported_and_let_go_in_this_order(rig):
    await rig.start(a_pod())
    await rig.delete(grace=7)
    assert rig.runtime.running["main"].grace_s == 7
    assert rig.claims.log == ["prepare", "unprepare"]
    assert rig.status["phase"] == "Failed"
    assert rig.container()["state"]["terminated"]["exitCode"] == 143
    assert rig.api.deleted == ["p"]


async def test_nothing_is_let_go_while_a_driver_holds_a_claim(rig):
    rig.claims.unprepare_errors = [DriverError("NodeUnprepareResources: busy")] * 2
    await rig.start(a_pod())
    await rig.delete()
    assert rig.api.deleted == []
    assert rig.status["phase"] == "Running"
    await rig.settle(1.1)
    await rig.settle(2.1)
    assert rig.claims.log.count("unprepare") == 3
    assert rig.api.deleted == ["p"]


async def test_a_driver_that_is_back_is_asked_at_once(rig):
    rig.claims.unprepare_errors = [DriverError("NodeUnprepareResources: gone")]
    await rig.start(a_pod())
    await rig.delete()
    assert rig.api.deleted == []
    rig.worker.wake()
    await rig.settle()
    assert rig.api.deleted == ["p"]


async def test_a_pod_deleted_while_its_claims_are_being_prepared_gives_them_back(rig):
    rig.claims.gate.clear()
    await rig.start(a_pod())
    await rig.delete()
    assert rig.claims.log == ["prepare", "unprepare"]
    assert rig.runtime.log == ["stop pod"]
    assert rig.api.deleted == ["p"]


async def test_a_force_deleted_pod_is_killed_quickly_and_nothing_is_written_for_it(rig):
    await rig.start(a_pod())
    written = len(rig.api.statuses)
    rig.worker.remove()
    await rig.settle()
    assert rig.runtime.running["main"].grace_s <= 1
    assert rig.claims.log == ["prepare", "unprepare"]
    assert (len(rig.api.statuses), rig.api.deleted) == (written, [])
    assert rig.task.done()


async def test_a_pod_that_had_ended_before_is_only_cleaned_up(rig):
    await rig.start(a_pod(status={"phase": "Succeeded"}))
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
    await rig.start(a_pod(spec=spec))
    assert (rig.status["phase"], rig.status["reason"]) == ("Failed", reason)
    assert rig.status["message"] == f"Pod was rejected: {message}"
    assert rig.events.seen == [(reason, message)]
    assert (rig.claims.log, rig.runtime.log, rig.rejections) == ([], ["stop pod"], [reason])


async def test_room_is_given_back_with_the_pod(rig):
    spec = {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}
    await rig.start(a_pod(spec=spec))
    await rig.delete()
    assert rig.context.admission.admit(a_pod(spec=spec, uid="uid-2"), None) is None


# --- trouble


async def test_claims_that_cannot_be_prepared_are_tried_again_and_the_event_says_why(rig):
    rig.claims.prepare_errors = [
        ClaimRefused("ResourceClaim c: not allocated"),
        DriverError("DRA driver d is not registered"),
    ]
    await rig.start(a_pod())
    assert rig.events.seen == [
        (
            "FailedPrepareDynamicResources",
            "Failed to prepare dynamic resources: prepare dynamic resources: ResourceClaim c: not allocated",
        )
    ]
    assert (rig.status["phase"], rig.runtime.log) == ("Pending", [])
    await rig.settle(1.1)
    assert rig.events.seen[-1][1].endswith("DRA driver d is not registered")
    await rig.settle(2.1)
    assert rig.status["phase"] == "Running"


async def test_a_changed_pod_is_a_reason_to_try_at_once(rig):
    rig.claims.prepare_errors = [ClaimRefused("not yet")]
    await rig.start(a_pod())
    rig.worker.update(rig.worker.pod)
    await rig.settle()
    assert rig.status["phase"] == "Running"


@pytest.mark.parametrize(
    "error", [ContainerError("RunContainerError", "RunPodSandbox: no network"), OSError("disk full")]
)
async def test_a_sandbox_that_cannot_be_made_is_tried_again(rig, error):
    rig.runtime.sandbox_errors = [error]
    await rig.start(a_pod())
    assert rig.status["phase"] == "Pending"
    assert rig.events.seen[0][0] == "FailedCreatePodSandBox"
    await rig.settle(1.1)
    assert rig.status["phase"] == "Running"


async def test_a_bug_in_the_runtime_does_not_fail_the_pod(rig):
    rig.runtime.start_errors["main"] = [RuntimeError("surprise")]
    await rig.start(a_pod())
    await rig.settle(1.1)
    assert rig.status["phase"] == "Running"


async def test_a_container_whose_environment_cannot_be_resolved_waits_and_recovers(rig):
    rig.runtime.start_errors["main"] = [
        ContainerError("CreateContainerConfigError", "claim c, request r: device d/p/x has no attribute model")
    ]
    await rig.start(a_pod(policy="Never"))
    assert rig.container()["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    assert rig.status["phase"] == "Pending"
    assert ("Failed", "Error: claim c, request r: device d/p/x has no attribute model") in rig.events.seen
    await rig.settle(10.5)
    assert rig.status["phase"] == "Running"


async def test_an_environment_of_a_claim_that_is_not_there_is_a_config_error(rig):
    reference = {"claimName": "c", "requestName": "r", "attribute": "model"}
    env = [{"name": "MODEL", "valueFrom": {"resourceSliceAttributeRef": reference}}]
    await rig.start(a_pod(spec={"containers": [{"name": "main", "image": "i", "env": env}]}))
    assert rig.container()["state"]["waiting"] == {
        "reason": "CreateContainerConfigError",
        "message": "claim c: not allocated",
    }


async def test_statuses_catch_up_after_an_api_server_that_was_away(rig):
    rig.api.away = True
    await rig.start(a_pod())
    assert rig.runtime.log == ["start main 0"]
    assert rig.api.statuses == []
    rig.api.away = False
    await rig.settle(2.5)
    assert rig.status["phase"] == "Running"
    written = len(rig.api.statuses)
    await rig.settle(60)
    assert len(rig.api.statuses) == written


async def test_a_finished_pod_waits_for_the_api_to_tell_it(rig):
    await rig.start(a_pod(policy="Never"))
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
    await rig.start(a_pod(status={"phase": "Running", "startTime": "2024-01-01T00:00:00Z"}))
    assert rig.claims.log == []
    assert rig.runtime.log == ["start main 0"]


async def test_device_health_is_in_every_status(rig):
    rig.health = [{"name": "claim:c", "resources": [{"resourceID": "v/c=d", "health": "Unknown"}]}]
    await rig.start(a_pod())
    assert rig.container()["allocatedResourcesStatus"] == rig.health
    rig.health = [{"name": "claim:c", "resources": [{"resourceID": "v/c=d", "health": "Unhealthy", "message": "hot"}]}]
    await rig.worker.report()
    assert rig.container()["allocatedResourcesStatus"] == rig.health


async def test_conditions_keep_their_time_while_they_stay_the_same(rig):
    await rig.start(a_pod())
    first = {each["type"]: each["lastTransitionTime"] for each in rig.status["conditions"]}
    await rig.settle(100)
    rig.health = [{"name": "claim:c", "resources": []}]
    await rig.worker.report()
    assert {each["type"]: each["lastTransitionTime"] for each in rig.status["conditions"]} == first


# --- images and events


PRESENT = ("Pulled", 'Container image "i" already present on machine and can be accessed by the pod')
CREATED, STARTED = ("Created", "Container created"), ("Started", "Container started")


async def test_each_step_of_a_container_is_an_event_about_that_container(rig):
    await rig.start(a_pod(init=("log:Always",)))
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
    return a_pod(spec={"containers": [{"name": "main", "image": "new", "imagePullPolicy": policy}]})


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
    await rig.start(a_pod(status={"phase": "Running", "startTime": "2024-01-01T00:00:00Z"}))
    rig.task.cancel()
    await asyncio.gather(rig.task, return_exceptions=True)
    left = rig.runtime.running["main"]

    async def find(pod, name):
        return Stopped(left, name, rig.runtime.log), 3

    rig.runtime.find_container = find
    deleted = {"deletionTimestamp": "2024-01-01T00:01:00Z", "deletionGracePeriodSeconds": 9}
    await rig.start(a_pod(metadata=deleted, status={"phase": "Running", "startTime": "2024-01-01T00:00:00Z"}))
    assert left.grace_s == 9
    assert rig.container()["state"]["terminated"]["exitCode"] == 143
    assert rig.container()["restartCount"] == 3
    assert rig.api.deleted == ["p"]


async def test_a_sandbox_that_died_is_made_anew_and_its_claims_are_prepared_again(rig):
    await rig.start(a_pod(containers=("main", "second")))
    rig.runtime.sandboxes.clear()
    rig.runtime.start_errors["main"] = [ContainerError("CreateContainerError", "CreateContainer: sandbox not found")]
    rig.runtime.running["main"].end(137)
    await rig.settle()
    assert rig.events.told[-1] == ("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
    await rig.settle(1.1)
    assert rig.claims.log == ["prepare", "prepare"]
    assert rig.runtime.sandboxes == {"uid-1"}
    assert rig.status["phase"] == "Running"
    assert rig.runtime.log.count("start second 0") == 2, "the one that was kept in the old sandbox was let go of"
    await rig.delete()
    assert rig.runtime.log.count("stop main") == rig.runtime.log.count("stop second") == 1


async def test_containers_restart_while_the_api_server_is_away(rig):
    await rig.start(a_pod())
    rig.api.away = True
    rig.runtime.running["main"].end(1)
    await rig.settle()
    assert rig.runtime.log == ["start main 0", "start main 1"]
    assert rig.claims.log == ["prepare"]


async def test_a_device_that_its_runtime_cannot_find_is_looked_for_again(rig):
    rig.runtime.start_errors["main"] = [ContainerError("CreateContainerError", "unresolvable CDI devices v/c=d")]
    await rig.start(a_pod(policy="Never"))
    assert rig.container()["state"]["waiting"]["reason"] == "CreateContainerError"
    assert ("Failed", "Error: unresolvable CDI devices v/c=d") in rig.events.seen
    await rig.settle(10.5)
    assert rig.status["phase"] == "Running"


async def test_a_pod_that_is_active_for_too_long_fails(rig):
    await rig.start(a_pod(spec={"activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": 4}))
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
    await rig.start(a_pod(spec={"activeDeadlineSeconds": 30}))
    for _ in range(5):
        await rig.settle(10)
    assert (rig.status["phase"], rig.status["reason"]) == ("Failed", "DeadlineExceeded")
