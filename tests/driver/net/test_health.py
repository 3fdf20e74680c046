"""Health, taints and traffic of interfaces, on the node and in pods, with real namespaces of the kernel."""

import asyncio
from dataclasses import replace

import msgspec
import pytest
from tests.driver.net.namespaces import measured_mbit
from tests.driver.net.pods import SHARED, claim_for, device
from tests.waiting import eventually

from dray.api.resource import ResourceClaimConsumerReference, ResourceClaimStatus
from dray.telemetry import Registry


def problems_of(driver):
    """By device: what the kubelet is told, and the taints that keep new claims away."""
    [pool] = driver.pools("n")
    driver.published_pools = (pool,)
    taints = {
        each.name: [f"{taint.key}={taint.value}:{taint.effect}" for taint in each.taints] for each in pool.devices
    }
    health = {each.device: (each.health, each.message) for each in driver.health()}
    return {name: (*health[name], taints[name]) for name in taints}


FINE = ("Healthy", "", [])
NO_CARRIER = ["dra.net/link=no-carrier:NoSchedule"]


def test_an_interface_without_a_carrier_is_unhealthy_on_the_node_and_in_a_pod(host, begin, make_pod):
    driver, pod = begin(), make_pod()
    assert problems_of(driver) == {"eth1": FINE, "eth2": FINE}, "eth1 is down, and would be turned on in a pod"
    host.ip("link", "set", "eth2-port", "down")
    assert problems_of(driver)["eth2"] == ("Unhealthy", "interface eth2 has no carrier", NO_CARRIER)
    host.ip("link", "set", "eth2-port", "up")
    claim = claim_for(device("eth2", {"interface": {"name": "net1"}}))
    [prepared] = driver.prepare(claim)
    pod.start_container(prepared.edits)
    assert problems_of(driver)["eth2"] == FINE
    host.ip("link", "set", "eth2-port", "down")
    assert problems_of(driver)["eth2"] == ("Unhealthy", "interface eth2 has no carrier", NO_CARRIER)
    pod.ip("link", "set", "net1", "down")
    assert problems_of(driver)["eth2"] == FINE, "the pod may turn it off"
    host.ip("link", "set", "eth2-port", "up")
    pod.ip("link", "del", "net1")
    missing = ["dra.net/link=missing:NoSchedule"]
    assert problems_of(driver)["eth2"] == ("Unhealthy", "interface eth2 is not in its pod any more", missing)
    driver.unprepare(claim.reference)
    [gone] = [each for each in driver.health() if each.device == "eth2"]
    assert (gone.health, gone.message) == ("Unhealthy", "the interface is not on this machine any more")


def test_a_shared_interface_that_is_turned_off_is_unhealthy(host, begin):
    driver = begin(SHARED)
    host.ip("link", "set", "eth2", "down")
    down = ["dra.net/link=down:NoSchedule"]
    assert problems_of(driver)["eth2"] == ("Unhealthy", "interface eth2 is down: shares of it carry nothing", down)


async def test_what_happens_in_pods_is_published(host, begin, make_pod, monkeypatch):
    monkeypatch.setattr("dray.driver.net.driver.LOOK_INTO_PODS_EVERY_S", 0.1)
    driver, pod = begin(), make_pod()
    [prepared] = driver.prepare(claim_for(device("eth2", {"interface": {"name": "net1"}})))
    await asyncio.to_thread(pod.start_container, prepared.edits)
    seen = []
    watching = asyncio.create_task(driver.watch(lambda: seen.append(problems_of(driver)["eth2"])))
    try:
        await eventually(lambda: seen == [FINE], lambda: seen)
        # Nothing happens in the network of the node.
        await asyncio.to_thread(pod.ip, "link", "del", "net1")
        await eventually(lambda: seen[-1][0] == "Unhealthy", lambda: seen)
    finally:
        watching.cancel()


def test_traffic_is_counted_for_claims_and_pods(host, begin, make_pod):
    driver, pods = begin(SHARED), [make_pod(), make_pod()]
    for number, pod in enumerate(pods, 1):
        parameters = {"interface": {"name": "net1", "addresses": [f"10.1.0.{number}/24"]}}
        claim = claim_for(device("eth2", parameters, bandwidth=f"{number}G", share=f"s{number}"), uid=f"u{number}")
        user = ResourceClaimConsumerReference(resource="pods", name=f"pod-{number}", uid="x")
        reserved = msgspec.structs.replace(claim.claim, status=ResourceClaimStatus(reserved_for=(user,)))
        [prepared] = driver.prepare(replace(claim, claim=reserved))
        pod.start_container(prepared.edits)
    measured_mbit(pods[0], pods[1], "10.1.0.2", seconds=0.2)
    driver.pools("n")
    registry = Registry()
    driver.add_metrics(registry)
    metrics = dict(line.rsplit(" ", 1) for line in registry.text().splitlines() if not line.startswith("#"))

    def number(name, of):
        labels = f'device="eth2",interface="net1",namespace="default",claim="claim-u{of}",pod="pod-{of}"'
        return int(float(metrics[f"{name}{{{labels}}}"]))

    sent, received = number("dray_net_transmit_bytes_total", 1), number("dray_net_receive_bytes_total", 2)
    assert sent > 100_000
    assert received == pytest.approx(sent, rel=0.05)
    assert number("dray_net_transmit_bytes_total", 2) < sent / 2
    assert 0 < number("dray_net_receive_packets_total", 2) < received
    assert 0 < number("dray_net_transmit_packets_total", 1) < sent
    assert [number("dray_net_claim_limit_bits_per_second", of) for of in (1, 2)] == [10**9, 2 * 10**9]
