"""The disruption controller: how many pods may go, for whom nobody can say, and what a change of a pod costs."""

import json
from datetime import timedelta

import pytest

from dray.api.core import Pod, PodCondition, PodStatus
from dray.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference
from dray.api.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec
from dray.client import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    ApiError,
    ServerUnreachable,
)
from dray.clock import RealClock, SimulatedClock, rfc3339
from dray.controllers.deployments import DeploymentController
from dray.controllers.disruption import DisruptionController
from dray.controllers.disruption.coverage import CoveredPods, SelectorIndex
from dray.controllers.disruption.numbers import NotCountable, desired_healthy, disrupted_pods, selector_problem
from dray.controllers.disruption.scales import Scale
from dray.controllers.replica_sets import ReplicaSetController
from tests.controllers.builders import ns_pod
from tests.controllers.test_workloads import a_workload, has_pods, make_ready


def a_budget(name="budget", namespace="ns", **spec):
    spec.setdefault("selector", {"matchLabels": {"app": "app"}})
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


async def a_covered_pod(cluster, name="pod", ready=True, owner=None, **labels):
    document = ns_pod(name, node="node")
    document["metadata"]["labels"] = labels or {"app": "app"}
    if owner is not None:
        document["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    pod = await cluster.client.create(PODS, document)
    if ready:
        await make_ready(cluster, pod)
    return pod


async def status(cluster, name="budget"):
    return (await cluster.client.get(DISRUPTION_BUDGETS, name, "ns")).status


def numbers(found):
    return found.disruptions_allowed, found.current_healthy, found.desired_healthy, found.expected_pods


async def settles_at(cluster, allowed, healthy, desired, expected, name="budget"):
    found = None

    async def look():
        nonlocal found
        found = await status(cluster, name)
        return numbers(found) == (allowed, healthy, desired, expected)

    await cluster.eventually(look)
    return found


def verdict(found):
    (condition,) = found.conditions
    return condition.type, condition.status, condition.reason


@pytest.fixture
async def controller(cluster):
    return await cluster.start(DisruptionController)


# --- numbers


async def test_a_number_of_pods(cluster, controller):
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(minAvailable=2))
    for name in ("a", "b", "c"):
        await a_covered_pod(cluster, name)
    found = await settles_at(cluster, 1, 3, 2, 3)
    assert found.observed_generation == 1
    assert verdict(found) == ("DisruptionAllowed", "True", "SufficientPods")
    await cluster.client.delete(PODS, "c", "ns", grace_seconds=0)
    assert verdict(await settles_at(cluster, 0, 2, 2, 2)) == ("DisruptionAllowed", "False", "InsufficientPods")
    await cluster.client.patch(DISRUPTION_BUDGETS, "budget", {"spec": {"minAvailable": 0}}, "ns")
    assert (await settles_at(cluster, 2, 2, 0, 2)).observed_generation == 2


async def test_a_condition_is_written_whole(cluster, controller):
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(minAvailable=1))
    await a_covered_pod(cluster)
    await settles_at(cluster, 0, 1, 1, 1)
    document = await cluster.client.get_document(DISRUPTION_BUDGETS, "budget", "ns")
    (condition,) = document["status"]["conditions"]
    assert set(condition) == {"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"}
    assert document["status"]["disruptionsAllowed"] == 0


async def test_a_budget_keeps_the_rest_of_itself(cluster, controller):
    document = a_budget(maxUnavailable="10%", unhealthyPodEvictionPolicy="AlwaysAllow")
    document["metadata"] |= {"labels": {"a": "b"}, "annotations": {"note": "kept"}}
    made = await cluster.client.create(DISRUPTION_BUDGETS, document)
    await a_covered_pod(cluster)

    async def counted():
        return (await status(cluster)).conditions

    await cluster.eventually(counted)
    found = await cluster.client.get(DISRUPTION_BUDGETS, "budget", "ns")
    assert (found.spec, found.metadata.labels, found.metadata.annotations) == (
        made.spec,
        made.metadata.labels,
        made.metadata.annotations,
    )


async def test_pods_that_are_not_ready_or_leave_do_not_count_as_healthy(cluster, controller):
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(minAvailable=1))
    await a_covered_pod(cluster, "a")
    await a_covered_pod(cluster, "b", ready=False)
    await a_covered_pod(cluster, "c")
    await settles_at(cluster, 1, 2, 1, 3)
    await cluster.client.delete(PODS, "c", "ns", grace_seconds=30)
    await settles_at(cluster, 0, 1, 1, 3)


