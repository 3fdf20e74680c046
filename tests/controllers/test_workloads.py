"""ReplicaSets, Deployments, Jobs and DaemonSets: what they make, count, replace and take away."""

from itertools import islice

import pytest

from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.api.workloads import ReplicaSet, ReplicaSetSpec, ReplicaSetStatus, RollingUpdate
from dray.client import DAEMON_SETS, DEPLOYMENTS, JOBS, NODES, PODS, REPLICA_SETS, ApiError
from dray.controllers import jobs
from dray.controllers.daemon_sets import DaemonSetController
from dray.controllers.deployment_rollout import next_sizes, surge_and_unavailable
from dray.controllers.deployments import DeploymentController, revision_of
from dray.controllers.jobs import JobController, _ranges, backoff_s, index_of, missing_indexes
from dray.controllers.replica_sets import ReplicaSetController
from tests.controllers.builders import node_with_ready, ns_pod


def a_workload(kind, name="app", group="apps", **spec):
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": {"note": "kept"}},
        "spec": {
            "containers": [{"name": "main", "image": "image", "env": [{"name": "A", "value": "b"}]}],
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["x"]}],
            **spec.pop("pod", {}),
        },
    }
    if kind != "Job":
        spec["selector"] = {"matchLabels": labels}
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"template": template, **spec},
    }


async def pods_of(cluster, **labels):
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    return (await cluster.client.list(PODS, "ns", label_selector=selector)).items


async def active(cluster):
    return [p for p in (await cluster.client.list(PODS, "ns")).items if not p.metadata.deletion_timestamp]


async def has_pods(cluster, number):
    async def look():
        return len(await active(cluster)) == number

    await cluster.eventually(look)
    await cluster.quiet()
    assert len(await active(cluster)) == number


async def make_ready(cluster, *pods):
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for pod in pods or await active(cluster):
        await cluster.client.patch(PODS, pod.metadata.name, {"status": status}, "ns", subresource="status")


async def status_is(cluster, kind, name="app", **wanted):
    async def look():
        status = (await cluster.client.get(kind, name, "ns")).status
        return all(getattr(status, field) == value for field, value in wanted.items())

    await cluster.eventually(look)


# --- ReplicaSet


async def test_a_replica_set_makes_pods_from_its_whole_template(cluster):
    await cluster.start(ReplicaSetController)
    replica_set = await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=3))
    await has_pods(cluster, 3)
    pod = (await active(cluster))[0]
    document = await cluster.client.get_document(PODS, pod.metadata.name, "ns")
    assert document["spec"]["hostAliases"] == [{"ip": "10.0.0.1", "hostnames": ["x"]}]
    assert pod.metadata.name.startswith("app-")
    assert (pod.metadata.labels, pod.metadata.annotations) == ({"app": "app"}, {"note": "kept"})
    (owner,) = pod.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller, owner.block_owner_deletion) == (
        "ReplicaSet",
        replica_set.metadata.uid,
        True,
        True,
    )
    await status_is(cluster, REPLICA_SETS, replicas=3, fully_labeled_replicas=3, ready_replicas=0)
    await make_ready(cluster)
    await status_is(cluster, REPLICA_SETS, ready_replicas=3, available_replicas=3)


async def test_a_replica_set_follows_its_size_up_and_down(cluster):
    await cluster.start(ReplicaSetController)
    await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=2))
    await has_pods(cluster, 2)
    await cluster.client.patch(REPLICA_SETS, "app", {"spec": {"replicas": 5}}, "ns")
    await has_pods(cluster, 5)
    ready = (await active(cluster))[:2]
    await make_ready(cluster, *ready)
    await cluster.client.patch(REPLICA_SETS, "app", {"spec": {"replicas": 2}}, "ns")
    await has_pods(cluster, 2)
    assert {p.metadata.name for p in await active(cluster)} == {p.metadata.name for p in ready}
    await cluster.client.patch(REPLICA_SETS, "app", {"spec": {"replicas": 0}}, "ns")
    await has_pods(cluster, 0)
    await status_is(cluster, REPLICA_SETS, replicas=0)


