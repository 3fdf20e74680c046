"""Pods whose resources are being changed in place: what is wanted, granted and in force, with claims."""

import msgspec
import pytest
from tests.accounting.builders import demanding_pod, quantities

from dray.accounting import NodeLedger, PodRef, pod_demand
from dray.api.core import ContainerStatus, Pod, PodStatus, ResourceRequirements


def resizing(pod: Pod, granted: str, in_force: str, **status) -> Pod:
    """The kubelet's view of the only container."""
    seen = ContainerStatus(
        name="c",
        allocated_resources=quantities(cpu=granted),
        resources=ResourceRequirements(requests=quantities(cpu=in_force)),
    )
    return msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, container_statuses=(seen,), **status)
    )


def claim(policy: str, cpu: str) -> list[dict]:
    accounting = [{"name": "cpu", "quantity": cpu, "accountingPolicy": policy}]
    return [{"resourceClaimName": "x", "containers": ["c"], "accounting": accounting}]


@pytest.mark.parametrize(
    ("wanted", "granted", "in_force", "milli"),
    [
        pytest.param("2", "1", "1", 6000, id="growing"),
        pytest.param("1", "2", "2", 6000, id="shrinking-granted-plus-claim"),
        pytest.param("1", "1", "9", 9000, id="in-force-has-the-claim-in-it"),
    ],
)
def test_the_highest_reading_counts(wanted, granted, in_force, milli):
    pod = demanding_pod(containers={"c": {"requests": {"cpu": wanted}}}, status=claim("AddPerClaim", "4"))
    demand = pod_demand(resizing(pod, granted, in_force))
    assert demand.milli_cpu == milli
    ledger = NodeLedger("n", quantities(cpu="16"))
    ledger.add(PodRef("default", "p"), demand)
    assert sum(row.quantity.milli() for row in ledger.why("cpu")) == milli


def test_a_pool_serves_what_is_in_force_too():
    pod = demanding_pod(containers={"c": {"requests": {"cpu": "10"}}}, status=claim("ConsumeFrom", "100"))
    demand = pod_demand(resizing(pod, "12", "12"))
    assert demand.milli_cpu == 0
    assert [draw.amount for draw in demand.draws] == [12_000]


def test_pod_level_status_beside_a_pool():
    pod = demanding_pod(containers={"c": {"requests": {"cpu": "10"}}}, status=claim("ConsumeFrom", "100"))
    seen = ResourceRequirements(requests=quantities(cpu="11"))
    pod = resizing(pod, "10", "10", allocated_resources=quantities(cpu="10"), resources=seen)
    demand = pod_demand(pod)
    assert demand.milli_cpu == 1000
    ledger = NodeLedger("n", quantities(cpu="16"))
    ledger.add(PodRef("default", "p"), demand)
    assert [(row.kind, str(row.quantity)) for row in ledger.why("cpu")] == [("pool", "100"), ("pod level", "1")]


def test_a_settled_pod_costs_no_more_than_its_spec():
    pod = demanding_pod(containers={"c": {"requests": {"cpu": "2"}}})
    assert pod_demand(resizing(pod, "2", "2")) is pod_demand(pod)


def test_other_status_says_nothing_about_resources():
    pod = demanding_pod(containers={"c": {"requests": {"cpu": "2"}}})
    running = msgspec.structs.replace(pod, status=PodStatus(container_statuses=(ContainerStatus(name="c"),)))
    assert pod_demand(running) is pod_demand(pod)
