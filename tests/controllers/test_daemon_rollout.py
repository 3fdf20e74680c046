"""Updates of daemons: node by node, or two at a time on one node."""

import pytest

from dray.api.core import Pod, PodStatus
from dray.api.meta import ObjectMeta
from dray.api.workloads import RollingUpdate
from dray.client import DAEMON_SETS, PODS
from dray.controllers.daemon_sets import DaemonSetController, NodePods, limits, manual_plan, rolling_plan
from tests.controllers.test_workloads import a_workload, active, has_pods, make_ready, ready_node


@pytest.mark.parametrize(
    ("rolling", "nodes", "expected"),
    [
        pytest.param(None, 10, (1, 0), id="default"),
        pytest.param(RollingUpdate(max_unavailable="30%"), 5, (2, 0), id="percent-rounds-up"),
        pytest.param(RollingUpdate(max_unavailable=0, max_surge=1), 5, (0, 1), id="surge"),
        pytest.param(RollingUpdate(max_unavailable=0), 5, (1, 0), id="never-none-of-both"),
        pytest.param(RollingUpdate(max_unavailable=3, max_surge=0), 5, (3, 0), id="number"),
    ],
)
def test_limits(rolling, nodes, expected):
    assert limits(rolling, nodes) == expected


def pod(uid):
    return Pod(metadata=ObjectMeta(name=uid, uid=uid), status=PodStatus(phase="Running"))


def node_pods(new=None, old=None, *, stopping=False):
    return NodePods(pod(new) if new else None, pod(old) if old else None, (), stopping)


@pytest.mark.parametrize(
    ("nodes", "available", "unavailable", "surge", "deleted", "created"),
    [
        pytest.param({"a": node_pods(old="a1"), "b": node_pods(old="b1")}, "a1 b1", 1, 0, "a1", "", id="one-at-a-time"),
        pytest.param(
            {"a": node_pods(stopping=True), "b": node_pods(old="b1")}, "b1", 1, 0, "", "", id="waits-for-it-to-stop"
        ),
        pytest.param({"a": node_pods(), "b": node_pods(old="b1")}, "b1", 1, 0, "", "a", id="then-the-new-one"),
        pytest.param(
            {"a": node_pods("a2"), "b": node_pods(old="b1")}, "b1", 1, 0, "", "", id="which-has-to-work-first"
        ),
        pytest.param({"a": node_pods("a2"), "b": node_pods(old="b1")}, "a2 b1", 1, 0, "b1", "", id="before-the-next"),
        pytest.param(
            {"a": node_pods(old="a1"), "b": node_pods(old="b1")}, "b1", 1, 0, "a1", "", id="broken-ones-first"
        ),
        pytest.param(
            {name: node_pods(old=f"{name}1") for name in "abcd"}, "a1 b1 c1 d1", 2, 0, "a1 b1", "", id="two-at-a-time"
        ),
        pytest.param(
            {"a": node_pods(old="a1"), "b": node_pods(old="b1")}, "a1 b1", 0, 1, "", "a", id="a-second-one-beside"
        ),
        pytest.param({"a": node_pods("a2", "a1"), "b": node_pods(old="b1")}, "a1 b1", 0, 1, "", "", id="not-yet-ready"),
        pytest.param(
            {"a": node_pods("a2", "a1"), "b": node_pods(old="b1")}, "a1 a2 b1", 0, 1, "a1", "", id="takes-over"
        ),
        pytest.param({"a": node_pods("a2")}, "a2", 1, 0, "", "", id="done"),
    ],
)
def test_rolling_plans(nodes, available, unavailable, surge, deleted, created):
    plan = rolling_plan(nodes, frozenset(available.split()), unavailable, surge)
    assert [item.metadata.uid for item in plan.delete] == deleted.split()
    assert plan.create_on == created.split()


def test_manual_plans():
    nodes = {"a": node_pods(old="a1"), "b": node_pods(), "c": node_pods("c2", "c1")}
    plan = manual_plan(nodes)
    assert [item.metadata.uid for item in plan.delete] == ["c1"]
    assert plan.create_on == ["b"]


async def update_template(cluster):
    patch = {"spec": {"template": {"metadata": {"labels": {"app": "app"}, "annotations": {"edition": "2"}}}}}
    await cluster.client.patch(DAEMON_SETS, "app", patch, "ns")


def editions(pods):
    return sorted(item.metadata.annotations.get("edition", "1") for item in pods)


async def test_daemons_are_replaced_node_by_node(cluster):
    for name in "abc":
        await ready_node(cluster, name)
    await cluster.start(DaemonSetController)
    await cluster.client.create(DAEMON_SETS, a_workload("DaemonSet"))
    await has_pods(cluster, 3)
    await make_ready(cluster)
    await cluster.quiet()
    await update_template(cluster)
    for done in range(1, 4):

        async def replaced(done=done):
            pods = await active(cluster)
            return len(pods) == 3 and editions(pods).count("2") == done

        await cluster.eventually(replaced)
        await cluster.quiet()
        # The next node has to wait until this one works again.
        assert editions(await active(cluster)).count("2") == done
        await make_ready(cluster)


async def test_the_old_daemon_is_gone_before_the_new_one_starts(cluster):
    await ready_node(cluster, "a")
    await cluster.start(DaemonSetController)
    await cluster.client.create(DAEMON_SETS, a_workload("DaemonSet"))
    await has_pods(cluster, 1)
    (old,) = await active(cluster)
    await cluster.client.bind(old, "a")
    await make_ready(cluster)
    await update_template(cluster)

    async def stopping():
        pod = await cluster.pod(old.metadata.name)
        return pod.metadata.deletion_timestamp

    await cluster.eventually(stopping)
    await cluster.quiet()
    assert len((await cluster.client.list(PODS, "ns")).items) == 1
    await cluster.client.delete(PODS, old.metadata.name, "ns", grace_seconds=0)
    await has_pods(cluster, 1)


async def test_a_second_daemon_beside_the_old_one_takes_over(cluster):
    """As drivers are updated without a gap."""
    await ready_node(cluster, "a")
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await cluster.start(DaemonSetController)
    await cluster.client.create(DAEMON_SETS, a_workload("DaemonSet", updateStrategy=strategy))
    await has_pods(cluster, 1)
    await make_ready(cluster)
    await cluster.quiet()
    await update_template(cluster)
    await has_pods(cluster, 2)
    await make_ready(cluster)

    async def taken_over():
        return editions(await active(cluster)) == ["2"]

    await cluster.eventually(taken_over)