async def test_pods_of_other_namespaces_are_not_counted(cluster):
    """Whoever knows a set's UID may write it into pods of their own; then the set would do with fewer, or remove its own."""
    await cluster.start(ReplicaSetController)
    await cluster.namespace("elsewhere")
    made = await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=2))
    await has_pods(cluster, 2)
    await make_ready(cluster)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": made.metadata.uid, "controller": True}
    for number in range(2):
        pod = ns_pod(f"foreign-{number}", ownerReferences=[owner], labels={"app": "app"})
        pod["metadata"]["namespace"] = "elsewhere"
        await cluster.client.create(PODS, pod)
    await cluster.client.patch(REPLICA_SETS, "app", {"spec": {"replicas": 3}}, "ns")
    await has_pods(cluster, 3)
    await status_is(cluster, REPLICA_SETS, replicas=3)
    assert len((await cluster.client.list(PODS, "elsewhere")).items) == 2


async def test_lost_and_failed_pods_are_replaced(cluster):
    await cluster.start(ReplicaSetController)
    await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=2))
    await has_pods(cluster, 2)
    one, two = await active(cluster)
    await cluster.client.delete(PODS, one.metadata.name, "ns", grace_seconds=0)
    await cluster.set_phase(two, "Failed")

    async def replaced():
        return len([p for p in await active(cluster) if p.status.phase != "Failed"]) == 2

    await cluster.eventually(replaced)


async def test_a_watch_that_lags_does_not_lead_to_too_many_pods(cluster):
    controller = await cluster.prepare(ReplicaSetController)
    await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=3))

    async def known():
        return controller._sets.get("ns/app")

    await cluster.eventually(known)
    cluster.wire.hold(PODS)
    for _ in range(3):
        await controller.sync("ns/app")
    assert len(await active(cluster)) == 3
    cluster.wire.release(PODS)


async def test_a_refused_pod_is_told_and_tried_again_slowly(cluster):
    cluster.wire.fail("POST", "/pods$", ApiError(403, "Forbidden", "exceeded quota"), times=3)
    await cluster.start(ReplicaSetController)
    await cluster.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=50))
    await has_pods(cluster, 50)
    assert cluster.wire.count("POST", "/pods$") == 53

    async def told():
        return await cluster.events("FailedCreate")

    (event, *_) = await cluster.eventually(told)
    assert event.message == "Error creating: exceeded quota"


# --- Deployment


async def test_a_deployment_rolls_to_a_new_template_without_too_few_pods(cluster):
    await cluster.start(DeploymentController, ReplicaSetController)
    await cluster.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=4))
    await has_pods(cluster, 4)
    await make_ready(cluster)
    await status_is(cluster, DEPLOYMENTS, replicas=4, updated_replicas=4, available_replicas=4)
    patch = {"spec": {"template": {"metadata": {"labels": {"app": "app"}, "annotations": {"edition": "2"}}}}}
    await cluster.client.patch(DEPLOYMENTS, "app", patch, "ns")
    for _ in range(40):
        pods = await active(cluster)
        assert len(pods) <= 5
        ready = [p for p in pods if p.status.phase == "Running"]
        assert len(ready) >= 3
        await make_ready(cluster, *(p for p in pods if p.status.phase != "Running"))
        for pod in (await cluster.client.list(PODS, "ns")).items:
            if pod.metadata.deletion_timestamp:
                await cluster.client.delete(PODS, pod.metadata.name, "ns", grace_seconds=0)
        await cluster.quiet()
        updated = [p for p in pods if p.metadata.annotations.get("edition") == "2"]
        if len(updated) == len(pods) == 4:
            break
    await make_ready(cluster)
    await status_is(cluster, DEPLOYMENTS, replicas=4, updated_replicas=4, available_replicas=4)
    deployment = await cluster.client.get(DEPLOYMENTS, "app", "ns")
    reasons = {item.type: (item.status, item.reason) for item in deployment.status.conditions}
    assert reasons == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    sets = (await cluster.client.list(REPLICA_SETS, "ns")).items
    assert sorted(item.metadata.annotations["deployment.kubernetes.io/revision"] for item in sets) == ["1", "2"]