async def test_pods_come_and_go_by_their_labels(cluster, controller):
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(minAvailable=1))
    await a_covered_pod(cluster, "a")
    await a_covered_pod(cluster, "b", app="other")
    await settles_at(cluster, 0, 1, 1, 1)
    await cluster.client.patch(PODS, "b", {"metadata": {"labels": {"app": "app"}}}, "ns")
    await settles_at(cluster, 1, 2, 1, 2)
    await cluster.client.patch(PODS, "a", {"metadata": {"labels": {"app": "other"}}}, "ns")
    await settles_at(cluster, 0, 1, 1, 1)
    selector = {"matchLabels": None, "matchExpressions": [{"key": "app", "operator": "Exists"}]}
    await cluster.client.patch(DISRUPTION_BUDGETS, "budget", {"spec": {"selector": selector}}, "ns")
    await settles_at(cluster, 1, 2, 1, 2)


async def test_a_budget_without_pods_allows_nothing_and_says_so(cluster, controller):
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(maxUnavailable=1))

    async def told():
        return await cluster.events("NoPods")

    await cluster.eventually(told)
    found = await settles_at(cluster, 0, 0, 0, 0)
    assert verdict(found) == ("DisruptionAllowed", "False", "InsufficientPods")


# --- owners


async def test_a_share_of_what_a_deployment_wants(cluster):
    await cluster.start(DisruptionController, ReplicaSetController, DeploymentController)
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(maxUnavailable="25%"))
    await cluster.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=5))
    await has_pods(cluster, 5)
    await settles_at(cluster, 0, 0, 3, 5)
    await make_ready(cluster)
    await settles_at(cluster, 2, 5, 3, 5)
    await cluster.client.patch(DEPLOYMENTS, "app", {"spec": {"replicas": 2}}, "ns")
    await settles_at(cluster, 1, 2, 1, 2)


async def test_the_scale_alone_is_a_change(cluster, controller):
    """Nobody makes pods here: what changes is only how many there should be."""
    document = a_workload("ReplicaSet", replicas=4)
    owner = await cluster.client.create(REPLICA_SETS, document)
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": owner.metadata.uid}
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(minAvailable="50%"))
    for name in ("a", "b"):
        await a_covered_pod(cluster, name, owner=reference)
    await settles_at(cluster, 0, 2, 2, 4)
    await cluster.client.patch(REPLICA_SETS, "app", {"spec": {"replicas": 1}}, "ns")
    await settles_at(cluster, 1, 2, 1, 1)


@pytest.mark.parametrize(
    ("kind", "api_version", "resource"),
    [("StatefulSet", "apps/v1", STATEFUL_SETS), ("ReplicationController", "v1", REPLICATION_CONTROLLERS)],
)
async def test_other_owners_with_replicas(cluster, controller, kind, api_version, resource):
    document = {**a_workload(kind, replicas=3), "apiVersion": api_version}
    if kind == "ReplicationController":
        document["spec"]["selector"] = {"app": "app"}
    owner = await cluster.client.create(resource, document)
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(maxUnavailable=1))
    reference = {"apiVersion": api_version, "kind": kind, "name": "app", "uid": owner.metadata.uid}
    await a_covered_pod(cluster, owner=reference)
    await settles_at(cluster, 0, 1, 2, 3)


SCALED = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "flocks.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "flocks", "kind": "Flock"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {"scale": {"specReplicasPath": ".spec.birds", "statusReplicasPath": ".status.birds"}},
            }
        ],
    },
}


async def test_an_owner_of_a_custom_kind_is_asked_for_its_scale(cluster, controller):
    await cluster.client.raw(
        "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=json.dumps(SCALED).encode()
    )
    flock = {"apiVersion": "example.com/v1", "kind": "Flock", "metadata": {"name": "geese"}, "spec": {"birds": 4}}
    path = "/apis/example.com/v1/namespaces/ns/flocks"

    async def made():
        try:
            answer = await cluster.client.raw("POST", path, body=json.dumps(flock).encode())
        except ApiError:
            return None  # the kind is not served yet
        return json.loads(answer.body)

    owner = await cluster.eventually(made)
    reference = {"apiVersion": "example.com/v1", "kind": "Flock", "name": "geese", "uid": owner["metadata"]["uid"]}
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(minAvailable="50%"))
    for name in ("a", "b", "c"):
        await a_covered_pod(cluster, name, owner=reference)
    await settles_at(cluster, 1, 3, 2, 4)


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        pytest.param(
            {"apiVersion": "batch/v1", "kind": "Job"}, "jobs.batch does not implement the scale subresource", id="job"
        ),
        pytest.param(
            {"apiVersion": "example.com/v1", "kind": "Herd"},
            'no matches for kind "Herd" in version "example.com/v1"',
            id="kind-that-is-not-served",
        ),
        pytest.param({"apiVersion": "apps/v1", "kind": "ReplicaSet"}, 'found no controllers for pod "pod"', id="gone"),
    ],
)
async def test_an_owner_without_a_scale_fails_the_budget(cluster, controller, owner, message):
    await a_covered_pod(cluster, owner={**owner, "name": "x", "uid": "u"})
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(maxUnavailable=1))

    async def failed():
        return (await status(cluster)).conditions

    (condition,) = await cluster.eventually(failed)
    assert (condition.status, condition.reason, condition.message) == ("False", "SyncFailed", message)
    (event,) = await cluster.eventually(lambda: cluster.events("CalculateExpectedPodCountFailed"))
    assert event.message == f"Failed to calculate the number of expected pods: {message}"


