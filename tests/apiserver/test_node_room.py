"""The ledger beside the pod cache: whatever comes and goes, it says what a plain count over all pods would."""

import asyncio
import random
from collections import Counter

import msgspec
import pytest
from tests.waiting import let_others_run

from dray.accounting import SCHEDULING
from dray.api.scheme import by_kind
from dray.apiserver.errors import ApiError
from dray.apiserver.guard import binding_guard
from dray.apiserver.guard.binding_guard import BindingGuard, NodeRoom, node_key
from dray.apiserver.watch.kind_cache import KindCache, Progress
from dray.store.errors import Conflict
from dray.store.interface import Change, Entry, Put

NODES = ("n1", "n2", "n3")


class World:
    """Pods and nodes as the server's caches hold them, and bindings under way."""

    def __init__(self):
        self.pods, self.nodes = KindCache(by_kind("Pod")), KindCache(by_kind("Node"))
        self.revision = 0
        self.stored: dict[str, dict] = {}
        self.node_room = NodeRoom(self.nodes, self.pods, SCHEDULING)
        for name in NODES:
            amounts = {"cpu": "1000", "memory": "1Ti", "pods": "1000"}
            self.put(self.nodes, "", {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}})

    def put(self, cache, namespace, document):
        document = {"kind": document["kind"], "apiVersion": "v1", **document}
        key, value = cache.key(namespace, document["metadata"]["name"]), msgspec.json.encode(document)
        self.revision += 1
        change = Change(key, self.revision, value, None, 0, self.revision)
        cache.apply(change)
        if cache is self.pods:
            self.node_room.apply(change)
        return key, value

    def load_again(self):
        """As after a compaction."""
        entries = [Entry(each.key, each.value, each.revision, each.created) for each in self.pods.list()]
        load = self.node_room.loading()
        load.add(entries)
        load.finish(self.revision)

    def pod(self, name, uid, node="", cpu=1, phase="Running"):
        container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
        spec = {"containers": [container]} | ({"nodeName": node} if node else {})
        metadata = {"name": name, "namespace": "ns", "uid": uid}
        return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {"phase": phase}}

    def show(self, document):
        self.stored[document["metadata"]["name"]] = document
        return self.put(self.pods, "ns", document)

    def remove(self, name):
        self.stored.pop(name)
        self.revision += 1
        change = Change(self.pods.key("ns", name), self.revision, None, None, 0, 0)
        self.pods.apply(change)
        self.node_room.apply(change)

    def binding(self, document):
        binding = self.node_room.binding(
            self.pods.key("ns", document["metadata"]["name"]), msgspec.json.encode(document)
        )
        assert binding is not None
        return binding

    def requested(self, node):
        """What the ledger counts there, asked as a binding asks."""
        self.node_room.shortages(self.binding(self.pod("question", "uid-question", node)))
        ledger = self.node_room._ledger.nodes.get(node)
        return ledger.requested("cpu") if ledger is not None else 0

    def counted(self, node, under_way=()):
        placed = [
            pod
            for pod in self.stored.values()
            if pod["spec"].get("nodeName") == node and pod["status"]["phase"] not in ("Succeeded", "Failed")
        ]
        shown = {pod["metadata"]["uid"] for pod in placed}
        placed += [pod for pod in under_way if pod["spec"]["nodeName"] == node and pod["metadata"]["uid"] not in shown]
        return sum(int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]) * 1000 for pod in placed)


@pytest.mark.parametrize("seed", range(8))
def test_ledger_is_a_plain_count(seed):
    chance, world = random.Random(seed), World()
    under_way: dict[str, tuple] = {}
    made = 0
    for _ in range(400):
        what = chance.choice(
            ["make", "bind", "bind", "commit", "fail", "phase", "remove", "resize", "start over", "ask"]
        )
        names = sorted(world.stored)
        free = [name for name in names if name not in under_way]
        unbound = [name for name in free if not world.stored[name]["spec"].get("nodeName")]
        bound = [name for name in free if world.stored[name]["spec"].get("nodeName")]
        if what == "make":
            made += 1
            name = chance.choice([f"p{made}", f"again{chance.randrange(4)}"])
            if name not in world.stored:
                world.show(world.pod(name, f"uid-{made}", chance.choice(["", "", "n1"]), chance.randint(1, 3)))
        elif what == "bind" and unbound:
            old = world.stored[chance.choice(unbound)]
            new = old | {"spec": old["spec"] | {"nodeName": chance.choice(NODES)}}
            binding = world.binding(new)
            world.node_room.shortages(binding)
            world.node_room.take(binding)
            under_way[new["metadata"]["name"]] = (binding, new)
        elif what == "commit" and under_way:
            binding, new = under_way.pop(chance.choice(sorted(under_way)))
            # The watch may be quicker than the answer of the commit.
            if chance.random() < 0.5:
                world.show(new)
                world.node_room.stored(binding)
            else:
                world.node_room.stored(binding)
                world.show(new)
        elif what == "fail" and under_way:
            binding, _ = under_way.pop(chance.choice(sorted(under_way)))
            world.node_room.give_back(binding)
        elif what == "phase" and bound:
            pod = world.stored[chance.choice(bound)]
            world.show(pod | {"status": {"phase": chance.choice(["Running", "Succeeded", "Failed"])}})
        elif what == "resize" and bound:
            pod = world.stored[chance.choice(bound)]
            spec = pod["spec"]
            world.show(
                world.pod(pod["metadata"]["name"], pod["metadata"]["uid"], spec["nodeName"], chance.randint(1, 5))
            )
        elif what == "remove" and free:
            world.remove(chance.choice(free))
        elif what == "start over" and chance.random() < 0.1:
            world.load_again()
        else:
            node = chance.choice(NODES)
            assert world.requested(node) == world.counted(node, [new for _, new in under_way.values()])
    for node in NODES:
        assert world.requested(node) == world.counted(node, [new for _, new in under_way.values()])
    world.node_room._ledger.check()


