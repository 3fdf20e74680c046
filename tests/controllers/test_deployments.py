"""Roll-outs that take their time, get stuck or are paused."""

from datetime import UTC, datetime, timedelta

import pytest

from dray.api.core import Pod, PodCondition, PodStatus
from dray.api.meta import ObjectMeta
from dray.api.workloads import (
    Deployment,
    DeploymentSpec,
    DeploymentStatus,
    ReplicaSet,
    ReplicaSetStatus,
    WorkloadCondition,
)
from dray.client import DEPLOYMENTS, PODS, REPLICA_SETS
from dray.clock import rfc3339
from dray.controllers.deployment_rollout import report
from dray.controllers.deployments import DeploymentController
from dray.controllers.replica_sets import ReplicaSetController
from dray.controllers.workload_status import Availability, availability
from tests.controllers.test_workloads import a_workload, active, has_pods, make_ready, status_is

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def ago(seconds):
    return rfc3339(NOW - timedelta(seconds=seconds))


# --- availability


def pod_with_ready(ready="True", since=None):
    return Pod(status=PodStatus(conditions=(PodCondition(type="Ready", status=ready, last_transition_time=since),)))


@pytest.mark.parametrize(
    ("pods", "min_ready_s", "expected"),
    [
        pytest.param([pod_with_ready(), pod_with_ready("False")], 0, Availability(1, 1, None), id="at-once"),
        pytest.param(
            [pod_with_ready(since=ago(10)), pod_with_ready(since=ago(3))], 5, Availability(2, 1, 2.0), id="one-waits"
        ),
        pytest.param([pod_with_ready(since=ago(5))], 5, Availability(1, 1, None), id="just-now"),
        pytest.param([pod_with_ready()], 5, Availability(1, 0, None), id="since-when-is-unknown"),
        pytest.param([Pod()], 5, Availability(0, 0, None), id="says-nothing"),
    ],
)
def test_availability(pods, min_ready_s, expected):
    assert availability(pods, min_ready_s, NOW) == expected


async def test_a_pod_counts_once_it_was_ready_for_long_enough(cluster):
    await cluster.start(DeploymentController, ReplicaSetController)
    patient = a_workload("Deployment", replicas=1, minReadySeconds=3600, progressDeadlineSeconds=7200)
    await cluster.client.create(DEPLOYMENTS, patient)
    await has_pods(cluster, 1)
    (pod,) = await active(cluster)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(datetime.now(UTC))}
    patch = {"status": {"phase": "Running", "conditions": [ready]}}
    await cluster.client.patch(PODS, pod.metadata.name, patch, "ns", subresource="status")
    await status_is(cluster, REPLICA_SETS, (await the_set(cluster)).metadata.name, ready_replicas=1)
    await cluster.quiet()
    await status_is(cluster, DEPLOYMENTS, ready_replicas=1, available_replicas=0)
    await cluster.client.patch(DEPLOYMENTS, "app", {"spec": {"minReadySeconds": 1}}, "ns")
    await status_is(cluster, DEPLOYMENTS, ready_replicas=1, available_replicas=1)


async def the_set(cluster):
    (found,) = (await cluster.client.list(REPLICA_SETS, "ns")).items
    return found


# --- progress


def a_deployment(*conditions, deadline=600, paused=False, generation=1, **status):
    return Deployment(
        metadata=ObjectMeta(name="app", generation=generation),
        spec=DeploymentSpec(replicas=2, progress_deadline_seconds=deadline, paused=paused),
        status=DeploymentStatus(observed_generation=1, conditions=conditions, **status),
    )


def a_set(replicas=0, available=0):
    status = ReplicaSetStatus(replicas=replicas, ready_replicas=available, available_replicas=available)
    return ReplicaSet(metadata=ObjectMeta(name="app-1"), status=status)


def progressing(reason="ReplicaSetUpdated", status="True", updated=0):
    return WorkloadCondition(
        type="Progressing",
        status=status,
        reason=reason,
        message='ReplicaSet "app-1" is progressing.',
        last_update_time=ago(updated),
        last_transition_time=ago(1000),
    )


