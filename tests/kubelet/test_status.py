"""The status a node reports, from the progress of a pod's containers."""

from dray.api.codec import to_object
from dray.api.core import Pod
from dray.kubelet.pod_status import (
    ContainerProgress,
    PodProgress,
    status_document,
)
from dray.kubelet.runtime.interface import Exit
from tests.builders.manifests import a_container, a_pod

RUNNING = ContainerProgress(started_at="2026-11-15T10:00:00Z")
DONE = ContainerProgress(started_at="2026-11-15T10:00:00Z", exit=Exit(0))


def pod_of_two(*init):
    containers = (a_container("a"), a_container("b"))
    return to_object(a_pod("p", *containers, initContainers=list(init), restartPolicy="Never"), Pod)


def status(pod, **progress):
    return status_document(pod, PodProgress(start_time="2026-11-15T10:00:00Z", **progress), "2026-11-15T10:00:01Z")


def ready(statuses):
    return [each["ready"] for each in statuses]


def test_a_done_init_container_is_ready_for_ever_a_done_main_container_is_not():
    pod = pod_of_two({"name": "init", "image": "i"}, {"name": "side", "image": "i", "restartPolicy": "Always"})
    containers = {"init": DONE, "side": RUNNING, "a": DONE, "b": RUNNING}
    seen = status(pod, containers=containers, is_initialized=True)
    assert ready(seen["initContainerStatuses"]) == [True, True]
    assert ready(seen["containerStatuses"]) == [False, True]
    ended = dict.fromkeys(containers, DONE)
    seen = status(pod, containers=ended, is_initialized=True, is_finished=True)
    assert ready(seen["initContainerStatuses"]) == [True, False]
    assert seen["phase"] == "Succeeded"
    initialized = next(each for each in seen["conditions"] if each["type"] == "Initialized")
    assert (initialized["status"], initialized["reason"]) == ("True", "PodCompleted")


def test_only_a_pod_with_init_containers_waits_for_them():
    def reasons(pod):
        return {each["state"]["waiting"]["reason"] for each in status(pod)["containerStatuses"]}

    assert reasons(pod_of_two()) == {"ContainerCreating"}
    assert reasons(pod_of_two({"name": "init", "image": "i"})) == {"PodInitializing"}


def test_addresses_replace_those_that_the_server_has():
    seen = status(pod_of_two(), pod_ip="10.0.0.2", host_ip="10.0.0.1")
    assert seen["podIPs"] == [{"$patch": "replace"}, {"ip": "10.0.0.2"}]
    assert seen["hostIPs"] == [{"$patch": "replace"}, {"ip": "10.0.0.1"}]


def test_a_pod_with_readiness_gates_is_ready_when_others_say_so():
    document = a_pod("p", a_container("a"), readinessGates=[{"conditionType": "example.com/fed"}])
    progress = {"containers": {"a": RUNNING}, "is_initialized": True, "has_sandbox": True}

    def ready(conditions):
        pod = to_object(document | {"status": {"phase": "Running", "conditions": conditions}}, Pod)
        found = next(each for each in status(pod, **progress)["conditions"] if each["type"] == "Ready")
        return found["status"], found["message"]

    missing = 'corresponding condition of pod readiness gate "example.com/fed" does not exist.'
    assert ready([]) == ("False", missing)
    wrong = 'the status of pod readiness gate "example.com/fed" is not "True", but Unknown'
    assert ready([{"type": "example.com/fed", "status": "Unknown"}]) == ("False", wrong)
    assert ready([{"type": "example.com/fed", "status": "True"}]) == ("True", None)


def test_init_containers_that_are_not_done_are_named():
    pod = pod_of_two({"name": "first", "image": "i"}, {"name": "next", "image": "i"})
    seen = status(pod, containers={"first": DONE})
    initialized = next(each for each in seen["conditions"] if each["type"] == "Initialized")
    assert (initialized["status"], initialized["message"]) == ("False", "containers with incomplete status: [next]")