def test_pods_of_other_nodes_are_not_read(monkeypatch):
    world, read = World(), Counter()
    plain = binding_guard.decode
    monkeypatch.setattr(binding_guard, "decode", lambda kind, value: read.update([kind.__name__]) or plain(kind, value))
    for index in range(30):
        world.show(world.pod(f"p{index}", f"uid-{index}", NODES[index % 3]))
    for _ in range(5):
        for index in range(30):
            world.show(world.pod(f"p{index}", f"uid-{index}", NODES[index % 3], cpu=2))
    assert world.requested("n1") == 20_000
    # Ten pods of this node, once each, and the pod that asks.
    assert read == {"Pod": 11, "Node": 1}


def test_what_cannot_be_read_is_not_counted():
    world = World()
    broken = world.pod("p", "uid-p", "n1")
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "-1"
    world.show(broken)
    assert world.requested("n1") == 0
    assert world.node_room.binding("key", msgspec.json.encode(broken)) is None


class StoreWithoutKeys:
    async def get(self, key):
        return None


async def bind(world, failures, *, several_servers):
    """Binds a pod that fits once and not twice; the commits fail in this order, then one succeeds. Answers how many there were."""
    old = world.pod("p", "uid-p", cpu=600)
    world.show(old)
    new = old | {"spec": old["spec"] | {"nodeName": "n1"}}
    commits = []

    async def then(operations, preconditions, old, new):
        commits.append(operations)
        if len(commits) <= len(failures):
            raise failures[len(commits) - 1]
        return world.revision + 1

    guard = BindingGuard(StoreWithoutKeys(), Progress(), world.node_room, then, several_servers=several_servers)
    await guard.commit([Put(world.pods.key("ns", "p"), msgspec.json.encode(new))], [], old, new)
    return len(commits)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(Conflict(["/registry/pods/ns/p"]), id="the pod was changed"),
        pytest.param(RuntimeError("the disk is full"), id="the store failed"),
        pytest.param(asyncio.CancelledError(), id="the client went away"),
    ],
)
async def test_binding_that_fails_gives_its_room_back(failure):
    world = World()
    with pytest.raises(type(failure)):
        await bind(world, [failure], several_servers=False)
    assert world.requested("n1") == 0


async def test_binding_that_another_server_passed_counts_itself_once_when_it_tries_again():
    world = World()
    assert await bind(world, [Conflict([node_key("n1")])] * 2, several_servers=True) == 3
    assert world.requested("n1") == 600_000


class StoreWithKeys:
    """Another server bound a pod to the node at this revision."""

    def __init__(self, revision):
        self._revision = revision

    async def get(self, key):
        return Entry(key, b"uid-other", self._revision, self._revision)


async def test_binding_waits_until_this_server_has_seen_what_another_one_bound():
    world = World()
    pod = world.pod("p", "uid-p", cpu=600)
    world.show(pod)
    progress, commits = Progress(), []

    async def then(operations, preconditions, old, new):
        commits.append(operations)
        return world.revision + 1

    store = StoreWithKeys(world.revision + 1)
    guard = BindingGuard(store, progress, world.node_room, then, several_servers=True)
    bound = pod | {"spec": pod["spec"] | {"nodeName": "n1"}}
    put = Put(world.pods.key("ns", "p"), msgspec.json.encode(bound))
    binding = asyncio.create_task(guard.commit([put], [], pod, bound))
    await let_others_run(10)
    assert commits == []
    world.show(world.pod("other", "uid-other", "n1", cpu=600))
    progress.reach(world.revision)
    with pytest.raises(ApiError, match="Insufficient cpu"):
        await binding
    assert commits == []
