"""A pod worker over a runtime that does what a test tells it, and time that moves when told."""

import asyncio
from collections import defaultdict

from dray.accounting import Enforcement
from dray.api import codec
from dray.api.core import Pod
from dray.api.quantity import Quantity
from dray.client import ApiError, ServerUnreachable
from dray.clock import SimulatedClock
from dray.kubelet.admission import PodAdmission
from dray.kubelet.claims import ClaimCache
from dray.kubelet.container_specs import CdiDirectories, ContainerSpecs
from dray.kubelet.pod_worker import NodeContext, PodWorker
from dray.kubelet.runtime.interface import Exit
from tests.builders.manifests import a_container, a_pod
from tests.waiting import let_others_run

TURNS = 50


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
        self.memory = {}
        self.sandbox_ends = asyncio.Event()
        # What commands of probes and hooks answer, by their first word: exit code and output.
        self.commands = {}

    async def sandbox_end(self, sandbox):
        await self.sandbox_ends.wait()

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
        return Stopped(container, spec.name, self.log, self.commands)

    async def find_container(self, pod, name):
        return None

    async def stop_pod(self, pod_uid):
        self.sandboxes.discard(pod_uid)
        self.log.append("stop pod")

    async def known_pods(self):
        return set(self.sandboxes)

    async def memory_used(self):
        return self.memory

    async def close(self):
        return None


class Stopped:
    """A container that notes when it is stopped, and which commands it runs."""

    def __init__(self, container, name, log, commands=()):
        self._container, self._name, self._log = container, name, log
        self._commands = commands
        self.id, self.started_at = container.id, container.started_at

    async def run_command(self, command, timeout_s):
        self._log.append(f"run {command[0]}")
        return self._commands[command[0]]

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


def node_pod(containers=("main",), init=(), policy="Always", uid="uid-1", **fields):
    """A container's restart policy stands behind a colon in its name."""

    def container(each):
        name, _, restart = each.partition(":")
        return a_container(name, image="i", **({"restartPolicy": restart} if restart else {}))

    document = a_pod(
        "p",
        *(container(each) for each in containers),
        namespace="ns",
        uid=uid,
        node="n1",
        restartPolicy=policy,
        initContainers=[container(each) for each in init],
        status=fields.pop("status", {}),
        **fields.pop("metadata", {}),
        **fields.pop("spec", {}),
    )
    return codec.to_object(document, Pod)


async def _no_device(driver, pool, name):
    return None


class WorkerRig:
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
            self.api, self.claims.cache, CdiDirectories([tmp_path]), tmp_path, tmp_path / "volumes", _no_device,
            allocatable=capacity, enforcement=Enforcement.KEP,
        )  # fmt: skip
        self.context = NodeContext(
            client=self.api, clock=self.clock, recorder=self.events, admission=PodAdmission("n1", capacity),
            claims=self.claims, runtime=self.runtime, specs=specs, log_root=tmp_path, host_ip="10.0.0.1",
            node=lambda: None, read_node=self.read_node, device_statuses=lambda pod, container: self.health,
            count_rejection=self.rejections.append,
        )  # fmt: skip
        # What the API has; what the agent knows is in the context.
        self.node = None
        self.nodes_read = 0
        self.worker = None
        self.task = None

    async def read_node(self):
        self.nodes_read += 1
        return self.node

    async def start(self, pod):
        self.worker = PodWorker(self.context, pod)
        self.task = asyncio.create_task(self.worker.run())
        await self.settle()

    async def settle(self, seconds=0.0):
        await let_others_run(TURNS)
        if seconds:
            await self.clock.advance(seconds)
            await let_others_run(TURNS)

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

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
