"""Objects share equal parts, mean the same as before, and a part that nobody else has is forgotten."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api import codec
from dray.api.core import Pod
from dray.client import PODS, Client, Informer
from dray.client.informer import SETTLED_S
from dray.client.shared_parts import SharedParts
from dray.clock import SimulatedClock
from tests.client.scripted import ScriptedTransport, bookmark, event

TOLERATIONS = [{"key": f"node.kubernetes.io/{name}", "operator": "Exists"} for name in ("not-ready", "unreachable")]
TOKEN = {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}]}


def document(name, image="busybox", node="node-1", revision="1"):
    mount = f"kube-api-access-{name}"
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": revision},
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "resources": {"requests": {"cpu": "100m"}},
                    "volumeMounts": [{"name": mount, "mountPath": "/var/run/secrets"}],
                }
            ],
            "tolerations": TOLERATIONS,
            "volumes": [{"name": mount, "projected": TOKEN}],
        },
    }


def decoded(*arguments, **options):
    return codec.decode(Pod, msgspec.json.encode(document(*arguments, **options)))


def test_pods_of_one_template_share_what_does_not_differ():
    one, other = decoded("a"), decoded("b")
    parts = SharedParts()
    parts.share(one)
    parts.share(other)
    assert one == decoded("a")
    assert other == decoded("b")
    assert other.spec.tolerations is one.spec.tolerations
    assert other.spec.volumes[0].projected is one.spec.volumes[0].projected
    assert other.spec.containers[0].resources is one.spec.containers[0].resources
    assert other.spec.containers[0].image is one.spec.containers[0].image
    assert other.spec.volumes[0].name is other.spec.containers[0].volume_mounts[0].name
    assert other.metadata.labels is one.metadata.annotations


def test_equal_text_of_another_type_is_another_part():
    class Left(msgspec.Struct, frozen=True):
        name: str

    class Right(msgspec.Struct, frozen=True):
        name: str

    class Both(msgspec.Struct, frozen=True):
        left: Left
        right: Right

    both = Both(Left("same"), Right("same"))
    SharedParts().share(both)
    assert type(both.left) is Left
    assert type(both.right) is Right


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["busybox", "pause", ""]), st.sampled_from("12"))))
def test_whatever_is_shared_every_object_means_the_same(rows):
    parts = SharedParts(parts=8)
    pods = [decoded(*row) for row in rows]
    for pod in pods:
        parts.share(pod)
    assert pods == [decoded(*row) for row in rows]
    assert [codec.encode(pod) for pod in pods] == [codec.encode(decoded(*row)) for row in rows]


def test_the_parts_of_many_different_objects_do_not_pile_up():
    parts = SharedParts(parts=50)
    for number in range(200):
        parts.share(decoded(f"pod-{number}"))
    assert len(parts) <= 100


class LiveTransport(ScriptedTransport):
    """A watch that shows what the test puts into `frames`."""

    def __init__(self):
        super().__init__()
        self.frames = asyncio.Queue()

    @asynccontextmanager
    async def stream(self, call):
        async def shown():
            while True:
                yield await self.frames.get()

        yield shown()


class LiveInformer:
    def __init__(self, kind=PODS):
        self.clock, self.transport = SimulatedClock(), LiveTransport()
        self.informer = Informer(Client(self.transport, clock=self.clock), kind)

    async def __aenter__(self):
        self.informer.start()
        await self.show(bookmark("1", ends_initial=True))
        return self

    async def __aexit__(self, *_):
        await self.informer.stop()

    async def show(self, *frames, after_s=0.0):
        await self.clock.advance(after_s)
        for frame in frames:
            self.transport.frames.put_nowait(frame)
        await self.clock.advance(0.0)

    def tolerations(self, *names):
        return [id(self.informer.get(f"ns/{name}").spec.tolerations) for name in names]


async def test_objects_that_are_quiet_share_their_parts_when_others_change():
    async with LiveInformer() as live:
        await live.show(*(event("ADDED", document(name)) for name in "abc"))
        await live.show(event("ADDED", document("d")), after_s=SETTLED_S - 1)
        assert len(set(live.tolerations(*"abcd"))) == 4
        await live.show(event("ADDED", document("e")), after_s=2)
        assert len(set(live.tolerations(*"abc"))) == 1
        assert len(set(live.tolerations(*"ade"))) == 3
        assert live.informer.get("ns/a") == decoded("a")


async def test_a_change_starts_the_wait_anew_and_a_deleted_object_is_not_waited_for():
    async with LiveInformer() as live:
        await live.show(*(event("ADDED", document(name)) for name in "abc"))
        changed, gone = document("b", node="node-2", revision="7"), document("c", revision="8")
        await live.show(event("MODIFIED", changed), event("DELETED", gone), after_s=SETTLED_S / 2)
        await live.show(event("ADDED", document("d", revision="9")), after_s=SETTLED_S / 2)
        assert len(set(live.tolerations(*"ab"))) == 2
        await live.show(event("ADDED", document("e", revision="10")), after_s=SETTLED_S / 2)
        assert len(set(live.tolerations(*"ab"))) == 1
        assert live.informer.get("ns/b") == decoded("b", node="node-2", revision="7")
        assert live.informer.get("ns/c") is None