async def test_pods_that_say_that_deployments_own_them_cost_no_requests(cluster):
    """Whoever may write in one namespace makes thousands of them; the controller's few workers are there for all namespaces."""
    controller = await cluster.start(DisruptionController)
    made = await cluster.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=3))
    owner = OwnerReference(api_version="apps/v1", kind="Deployment", name="app", uid=made.metadata.uid, controller=True)
    await cluster.eventually(lambda: controller._scales.deployments.get("ns/app"))
    before = len(cluster.wire.calls)
    assert await controller._scales.of(owner, "ns") == Scale(made.metadata.uid, 3)
    assert len(cluster.wire.calls) == before


async def test_an_owner_reference_leads_nowhere_else(cluster):
    """As another server may have let it pass: the path that is asked for is not put together from it."""
    controller = await cluster.prepare(DisruptionController)
    before = len(cluster.wire.calls)
    for api_version in ("../v1/x", "a/b/c", "x?y", ""):
        owner = OwnerReference(api_version=api_version, kind="Herd", name="x", uid="u", controller=True)
        with pytest.raises(NotCountable):
            await controller._scales.of(owner, "ns")
    assert len(cluster.wire.calls) == before


async def test_pods_without_an_owner_are_reported(cluster, controller):
    await a_covered_pod(cluster)
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(maxUnavailable=1))
    (event,) = await cluster.eventually(lambda: cluster.events("UnmanagedPods"))
    assert '{"matchLabels":{"app":"app"}}' in event.message
    await settles_at(cluster, 0, 1, 0, 0)


# --- evictions


async def test_evictions_are_counted_until_the_pods_are_gone(cluster, controller):
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(minAvailable=1))
    pods = [await a_covered_pod(cluster, name) for name in ("a", "b", "c")]
    await settles_at(cluster, 2, 3, 1, 3)
    await cluster.client.evict(pods[0])
    await settles_at(cluster, 1, 2, 1, 3)

    async def confirmed():
        return not (await status(cluster)).disrupted_pods

    await cluster.eventually(confirmed)
    await cluster.client.evict(pods[1])
    await settles_at(cluster, 0, 1, 1, 3)
    with pytest.raises(ApiError) as refused:
        await cluster.client.evict(pods[2])
    assert refused.value.code == 429


async def test_a_status_does_not_overwrite_an_eviction(cluster):
    """The eviction passes after the controller has read the budget and before it writes."""
    controller = await cluster.prepare(DisruptionController)
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(minAvailable=1))
    pods = [await a_covered_pod(cluster, name) for name in ("a", "b")]
    await cluster.eventually(lambda: _sums(controller) == (2, 2))
    await controller.sync(("budget", "ns/budget"))
    await settles_at(cluster, 1, 2, 1, 2)
    await cluster.client.create(
        PODS, {**ns_pod("c"), "metadata": {"name": "c", "namespace": "ns", "labels": {"app": "app"}}}
    )
    await cluster.eventually(lambda: _sums(controller) == (2, 3))
    cluster.wire.before("PUT", "/poddisruptionbudgets/budget/status$", lambda: cluster.client.evict(pods[0]))
    with pytest.raises(ApiError) as refused:
        await controller.sync(("budget", "ns/budget"))
    assert refused.value.is_conflict
    assert (await status(cluster)).disruptions_allowed == 0


def _sums(controller):
    coverage = controller.covered.of("ns/budget")
    return coverage.ready, len(coverage.pods)


