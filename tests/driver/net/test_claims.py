"""Claims for interfaces: into a pod's network and back, whole or as a share, with real namespaces of the kernel."""

import subprocess
from dataclasses import replace

import pytest
from tests.driver.net.namespaces import echoed, measured_mbit
from tests.driver.net.pods import SHARED, HookFailed, claim_for, device, state_of

from dray.driver import DeviceConfig, PrepareError
from dray.driver.net import NetDriver, interfaces
from dray.driver.net.parameters import NetworkConfig, RouteConfig, network_config


def names(driver):
    [pool] = driver.pools("n")
    return {each.name for each in pool.devices}


def test_an_interface_moves_into_a_pod_and_comes_back(host, begin, make_pod):
    host.ip("addr", "add", "10.9.0.1/24", "dev", "eth2")
    host.ip("route", "add", "10.99.0.0/16", "via", "10.9.0.254", "dev", "eth2", "metric", "7")
    before = state_of(host)
    driver, pod = begin(), make_pod()
    parameters = {
        "interface": {"name": "net1", "addresses": ["10.1.0.2/24", "fd00:1::2/64"], "mtu": 1400},
        "routes": [
            {"destination": "10.2.0.0/16", "gateway": "10.1.0.1"},
            {"destination": "10.3.0.0/16", "scope": 253},
        ],
    }
    claim = claim_for(device("eth2", parameters))
    [prepared] = driver.prepare(claim)
    assert "eth2" in host.interfaces(), "there is no pod yet"
    pod.start_container(prepared.edits)
    assert "eth2" not in host.interfaces()
    assert pod.interfaces() == {"lo", "net1"}
    shown = pod.ip("addr", "show", "net1")
    assert "mtu 1400" in shown
    assert "inet 10.1.0.2/24" in shown
    assert "inet6 fd00:1::2/64" in shown
    routes = pod.ip("route")
    assert "10.2.0.0/16 via 10.1.0.1 dev net1" in routes
    assert "10.3.0.0/16 dev net1 proto static scope link" in routes
    [report] = driver.reports[claim.uid]
    assert (report.device, report.network_data.interface_name) == ("eth2", "net1")
    assert set(report.network_data.ips) == {"10.1.0.2/24", "fd00:1::2/64"}
    assert report.network_data.hardware_address == before["eth2"][1]
    assert names(driver) == {"eth1", "eth2"}, "an interface that a pod has is published as before"

    driver.unprepare(claim.reference)
    assert state_of(host) == before
    assert pod.interfaces() == {"lo"}
    assert driver.reports[claim.uid] == []
    driver.unprepare(claim.reference)


def test_an_interface_without_parameters_keeps_its_name_and_addresses(host, begin, make_pod):
    host.ip("addr", "add", "10.9.0.1/24", "dev", "eth2")
    driver, pod = begin(), make_pod()
    [prepared] = driver.prepare(claim_for(device("eth2")))
    pod.start_container(prepared.edits)
    assert "inet 10.9.0.1/24" in pod.ip("addr", "show", "eth2")


def test_an_interface_comes_back_after_its_pod_died(host, begin, make_pod):
    """The kernel removes virtual interfaces with the namespace that they are in."""
    before = state_of(host)
    driver, pod = begin(), make_pod()
    claim = claim_for(device("eth2", {"interface": {"name": "net1", "hardwareAddr": "02:00:00:00:00:77"}}))
    [prepared] = driver.prepare(claim)
    pod.start_container(prepared.edits)
    assert "02:00:00:00:00:77" in pod.ip("link", "show", "net1")
    pod.end()
    begin().unprepare(claim.reference)
    assert state_of(host) == before


def test_a_driver_that_lost_its_mounts_finds_the_pod_again(host, begin, make_pod):
    """The mounts of a driver in a container end with the container; the pod's processes keep its network."""
    before = state_of(host)
    driver, pod = begin(), make_pod()
    claim = claim_for(device("eth2", {"interface": {"name": "net1"}}))
    [prepared] = driver.prepare(claim)
    pod.start_container(prepared.edits)
    driver._kept.let_go("uid-1-0")
    again = begin()
    pod.end()
    again.unprepare(claim.reference)
    assert state_of(host) == before


def test_an_interface_that_went_away_with_its_pod_is_forgotten(host, begin, make_pod, caplog):
    driver, pod = begin(), make_pod()
    claim = claim_for(device("eth1", {"interface": {"name": "net1"}}))
    [prepared] = driver.prepare(claim)
    pod.start_container(prepared.edits)
    pod.ip("link", "del", "net1")
    assert names(driver) == {"eth1", "eth2"}
    driver.unprepare(claim.reference)
    assert "interface eth1 did not come back" in caplog.text
    assert names(driver) == {"eth2"}