async def test_recreate_stops_the_old_before_starting_the_new(cluster):
    await cluster.start(DeploymentController, ReplicaSetController)
    await cluster.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2, strategy={"type": "Recreate"}))
    await has_pods(cluster, 2)
    old = {p.metadata.name for p in await active(cluster)}
    patch = {"spec": {"template": {"metadata": {"labels": {"app": "app"}, "annotations": {"edition": "2"}}}}}
    await cluster.client.patch(DEPLOYMENTS, "app", patch, "ns")

    async def new():
        pods = await active(cluster)
        editions = {p.metadata.annotations.get("edition") for p in pods}
        assert editions in (set(), {None}, {"2"})
        return editions == {"2"} and len(pods) == 2

    await cluster.eventually(new)
    assert not old & {p.metadata.name for p in await active(cluster)}


async def test_a_paused_deployment_waits_and_history_is_limited(cluster):
    await cluster.start(DeploymentController, ReplicaSetController)
    await cluster.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=1, paused=True, revisionHistoryLimit=1))
    await has_pods(cluster, 0)
    await cluster.client.patch(DEPLOYMENTS, "app", {"spec": {"paused": False}}, "ns")
    await has_pods(cluster, 1)
    for edition in range(4):
        labels = {"labels": {"app": "app"}, "annotations": {"edition": str(edition)}}
        await cluster.client.patch(DEPLOYMENTS, "app", {"spec": {"template": {"metadata": labels}}}, "ns")

        async def rolled(edition=str(edition)):
            pods = await active(cluster)
            await make_ready(cluster)
            return [p.metadata.annotations.get("edition") for p in pods] == [edition]

        await cluster.eventually(rolled)

    async def trimmed():
        return len((await cluster.client.list(REPLICA_SETS, "ns")).items) == 2

    await cluster.eventually(trimmed)


async def test_an_edition_that_comes_back_is_the_newest_revision(cluster):
    await cluster.start(DeploymentController, ReplicaSetController)
    deployment = a_workload("Deployment", replicas=1)
    deployment["metadata"]["annotations"] = {"kubernetes.io/change-cause": "first"}
    await cluster.client.create(DEPLOYMENTS, deployment)

    async def revisions(*wanted):
        async def look():
            sets = (await cluster.client.list(REPLICA_SETS, "ns")).items
            seen = {item.metadata.annotations["deployment.kubernetes.io/revision"] for item in sets}
            top = await cluster.client.get(DEPLOYMENTS, "app", "ns")
            return seen == set(wanted) and top.metadata.annotations.get("deployment.kubernetes.io/revision") == max(
                wanted
            )

        await cluster.eventually(look)

    await revisions("1")
    (first,) = (await cluster.client.list(REPLICA_SETS, "ns")).items
    assert first.metadata.annotations["kubernetes.io/change-cause"] == "first"
    for note, wanted in (("changed", ("1", "2")), ("kept", ("2", "3"))):
        template = {"metadata": {"annotations": {"note": note}}}
        await cluster.client.patch(DEPLOYMENTS, "app", {"spec": {"template": template}}, "ns")
        await revisions(*wanted)
    back = await cluster.client.get(REPLICA_SETS, first.metadata.name, "ns")
    assert back.metadata.annotations["deployment.kubernetes.io/revision-history"] == "1"