def test_an_evicted_pod_that_stays_is_counted_again():
    now = RealClock().now()
    fresh, stale = rfc3339(now - timedelta(seconds=20)), rfc3339(now - timedelta(seconds=300))
    covered = CoveredPods()
    covered.put_budget("ns/b", "ns", LabelSelector(), [_pod("fresh"), _pod("stale"), _pod("leaving", leaving=True)])
    pods = covered.of("ns/b").pods
    noted = {"fresh": fresh, "stale": stale, "leaving": fresh, "gone": fresh, "odd": "never"}
    found = disrupted_pods(noted, pods, now)
    assert found.waiting == {"fresh": fresh}
    assert found.not_deleted == ("stale",)
    assert 99 <= found.left_s <= 101
    far = disrupted_pods({"fresh": "9999-12-31T23:59:59Z"}, pods, now)
    assert far.waiting
    assert disrupted_pods({"fresh": "0001-01-01T00:00:00Z"}, pods, now).not_deleted == ("fresh",)


def _pod(name, *, leaving=False, ready=True, namespace="ns", owner="", **labels):
    owners = (OwnerReference(kind="X", uid=owner, controller=True),) if owner else ()
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        labels=labels,
        owner_references=owners,
        deletion_timestamp="2026-01-01T00:00:00Z" if leaving else None,
    )
    condition = PodCondition(type="Ready", status="True" if ready else "False")
    return Pod(metadata=metadata, status=PodStatus(conditions=(condition,)))


# --- marks of pods


async def marked(cluster, pod, **condition):
    mark = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "m",
        **condition,
    }
    patch = {"status": {"phase": "Running", "conditions": [mark]}}
    await cluster.client.patch(PODS, pod.metadata.name, patch, "ns", subresource="status")


async def test_a_mark_of_a_disruption_that_did_not_come_is_taken_back(cluster, controller):
    old = "2020-01-01T00:00:00Z"
    for name, fields in (("stale", {}), ("agent", {"reason": "TerminationByKubelet"})):
        await marked(cluster, await a_covered_pod(cluster, name), lastTransitionTime=old, **fields)

    async def taken_back():
        return [(each.status, each.reason) for each in (await cluster.pod("stale")).status.conditions] == [
            ("False", "")
        ]

    await cluster.eventually(taken_back)
    assert [each.status for each in (await cluster.pod("agent")).status.conditions] == ["True"]


async def test_a_fresh_mark_gets_its_time(cluster):
    clock = SimulatedClock(RealClock().now())
    await cluster.start(DisruptionController, clock=clock)
    await marked(cluster, await a_covered_pod(cluster), lastTransitionTime=rfc3339(clock.now()))
    await cluster.quiet()
    assert [each.status for each in (await cluster.pod()).status.conditions] == ["True"]
    await clock.advance(121)

    async def taken_back():
        return [each.status for each in (await cluster.pod()).status.conditions] == ["False"]

    await cluster.eventually(taken_back)


# --- odd budgets


@pytest.mark.parametrize(
    ("spec", "expected", "desired"),
    [
        ({"min_available": 3}, 2, 3),
        ({"min_available": "50%"}, 3, 2),
        ({"max_unavailable": "50%"}, 3, 1),
        ({"max_unavailable": 9}, 3, 0),
        ({"max_unavailable": "0%"}, 3, 3),
        ({"min_available": 2**40}, 3, 2**31 - 1),
        ({}, 3, 0),
    ],
)
def test_desired_healthy(spec, expected, desired):
    assert desired_healthy(PodDisruptionBudgetSpec(**spec), expected) == desired


@pytest.mark.parametrize("text", ["5", "x%", "-5%", "", "9999999999999%"])
def test_text_that_is_no_percentage(text):
    with pytest.raises(NotCountable):
        desired_healthy(PodDisruptionBudgetSpec(min_available=text), 3)