@pytest.mark.parametrize(
    ("deployment", "new", "expected", "look_again_s"),
    [
        pytest.param(a_deployment(), a_set(), ("True", "ReplicaSetUpdated"), 600.0, id="starts"),
        pytest.param(a_deployment(progressing(updated=100)), a_set(), ("True", "ReplicaSetUpdated"), 501.0, id="waits"),
        pytest.param(
            a_deployment(progressing(updated=601)), a_set(), ("False", "ProgressDeadlineExceeded"), None, id="stuck"
        ),
        pytest.param(
            a_deployment(progressing(updated=601)), a_set(1), ("True", "ReplicaSetUpdated"), 600.0, id="moves-at-last"
        ),
        pytest.param(
            a_deployment(progressing("ProgressDeadlineExceeded", "False", 9000), updated_replicas=1, replicas=1),
            a_set(1),
            ("False", "ProgressDeadlineExceeded"),
            None,
            id="stays-stuck",
        ),
        pytest.param(
            a_deployment(progressing("ProgressDeadlineExceeded", "False", 9000)),
            a_set(2, 2),
            ("True", "NewReplicaSetAvailable"),
            None,
            id="complete-after-all",
        ),
        pytest.param(
            a_deployment(progressing("NewReplicaSetAvailable", updated=9000), available_replicas=2),
            a_set(2, 1),
            ("True", "NewReplicaSetAvailable"),
            None,
            id="a-pod-fails-after-the-roll-out",
        ),
        pytest.param(
            a_deployment(progressing("NewReplicaSetAvailable", updated=9000), generation=2),
            a_set(1),
            ("True", "ReplicaSetUpdated"),
            600.0,
            id="the-next-roll-out",
        ),
        pytest.param(
            a_deployment(progressing(updated=9000), deadline=2**31 - 1),
            a_set(),
            ("True", "ReplicaSetUpdated"),
            None,
            id="no-deadline",
        ),
        pytest.param(
            a_deployment(progressing(updated=9000), paused=True),
            a_set(),
            ("Unknown", "DeploymentPaused"),
            None,
            id="paused",
        ),
        pytest.param(
            a_deployment(progressing("DeploymentPaused", "Unknown", 9000)),
            a_set(),
            ("True", "ReplicaSetUpdated"),
            600.0,
            id="resumed",
        ),
    ],
)
def test_progress(deployment, new, expected, look_again_s):
    found = report(deployment, new, [], NOW)
    condition = next(item for item in found.status.conditions if item.type == "Progressing")
    assert (condition.status, condition.reason) == expected
    assert found.look_again_s == look_again_s


async def test_a_roll_out_that_gets_nowhere_says_so_and_recovers(cluster):
    await cluster.start(DeploymentController, ReplicaSetController)
    await cluster.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=1, progressDeadlineSeconds=1))

    async def reason():
        deployment = await cluster.client.get(DEPLOYMENTS, "app", "ns")
        return {item.type: item.reason for item in deployment.status.conditions}.get("Progressing")

    async def stuck():
        return await reason() == "ProgressDeadlineExceeded"

    await cluster.eventually(stuck, 20)
    await make_ready(cluster)

    async def complete():
        return await reason() == "NewReplicaSetAvailable"

    await cluster.eventually(complete)


async def test_a_paused_deployment_is_scaled_but_not_rolled(cluster):
    await cluster.start(DeploymentController, ReplicaSetController)
    await cluster.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=1))
    await has_pods(cluster, 1)
    await make_ready(cluster)
    labels = {"labels": {"app": "app"}, "annotations": {"edition": "2"}}
    patch = {"spec": {"paused": True, "replicas": 3, "template": {"metadata": labels}}}
    await cluster.client.patch(DEPLOYMENTS, "app", patch, "ns")
    await has_pods(cluster, 3)
    assert {pod.metadata.annotations.get("edition") for pod in await active(cluster)} == {None}
    await the_set(cluster)


async def test_a_set_without_an_owner_is_taken_in_and_its_revision_counts(cluster):
    await cluster.start(ReplicaSetController)
    orphan = a_workload("ReplicaSet", replicas=1)
    orphan["metadata"] |= {"name": "before", "labels": {"app": "app"}}
    orphan["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "41"}
    orphan["spec"]["template"]["spec"]["containers"][0]["image"] = "older"
    await cluster.client.create(REPLICA_SETS, orphan)
    other = a_workload("ReplicaSet", name="other", replicas=0)
    other["metadata"]["labels"] = {"app": "other"}
    await cluster.client.create(REPLICA_SETS, other)
    await has_pods(cluster, 1)
    await cluster.start(DeploymentController)
    await cluster.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=1))

    async def is_next():
        deployment = await cluster.client.get(DEPLOYMENTS, "app", "ns")
        return deployment.metadata.annotations.get("deployment.kubernetes.io/revision") == "42"

    await cluster.eventually(is_next)
    taken = await cluster.client.get(REPLICA_SETS, "before", "ns")
    left = await cluster.client.get(REPLICA_SETS, "other", "ns")
    assert [owner.name for owner in taken.metadata.owner_references] == ["app"]
    assert left.metadata.owner_references == ()


async def test_sets_of_other_namespaces_are_not_taken_for_its_own(cluster):
    """With the deployment's UID and template, a foreign set would be the newest one, and the deployment would make none."""
    deployment = await cluster.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2))
    await cluster.namespace("elsewhere")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "app", "uid": deployment.metadata.uid}
    foreign = a_workload("ReplicaSet", replicas=2)
    metadata = {"name": "foreign", "labels": {"app": "app"}, "ownerReferences": [{**owner, "controller": True}]}
    foreign["metadata"] = {**metadata, "namespace": "elsewhere"}
    await cluster.client.create(REPLICA_SETS, foreign)
    await cluster.start(DeploymentController)

    async def sets():
        return len((await cluster.client.list(REPLICA_SETS, "ns")).items) == 1

    await cluster.eventually(sets)


async def test_a_set_with_the_same_template_is_not_made_again(cluster):
    orphan = a_workload("ReplicaSet", replicas=2)
    orphan["metadata"] |= {"name": "before", "labels": {"app": "app"}}
    await cluster.client.create(REPLICA_SETS, orphan)
    await cluster.start(DeploymentController)
    await cluster.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2))

    async def is_taken():
        taken = await cluster.client.get(REPLICA_SETS, "before", "ns")
        return [owner.name for owner in taken.metadata.owner_references] == ["app"]

    await cluster.eventually(is_taken)
    assert len((await cluster.client.list(REPLICA_SETS, "ns")).items) == 1