@pytest.mark.parametrize(
    ("rolling", "wanted", "expected"),
    [
        pytest.param(None, 4, (1, 1), id="default-quarter"),
        pytest.param(None, 10, (3, 2), id="surge-up-unavailable-down"),
        pytest.param(None, 1, (1, 0), id="one"),
        pytest.param(RollingUpdate(max_surge=0, max_unavailable=0), 3, (0, 1), id="never-both-zero"),
        pytest.param(RollingUpdate(max_surge="100%", max_unavailable="0%"), 3, (3, 0), id="percent"),
        pytest.param(RollingUpdate(max_surge=2, max_unavailable=9), 3, (2, 3), id="at-most-all"),
    ],
)
def test_surge_and_unavailable(rolling, wanted, expected):
    assert surge_and_unavailable(rolling, wanted) == expected


def a_set(size, available):
    return ReplicaSet(spec=ReplicaSetSpec(replicas=size), status=ReplicaSetStatus(available_replicas=available))


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        pytest.param((0, 0), [(4, 4)], (1, [3]), id="first-step"),
        pytest.param((1, 0), [(3, 3)], (2, [3]), id="new-one-not-ready-yet"),
        pytest.param((2, 2), [(3, 3)], (2, [1]), id="ready-ones-make-room"),
        pytest.param((1, 0), [(4, 0)], (1, [2]), id="broken-old-ones-go-first"),
        pytest.param((4, 4), [(0, 0)], (4, [0]), id="done"),
        pytest.param((6, 6), [], (4, []), id="too-many"),
    ],
)
def test_next_sizes(new, old, expected):
    assert next_sizes(4, 1, 1, a_set(*new), [a_set(*item) for item in old]) == expected


# --- Job


def a_job(**spec):
    pod = {"restartPolicy": "Never", **spec.pop("pod", {})}
    return a_workload("Job", group="batch", pod=pod, **spec)


async def test_a_job_runs_until_enough_pods_succeeded(cluster):
    await cluster.start(JobController)
    await cluster.client.create(JOBS, a_job(completions=3, parallelism=2))
    await has_pods(cluster, 2)
    pods = await pods_of(cluster, **{"job-name": "app"})
    assert len(pods) == 2
    for pod in pods:
        await cluster.set_phase(pod, "Succeeded")

    async def third():
        return [p for p in await active(cluster) if p.status.phase == "Pending"]

    (last,) = await cluster.eventually(third)
    await status_is(cluster, JOBS, succeeded=2, active=1)
    await cluster.set_phase(last, "Succeeded")
    await status_is(cluster, JOBS, succeeded=3, active=0)
    job = await cluster.client.get(JOBS, "app", "ns")
    assert [(c.type, c.status, c.reason) for c in job.status.conditions] == [
        ("SuccessCriteriaMet", "True", "CompletionsReached"),
        ("Complete", "True", "CompletionsReached"),
    ]
    assert job.status.start_time
    assert job.status.completion_time
    await cluster.quiet()
    assert len(await active(cluster)) == 3


async def test_a_job_gives_up_after_its_backoff_limit(cluster):
    await cluster.start(JobController)
    await cluster.client.create(JOBS, a_job(completions=1, backoffLimit=0))
    await has_pods(cluster, 1)
    await cluster.set_phase((await active(cluster))[0], "Failed")
    await status_is(cluster, JOBS, failed=1, active=0)

    async def failed():
        job = await cluster.client.get(JOBS, "app", "ns")
        return [c.reason for c in job.status.conditions if c.type == "Failed"]

    assert await cluster.eventually(failed) == ["BackoffLimitExceeded"]


async def test_a_failed_pod_is_replaced_after_a_wait(cluster, monkeypatch):
    monkeypatch.setattr("dray.controllers.jobs.BACKOFF_S", 0.2)
    await cluster.start(JobController)
    await cluster.client.create(JOBS, a_job(completions=1))
    await has_pods(cluster, 1)
    await cluster.set_phase((await active(cluster))[0], "Failed")
    await has_pods(cluster, 2)


@pytest.mark.parametrize("text", ["", "²", "-1", "1" * 5000, "x"])
def test_numbers_that_users_write_into_annotations_may_be_none(text):
    replica_set = ReplicaSet(metadata=ObjectMeta(annotations={"deployment.kubernetes.io/revision": text}))
    pod = Pod(metadata=ObjectMeta(annotations={"batch.kubernetes.io/job-completion-index": text}))
    assert (revision_of(replica_set), index_of(pod)) == (0, None)


