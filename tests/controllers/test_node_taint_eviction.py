"""NoExecute taints of nodes: who has to go, when, and what makes it stay."""

import pytest

from dray.api.core import Taint, Toleration
from dray.client import NODES, PODS, ServerUnreachable
from dray.clock import RealClock, SimulatedClock
from dray.controllers.node_lifecycle import NodeLifecycleController
from dray.controllers.node_taint_eviction import NodeTaintEvictionController, tolerated_s
from tests.controllers.builders import node_with_ready, ns_pod

NO_EXECUTE = {"key": "k", "value": "v", "effect": "NoExecute"}


def tolerating(seconds=None, **fields):
    found = {"key": "k", "operator": "Exists", "effect": "NoExecute", **fields}
    return found if seconds is None else {**found, "tolerationSeconds": seconds}


async def put_pod(cluster, name="pod", *tolerations, node="node"):
    return await cluster.client.create(PODS, ns_pod(name, node=node, tolerations=list(tolerations)))


async def taint(cluster, *taints, node="node"):
    await cluster.client.patch(NODES, node, {"spec": {"taints": list(taints)}})


async def is_leaving(cluster, name="pod"):
    pod = await cluster.pod(name)
    return pod is None or pod.metadata.deletion_timestamp is not None


async def leaves(cluster, name="pod"):
    await cluster.eventually(lambda: is_leaving(cluster, name))


@pytest.fixture
async def clock():
    return SimulatedClock(RealClock().now())


@pytest.fixture
async def controller(cluster, clock):
    await cluster.client.create(NODES, node_with_ready())
    return await cluster.start(NodeTaintEvictionController, clock=clock)


async def test_a_pod_without_a_toleration_goes_at_once(cluster, controller):
    await put_pod(cluster)
    await put_pod(cluster, "elsewhere", node="other")
    await put_pod(cluster, "guest", tolerating())
    await taint(cluster, {"key": "k", "effect": "NoSchedule"})
    await cluster.quiet()
    assert not await is_leaving(cluster)
    await taint(cluster, NO_EXECUTE)
    await leaves(cluster)
    (mark,) = [each for each in (await cluster.pod()).status.conditions if each.type == "DisruptionTarget"]
    assert (mark.status, mark.reason) == ("True", "DeletionByTaintManager")
    assert mark.message == "Taint manager: deleting due to NoExecute taint"
    (event,) = await cluster.eventually(lambda: cluster.events("TaintManagerEviction"))
    assert (event.type, event.message) == ("Normal", "Marking for deletion Pod ns/pod")
    await cluster.quiet()
    assert not await is_leaving(cluster, "elsewhere")
    assert not await is_leaving(cluster, "guest")
    assert "taint_eviction_controller_pod_deletions_total 1" in cluster.registry.text().splitlines()


async def test_a_pod_that_comes_to_a_tainted_node(cluster, controller):
    await taint(cluster, NO_EXECUTE)
    await put_pod(cluster)
    await leaves(cluster)


async def waits(cluster, controller, count=1):
    await cluster.eventually(lambda: _is(len(controller.waiting) == count))
    await cluster.quiet()


async def _is(answer):
    return answer


async def test_a_toleration_ends(cluster, controller, clock):
    await put_pod(cluster, "pod", tolerating(60))
    await taint(cluster, NO_EXECUTE)
    await waits(cluster, controller)
    await clock.advance(59)
    await cluster.quiet()
    assert not await is_leaving(cluster)
    await clock.advance(2)
    await leaves(cluster)
    assert controller.waiting == {}


async def test_a_taint_that_goes_lets_the_pod_stay(cluster, controller, clock):
    await put_pod(cluster, "pod", tolerating(60))
    await taint(cluster, NO_EXECUTE)
    await waits(cluster, controller)
    await taint(cluster)
    (event,) = await cluster.eventually(lambda: cluster.events("TaintManagerEviction"))
    assert event.message == "Cancelling deletion of Pod ns/pod"
    await clock.advance(1000)
    await cluster.quiet()
    assert not await is_leaving(cluster)
    await taint(cluster, NO_EXECUTE)
    await waits(cluster, controller)
    await clock.advance(30)
    await cluster.quiet()
    assert not await is_leaving(cluster), "the time starts anew"


async def test_each_taint_has_its_own_time(cluster, controller, clock):
    other = {"key": "other", "effect": "NoExecute"}
    await put_pod(cluster, "pod", tolerating(600), tolerating(100, key="other"))
    await taint(cluster, NO_EXECUTE)
    await waits(cluster, controller)
    await clock.advance(200)
    await taint(cluster, NO_EXECUTE, other)
    await cluster.quiet()
    await clock.advance(99)
    await cluster.quiet()
    assert not await is_leaving(cluster)
    await clock.advance(2)
    await leaves(cluster)


async def test_a_taint_that_came_later_goes_without_a_trace(cluster, controller, clock):
    other = {"key": "other", "effect": "NoExecute"}
    await put_pod(cluster, "pod", tolerating(600), tolerating(100, key="other"))
    await taint(cluster, NO_EXECUTE)
    await waits(cluster, controller)
    await taint(cluster, NO_EXECUTE, other)
    await cluster.quiet()
    await clock.advance(50)
    await taint(cluster, NO_EXECUTE)
    await cluster.quiet()
    await clock.advance(100)
    await cluster.quiet()
    assert not await is_leaving(cluster)
    await clock.advance(451)
    await leaves(cluster)