def test_a_container_that_restarts_gets_the_interface_again(host, begin, make_pod):
    driver, first, second = begin(), make_pod(), make_pod()
    claim = claim_for(device("eth1", {"interface": {"addresses": ["10.1.0.2/24"]}}))
    [prepared] = driver.prepare(claim)
    first.start_container(prepared.edits)
    first.start_container(prepared.edits)  # a second container in the same network
    with pytest.raises(HookFailed, match="interface eth1 is in use by another container"):
        second.start_container(prepared.edits)
    first.end()
    second.start_container(prepared.edits)
    assert "inet 10.1.0.2/24" in second.ip("addr", "show", "eth1")
    driver.unprepare(claim.reference)
    assert "eth1" in host.interfaces()


def test_a_claim_that_is_prepared_again_keeps_what_was_before(host, begin, make_pod):
    before = state_of(host)
    driver, pod = begin(), make_pod()
    claim = claim_for(device("eth1", {"interface": {"mtu": 1300, "name": "x"}}))
    [prepared] = driver.prepare(claim)
    pod.start_container(prepared.edits)
    again = begin()
    assert list(again.prepare(claim)) == [prepared]
    again.unprepare(claim.reference)
    assert state_of(host) == before


def test_an_interface_that_was_never_used_is_left_alone(host, begin):
    driver = begin()
    claim = claim_for(device("eth1"))
    driver.prepare(claim)
    host.ip("link", "set", "eth1", "mtu", "1234")
    driver.unprepare(claim.reference)
    assert "mtu 1234" in host.ip("link", "show", "eth1")


def test_what_a_user_reads_when_it_cannot_be(host, begin, make_pod):
    driver, pod = begin(), make_pod()
    pod.ip("link", "add", "net1", "type", "veth")
    [prepared] = driver.prepare(claim_for(device("eth1", {"interface": {"name": "net1"}})))
    with pytest.raises(HookFailed, match="interface eth1 as net1: File exists"):
        pod.start_container(prepared.edits)
    driver.unprepare(claim_for().reference)
    with pytest.raises(HookFailed, match="claim uid-1 is not prepared on this node"):
        pod.start_container(prepared.edits)
    with pytest.raises(PrepareError, match="device eth7 is not on this machine any more"):
        driver.prepare(claim_for(device("eth7")))
    with pytest.raises(PrepareError, match="two interfaces of the claim would be called x"):
        driver.prepare(claim_for(*(device(name, {"interface": {"name": "x"}}) for name in ("eth1", "eth2"))))


def test_the_network_of_the_node_gets_no_interfaces(host, begin):
    driver = begin()
    driver.prepare(claim_for(device("eth1")))

    with pytest.raises(PrepareError, match="the container is in the network of the node"):
        attach_from(host, driver)
    assert "eth1" in host.interfaces()