@pytest.mark.parametrize(
    ("operator", "values", "problem"),
    [
        ("In", ("a",), ""),
        ("Exists", (), ""),
        ("Sideways", (), '"Sideways" is not a valid label selector operator'),
        ("NotIn", (), "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
        ("Exists", ("a",), "values: Invalid value: values set must be empty for exists and does not exist"),
    ],
)
def test_selectors_that_nobody_can_read(operator, values, problem):
    requirement = LabelSelectorRequirement(key="k", operator=operator, values=values)
    assert selector_problem(LabelSelector(match_expressions=(requirement,))) == problem


async def test_one_odd_budget_stops_no_other(cluster):
    """As another server may have stored it: the objects come to the controller as they are."""
    controller = await cluster.prepare(DisruptionController)
    await a_covered_pod(cluster)
    requirement = LabelSelectorRequirement(key="app", operator="Sideways")
    odd = PodDisruptionBudget(
        metadata=ObjectMeta(name="odd", namespace="ns"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_expressions=(requirement,)), min_available=2**80),
    )
    controller._budget_seen(odd)
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(minAvailable=0))
    await cluster.client.create(DISRUPTION_BUDGETS, {**a_budget("plain"), "spec": {}})
    await cluster.eventually(lambda: _sums(controller) == (1, 1))
    await controller.sync(("budget", "ns/odd"))
    await controller.sync(("budget", "ns/budget"))
    await controller.sync(("budget", "ns/plain"))
    assert numbers(await status(cluster)) == (1, 1, 0, 1)
    assert numbers(await status(cluster, "plain")) == (0, 0, 0, 0)


async def test_an_answer_that_is_lost_is_asked_for_again(cluster, controller):
    cluster.wire.fail("PUT", "/poddisruptionbudgets/budget/status$", ServerUnreachable("down"), times=2)
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(minAvailable=1))
    await a_covered_pod(cluster)
    await settles_at(cluster, 0, 1, 1, 1)


# --- work


def test_a_change_of_a_pod_compares_only_its_own_budgets():
    index = SelectorIndex()
    for number in range(1000):
        index.put(f"ns/{number}", "ns", LabelSelector(match_labels={"team": "all", "app": str(number)}))
    values = ("7", "8")
    listed = LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="In", values=values),))
    index.put("ns/listed", "ns", listed)
    index.put("other/7", "other", LabelSelector(match_labels={"app": "7"}))
    assert sorted(index.matching("ns", {"team": "all", "app": "7", "more": "x"})) == ["ns/7", "ns/listed"]
    assert index.compared == 2
    for number in range(1000):
        index.remove(f"ns/{number}")
    index.remove("ns/listed")
    index.remove("other/7")
    assert not index
    assert not index._keys
    assert not any(index._shapes.values())


class CountedLabels(dict):
    """Labels that count how often somebody looks for a key."""

    looks = 0

    def __contains__(self, key):
        self.looks += 1
        return super().__contains__(key)


def test_a_selector_of_very_many_keys_costs_a_pod_without_them_one_look():
    index = SelectorIndex()
    for number in range(5):
        keys = {f"k{number}-{each}": "v" for each in range(10_000)}
        index.put(f"ns/{number}", "ns", LabelSelector(match_labels=keys))
    labels = CountedLabels(app="a")
    assert list(index.matching("ns", labels)) == []
    assert labels.looks == 5


def test_sums_follow_every_change():
    covered = CoveredPods()
    covered.put_budget("ns/b", "ns", LabelSelector(match_labels={"app": "a"}), [])
    coverage = covered.of("ns/b")
    assert covered.put_pod(_pod("one", app="a", owner="u")) == ["ns/b"]
    assert covered.put_pod(_pod("one", app="a", owner="u")) == [], "nothing is different"
    covered.put_pod(_pod("two", app="a", ready=False))
    assert (coverage.ready, len(coverage.pods), dict(coverage.by_owner), coverage.unmanaged) == (1, 2, {"u": 1}, 1)
    assert covered.put_pod(_pod("one", app="b", owner="u")) == ["ns/b"]
    assert (coverage.ready, len(coverage.pods), dict(coverage.by_owner)) == (0, 1, {})
    assert covered.remove_pod(_pod("two")) == ["ns/b"]
    covered.put_pod(_pod("three", app="a"))
    covered.remove_budget("ns/b")
    assert not covered._budgets_of
    assert covered.put_pod(_pod("three", app="a")) == []


async def test_pods_without_a_budget_cost_nothing(cluster, controller):
    await cluster.quiet()
    before = len(cluster.wire.calls)
    for number in range(5):
        await a_covered_pod(cluster, f"pod-{number}")
    await cluster.quiet()
    assert len(cluster.wire.calls) == before
    assert controller.covered.selectors.compared == 0


async def test_a_settled_budget_asks_nothing(cluster, controller):
    await cluster.client.create(DISRUPTION_BUDGETS, a_budget(minAvailable=1))
    await a_covered_pod(cluster)
    await settles_at(cluster, 0, 1, 1, 1)
    await cluster.quiet()
    before = len(cluster.wire.calls)
    await cluster.client.patch(PODS, "pod", {"metadata": {"annotations": {"a": "b"}}}, "ns")
    await cluster.later_writes()
    assert len(cluster.wire.calls) == before