async def test_a_longer_toleration_keeps_the_pod_longer(cluster, controller, clock):
    await put_pod(cluster, "pod", tolerating(60, value="v", operator="Equal"))
    await taint(cluster, NO_EXECUTE)
    await waits(cluster, controller)
    known = (await cluster.client.get_document(PODS, "pod", "ns"))["spec"]["tolerations"]
    longer = {"spec": {"tolerations": [{**known[0], "tolerationSeconds": 600}, *known[1:]]}}
    await cluster.client.patch(PODS, "pod", longer, "ns")
    await cluster.quiet()
    await clock.advance(100)
    await cluster.quiet()
    assert not await is_leaving(cluster)
    await clock.advance(501)
    await leaves(cluster)


async def test_pods_of_a_node_that_fell_silent_go_after_their_toleration(cluster, controller, clock):
    """Pods get a toleration of five minutes on creation; the taint comes from the node lifecycle controller."""
    await cluster.start(NodeLifecycleController, clock=clock)
    await put_pod(cluster)
    await cluster.client.patch(
        NODES, "node", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, subresource="status"
    )
    await waits(cluster, controller)
    await clock.advance(299)
    await cluster.quiet()
    assert not await is_leaving(cluster)
    await clock.advance(2)
    await leaves(cluster)


async def test_a_pod_that_was_replaced_is_not_the_one(cluster, controller):
    await put_pod(cluster)

    async def replace():
        await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
        await put_pod(cluster, "pod", tolerating())

    cluster.wire.before("PATCH", "/pods/pod/status$", replace)
    await taint(cluster, NO_EXECUTE)
    await cluster.eventually(lambda: _is(cluster.wire.count("PATCH", "/pods/pod/status$") == 1))
    await cluster.quiet()
    assert not await is_leaving(cluster)


async def test_a_deletion_that_fails_is_tried_again(cluster, controller, clock):
    cluster.wire.fail("DELETE", "/pods/pod$", ServerUnreachable("down"), times=1)
    await put_pod(cluster)
    await taint(cluster, NO_EXECUTE)
    await cluster.eventually(lambda: _is(controller.queue.delayed == 1))
    await clock.advance(10)
    await leaves(cluster)
    assert cluster.wire.count("DELETE", "/pods/pod$") == 2


def toleration(seconds=None, key="k", operator="Exists", effect="NoExecute", value=""):
    return Toleration(key=key, operator=operator, value=value, effect=effect, toleration_seconds=seconds)


ONE = (Taint(key="k", value="v", effect="NoExecute"),)
TWO = (*ONE, Taint(key="l", effect="NoExecute"))


@pytest.mark.parametrize(
    ("taints", "tolerations", "expected"),
    [
        pytest.param((), (), None, id="no-taint"),
        pytest.param(ONE, (), 0, id="no-toleration"),
        pytest.param(ONE, (toleration(60),), 60, id="seconds"),
        pytest.param(ONE, (toleration(),), None, id="for-ever"),
        pytest.param(ONE, (toleration(60, effect=""),), 60, id="any-effect"),
        pytest.param(ONE, (toleration(60, effect="NoSchedule"),), 0, id="other-effect"),
        pytest.param(ONE, (toleration(60, operator="Equal", value="x"),), 0, id="other-value"),
        pytest.param(ONE, (toleration(60), toleration(5)), 60, id="the-first-that-fits-counts"),
        pytest.param(ONE, (toleration(-5),), 0, id="negative"),
        pytest.param(TWO, (toleration(60),), 0, id="one-of-two"),
        pytest.param(TWO, (toleration(60), toleration(20, key="l")), 20, id="the-smallest-of-two"),
        pytest.param(TWO, (toleration(), toleration(20, key="l")), 20, id="for-ever-and-not"),
        pytest.param(ONE, (toleration(2**63 - 1),), None, id="longer-than-there-are-dates"),
        pytest.param(TWO, (toleration(2**63 - 1), toleration(7, key="l")), 7, id="much-and-little"),
    ],
)
def test_how_long_taints_are_tolerated(taints, tolerations, expected):
    assert tolerated_s(taints, tolerations) == expected


async def test_a_toleration_beyond_all_dates_stops_nobody(cluster, controller):
    await put_pod(cluster, "patient", tolerating(2**63 - 1))
    await put_pod(cluster)
    await taint(cluster, NO_EXECUTE)
    await leaves(cluster)
    await cluster.quiet()
    assert not await is_leaving(cluster, "patient")


async def test_a_taint_looks_at_the_pods_of_its_node_only(cluster, clock):
    controller = await cluster.prepare(NodeTaintEvictionController)
    for node in ("node", "other"):
        await cluster.client.create(NODES, node_with_ready(node))
        for number in range(3):
            await put_pod(cluster, f"{node}-{number}", node=node)
    await cluster.eventually(lambda: _is(len(controller._pods) == 6))
    await taint(cluster, NO_EXECUTE)
    await cluster.eventually(lambda: _is(len(controller.queue) == 3))
    await cluster.client.patch(PODS, "other-0", {"metadata": {"labels": {"a": "b"}}}, "ns")
    await cluster.client.patch(NODES, "other", {"metadata": {"labels": {"a": "b"}}})
    await cluster.later_writes()
    assert len(controller.queue) == 3


async def test_nodes_without_such_taints_cost_nothing(cluster, controller):
    await put_pod(cluster)
    await cluster.quiet()
    before = len(cluster.wire.calls)
    await taint(cluster, {"key": "k", "effect": "NoSchedule"})
    await cluster.later_writes()
    assert len(cluster.wire.calls) == before