def attach_from(host, driver):
    process = subprocess.Popen(host.inside("sh", "-c", "echo; exec sleep 100"), stdout=-1)
    try:
        process.stdout.readline()
        driver.attach("uid-1", 0, process.pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_two_pods_share_an_interface_and_exchange_packets(host, begin, make_pod):
    driver, pods = begin(SHARED), [make_pod(), make_pod()]
    claims = []
    for number, pod in enumerate(pods, 1):
        parameters = {"interface": {"name": "net1", "addresses": [f"10.1.0.{number}/24"]}}
        claims.append(claim_for(device("eth2", parameters, bandwidth="100M", share=f"s{number}"), uid=f"u{number}"))
        [prepared] = driver.prepare(claims[-1])
        pod.start_container(prepared.edits)
    assert "eth2" in host.interfaces(), "the node keeps it"
    assert echoed(pods[0], pods[1], "10.1.0.2") == "hello"
    assert "qdisc tbf" in pods[0].run("tc", "qdisc", "show", "dev", "net1")
    assert driver.reports["u1"][0].share_id == "s1"
    driver.unprepare(claims[0].reference)
    assert (pods[0].interfaces(), pods[1].interfaces()) == ({"lo"}, {"lo", "net1", "in-2"})


def test_a_share_gets_its_bandwidth(host, begin, make_pod):
    """10 Mbit/s of an interface that has 10,000, in both directions; what the receiver counts in two seconds."""
    driver, pods = begin(SHARED), [make_pod(), make_pod(), make_pod()]
    for number, (pod, bandwidth) in enumerate(zip(pods, ("10M", "1G", "10G"), strict=True), 1):
        parameters = {"interface": {"name": "net1", "addresses": [f"10.1.0.{number}/24"]}}
        claim = claim_for(device("eth2", parameters, bandwidth=bandwidth, share=f"s{number}"), uid=f"u{number}")
        [prepared] = driver.prepare(claim)
        pod.start_container(prepared.edits)
    assert measured_mbit(pods[0], pods[1], "10.1.0.2") == pytest.approx(10, rel=0.2)
    assert measured_mbit(pods[2], pods[0], "10.1.0.1") == pytest.approx(10, rel=0.2)
    assert measured_mbit(pods[1], pods[2], "10.1.0.3") > 50


def test_two_shares_of_one_interface_for_one_claim(host, begin, make_pod):
    driver, pod = begin(SHARED), make_pod()
    for prepared in driver.prepare(claim_for(*(device("eth2", bandwidth="1G", share=f"s{n}") for n in range(2)))):
        pod.start_container(prepared.edits)
    assert pod.interfaces() == {"lo", "eth2", "in-2", "eth2-1", "in-4"}


def test_all_the_bandwidth_needs_no_limit(host, begin, make_pod):
    driver, pod = begin(SHARED), make_pod()
    [prepared] = driver.prepare(claim_for(device("eth2", bandwidth="10G", share="s")))
    pod.start_container(prepared.edits)
    assert "tbf" not in pod.run("tc", "qdisc", "show")
    assert pod.interfaces() == {"lo", "eth2"}


def test_a_kernel_that_cannot_limit_what_a_pod_receives_says_so(host, begin, make_pod, monkeypatch):
    """As one without ifb answers."""
    monkeypatch.setattr(interfaces, "_BETWEEN_KIND", "no-such-kind")
    driver, pod = begin(SHARED), make_pod()
    claim = claim_for(device("eth2", bandwidth="1G", share="s"))
    [prepared] = driver.prepare(claim)
    with pytest.raises(
        HookFailed, match=r"cannot limit what a pod receives, it needs ifb, u32 and mirred: .*supported"
    ):
        pod.start_container(prepared.edits)
    driver.unprepare(claim.reference)
    assert pod.interfaces() == {"lo"}


def test_a_share_of_an_interface_that_is_down_says_so(host, begin, make_pod):
    host.ip("link", "set", "eth2", "down")
    driver, pod = begin(SHARED), make_pod()
    [prepared] = driver.prepare(claim_for(device("eth2", bandwidth="1G", share="s")))
    with pytest.raises(HookFailed, match="interface eth2 is down: shares of it carry nothing"):
        pod.start_container(prepared.edits)


def test_admin_access_takes_nothing(host, begin):
    driver = begin()
    looking = replace(device("eth1"), admin_access=True)
    [prepared] = driver.prepare(claim_for(looking))
    assert prepared.edits.is_empty


# --- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"interface": {"dhcp": True}}, r"unknown field `dhcp` - at `\$.interface`"),
        ({"ethtool": {}}, "unknown field `ethtool`"),
        ({"interface": {"name": "a-name-that-is-too-long"}}, "interface.name 'a-name-that-is-too-long': must be"),
        ({"interface": {"name": "a/b"}}, "interface.name 'a/b': must be"),
        ({"interface": {"addresses": ["10.0.0.1"]}}, r"interface.addresses\[0\] '10.0.0.1': must have a prefix"),
        ({"interface": {"addresses": ["10.0.0.1/24", "x"]}}, r"interface.addresses\[1\] 'x'"),
        ({"interface": {"mtu": 10}}, "interface.mtu 10: must be 68 to 65535"),
        ({"interface": {"mtu": "1500"}}, r"Expected `int \| null`, got `str` - at `\$.interface.mtu`"),
        ({"interface": {"hardwareAddr": "01:00:00:00:00:00"}}, "interface.hardwareAddr"),
        ({"routes": [{}]}, r"missing required field `destination` - at `\$.routes\[0\]`"),
        ({"routes": [{"destination": "10.0.0.1/8", "scope": 253}]}, r"routes\[0\].destination.*host bits"),
        ({"routes": [{"destination": "10.0.0.0/8"}]}, r"routes\[0\].gateway: needed"),
        ({"routes": [{"destination": "10.0.0.0/8", "gateway": "fd00::1"}]}, r"routes\[0\].gateway 'fd00::1': .*family"),
        ({"routes": [{"destination": "10.0.0.0/8", "gateway": "x"}]}, r"routes\[0\].gateway 'x'"),
        ({"routes": [{"destination": "10.0.0.0/8", "scope": 3}]}, r"routes\[0\].scope 3"),
    ],
)
def test_parameters_that_are_refused(parameters, message):
    with pytest.raises(PrepareError, match=message):
        NetDriver().check_config(DeviceConfig("FromClaim", parameters))


def test_parameters_of_class_and_claim_together():
    merged = network_config(
        [
            DeviceConfig("FromClass", {"interface": {"mtu": 9000, "name": "a"}, "routes": []}),
            DeviceConfig(
                "FromClaim", {"interface": {"name": "b"}, "routes": [{"destination": "::/0", "gateway": "fd00::1"}]}
            ),
        ]
    )
    assert (merged.interface.name, merged.interface.mtu) == ("b", 9000)
    assert merged.routes == (RouteConfig("::/0", "fd00::1"),)
    assert network_config([]) == NetworkConfig()