def test_the_wait_before_a_failed_pod_is_replaced_has_a_bound() -> None:
    """Nodes tell how often containers were restarted, and may tell anything."""
    assert [backoff_s(failed) for failed in (1, 2, 3, 2**31)] == [10, 20, 40, 360]


async def test_indexed_jobs_give_each_index_a_pod(cluster):
    await cluster.start(JobController)
    await cluster.client.create(JOBS, a_job(completions=3, parallelism=3, completionMode="Indexed"))
    await has_pods(cluster, 3)
    index = "batch.kubernetes.io/job-completion-index"
    pods = sorted(await active(cluster), key=lambda pod: pod.metadata.annotations[index])
    assert [pod.metadata.annotations[index] for pod in pods] == ["0", "1", "2"]
    assert pods[1].metadata.name.startswith("app-1-")
    assert "JOB_COMPLETION_INDEX" in [variable.name for variable in pods[0].spec.containers[0].env]
    for pod in (pods[0], pods[2]):
        await cluster.set_phase(pod, "Succeeded")
    await status_is(cluster, JOBS, completed_indexes="0,2", succeeded=2)


async def test_suspended_jobs_have_no_pods(cluster):
    await cluster.start(JobController)
    await cluster.client.create(JOBS, a_job(completions=1, suspend=True))
    await has_pods(cluster, 0)
    await cluster.client.patch(JOBS, "app", {"spec": {"suspend": False}}, "ns")
    await has_pods(cluster, 1)
    await cluster.client.patch(JOBS, "app", {"spec": {"suspend": True}}, "ns")
    await has_pods(cluster, 0)


async def test_a_job_past_its_deadline_fails_and_stops_its_pods(cluster):
    await cluster.start(JobController)
    await cluster.client.create(JOBS, a_job(completions=1, activeDeadlineSeconds=1))

    async def started():
        return cluster.wire.count("POST", "/pods$")

    await cluster.eventually(started)

    async def failed():
        job = await cluster.client.get(JOBS, "app", "ns")
        return [c.reason for c in job.status.conditions if c.type == "Failed"]

    assert await cluster.eventually(failed) == ["DeadlineExceeded"]
    await has_pods(cluster, 0)


async def test_a_finished_job_expires(cluster):
    await cluster.start(JobController)
    await cluster.client.create(JOBS, a_job(completions=1, ttlSecondsAfterFinished=1))
    await has_pods(cluster, 1)
    await cluster.set_phase((await active(cluster))[0], "Succeeded")

    async def leaving():
        job = await cluster.client.find(JOBS, "app", "ns")
        return job is None or job.metadata.deletion_timestamp

    await cluster.eventually(leaving)


@pytest.mark.parametrize(
    ("indexes", "text"), [(set(), ""), ({0}, "0"), ({0, 1}, "0,1"), ({0, 1, 2, 5}, "0-2,5"), ({3, 4, 5, 6}, "3-6")]
)
def test_index_ranges(indexes, text):
    assert _ranges(indexes) == text


# --- DaemonSet


async def ready_node(cluster, name, taints=None, **labels):
    await cluster.client.create(NODES, node_with_ready(name, **labels))
    # The server taints new nodes until they are known to be ready.
    await cluster.client.patch(NODES, name, {"spec": {"taints": taints or []}})


