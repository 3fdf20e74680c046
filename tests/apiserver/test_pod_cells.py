"""What `kubectl get pods` says of a pod with init containers and sidecars."""

from datetime import UTC, datetime

import pytest

from dray.apiserver.read.workload_cells import age, pod_cells

NOW = datetime(2026, 11, 15, 10, tzinfo=UTC)
INIT = {"name": "init"}
SIDECAR = {"name": "side", "restartPolicy": "Always"}
DONE = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
FAILED = {"state": {"terminated": {"exitCode": 143, "reason": "Error"}}}


def cells(init_statuses, main, *, initialized, phase):
    pod = {
        "metadata": {"name": "p"},
        "spec": {"initContainers": [INIT, SIDECAR], "containers": [{"name": "c"}]},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Initialized", "status": "True" if initialized else "False"}],
            "initContainerStatuses": init_statuses,
            "containerStatuses": [{"name": "c", **main}],
        },
    }
    _, ready, state, restarts, *_ = pod_cells(pod, NOW)
    return ready, state, restarts


def test_a_stopped_sidecar_of_a_finished_pod_is_no_failed_initialization():
    statuses = [{"name": "init", **DONE}, {"name": "side", "started": False, **FAILED}]
    assert cells(statuses, DONE, initialized=True, phase="Succeeded") == ("0/2", "Completed", "0")


def test_a_failing_init_container_shows_with_its_restarts():
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    statuses = [{"name": "init", "state": waiting, "restartCount": 3}]
    main = {"state": {"waiting": {"reason": "PodInitializing"}}}
    assert cells(statuses, main, initialized=False, phase="Pending") == ("0/2", "Init:CrashLoopBackOff", "3")


def test_restarts_of_sidecars_count_restarts_of_init_containers_do_not():
    running = {"started": True, "ready": True, "state": {"running": {}}}
    statuses = [{"name": "init", "restartCount": 5, **DONE}, {"name": "side", "restartCount": 2, **running}]
    main = {"restartCount": 1, **running}
    assert cells(statuses, main, initialized=True, phase="Running") == ("2/2", "Running", "3")


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "yesterday", "", None])
def test_a_time_before_or_after_all_dates_has_no_age(moment):
    assert age(moment, datetime(2026, 1, 1, tzinfo=UTC)) == "<unknown>"