async def test_a_daemon_set_has_a_pod_for_every_node_that_takes_it(cluster):
    await ready_node(cluster, "a", kind="gpu")
    await ready_node(cluster, "b")
    await ready_node(cluster, "c", [{"key": "mine", "effect": "NoSchedule"}], kind="gpu")
    await cluster.start(DaemonSetController)
    await cluster.client.create(DAEMON_SETS, a_workload("DaemonSet", pod={"nodeSelector": {"kind": "gpu"}}))
    await has_pods(cluster, 1)
    (pod,) = await active(cluster)
    (term,) = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    assert (term.match_fields[0].key, term.match_fields[0].values) == ("metadata.name", ("a",))
    assert ("node.kubernetes.io/unschedulable", "NoSchedule") in [(t.key, t.effect) for t in pod.spec.tolerations]
    await status_is(cluster, DAEMON_SETS, desired_number_scheduled=1, current_number_scheduled=1, number_ready=0)
    await ready_node(cluster, "d", kind="gpu")
    await has_pods(cluster, 2)
    await make_ready(cluster)
    await status_is(cluster, DAEMON_SETS, number_ready=2, number_available=2, number_unavailable=0)
    await cluster.client.patch(NODES, "a", {"metadata": {"labels": {"kind": "cpu"}}})
    await has_pods(cluster, 1)
    await cluster.client.delete(NODES, "d")
    await has_pods(cluster, 0)


async def test_a_new_template_replaces_the_daemons(cluster):
    await ready_node(cluster, "a")
    await cluster.start(DaemonSetController)
    await cluster.client.create(DAEMON_SETS, a_workload("DaemonSet"))
    await has_pods(cluster, 1)
    (old,) = await active(cluster)
    patch = {"spec": {"template": {"metadata": {"labels": {"app": "app"}, "annotations": {"edition": "2"}}}}}
    await cluster.client.patch(DAEMON_SETS, "app", patch, "ns")

    async def replaced():
        pods = await active(cluster)
        return len(pods) == 1 and pods[0].metadata.uid != old.metadata.uid

    await cluster.eventually(replaced)
    await cluster.client.patch(DAEMON_SETS, "app", {"metadata": {"labels": {"only": "metadata"}}}, "ns")
    await has_pods(cluster, 1)


async def test_a_failed_daemon_is_replaced(cluster):
    await ready_node(cluster, "a")
    await cluster.start(DaemonSetController)
    await cluster.client.create(DAEMON_SETS, a_workload("DaemonSet"))
    await has_pods(cluster, 1)
    (old,) = await active(cluster)
    await cluster.set_phase(old, "Failed")

    async def replaced():
        pods = await active(cluster)
        return len(pods) == 1 and pods[0].metadata.uid != old.metadata.uid

    await cluster.eventually(replaced)


async def test_a_job_that_wants_billions_of_pods_gets_some_at_a_time(cluster, monkeypatch):
    """Whoever may create a Job must not be able to stop all controllers with one number."""
    monkeypatch.setattr(jobs, "MOST_AT_ONCE", 4)
    controller = await cluster.start(JobController)
    asked = []
    documents = controller._documents

    def noted(job, pods, missing):
        asked.append(missing)
        return documents(job, pods, missing)

    monkeypatch.setattr(controller, "_documents", noted)
    await cluster.client.create(JOBS, a_job(parallelism=2_000_000_000))

    async def some():
        return len(await active(cluster)) >= 12

    await cluster.eventually(some)
    await cluster.client.patch(JOBS, "app", {"spec": {"suspend": True}}, "ns")
    await has_pods(cluster, 0)
    assert set(asked) == {4}


async def test_a_job_gets_all_of_its_pods_in_the_end(cluster, monkeypatch):
    monkeypatch.setattr(jobs, "MOST_AT_ONCE", 4)
    await cluster.start(JobController)
    await cluster.client.create(JOBS, a_job(parallelism=9))
    await has_pods(cluster, 9)


def test_of_billions_of_indexes_only_those_that_are_needed_are_looked_at():
    assert list(islice(missing_indexes((), 2_000_000_000), 3)) == [0, 1, 2]


@pytest.mark.parametrize("part", ["\u00b2%", "9" * 5000 + "%", "%", "x"])
def test_a_part_that_is_no_number_counts_as_none(part):
    assert surge_and_unavailable(RollingUpdate(max_surge=part, max_unavailable=part), 4) == (0, 1)
