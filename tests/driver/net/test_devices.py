"""Interfaces as devices: which are offered, what is said about them, and how changes are followed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.waiting import eventually

from dray.driver.net.devices import InterfaceChoice, device_of, is_offered, names_of
from dray.driver.net.links import Link, PciFacts, pci_facts, read_links

CARD = Link(
    index=2,
    name="ens1f0",
    type="device",
    mac="02:00:00:00:00:01",
    mtu=9000,
    state="up",
    is_up=True,
    speed_mbit=100_000,
    driver="mlx5_core",
    ipv4=("10.0.0.2/24",),
)
PCI = PciFacts("0000:8a:00.0", "pci0000:80", "0x15b3", "0x1021", 1, "mlx5_0", total_vfs=8, vfs=4)


@pytest.mark.parametrize(
    ("changes", "choice", "expected"),
    [
        pytest.param({}, InterfaceChoice(), True, id="a-plain-card"),
        pytest.param(
            {"is_loopback": True}, InterfaceChoice(include=("*",), shared=("*",)), False, id="never-the-loopback"
        ),
        pytest.param({"has_default_route": True}, InterfaceChoice(), False, id="not-the-default-route"),
        pytest.param(
            {"has_default_route": True}, InterfaceChoice(include=("ens*",)), False, id="not-even-by-a-pattern"
        ),
        pytest.param({"has_default_route": True}, InterfaceChoice(has_default_route=True), True, id="unless-asked"),
        pytest.param(
            {"has_default_route": True}, InterfaceChoice(shared=("ens1f0",)), True, id="a-share-takes-nothing-away"
        ),
        pytest.param({"type": "veth"}, InterfaceChoice(), False, id="no-ends-of-other-pods"),
        pytest.param({"type": "veth"}, InterfaceChoice(include=("ens*",)), True, id="unless-named"),
        pytest.param({"has_master": True}, InterfaceChoice(), False, id="no-ports-of-a-bridge"),
        pytest.param({"type": "bridge"}, InterfaceChoice(include=("*",)), False, id="a-bridge-cannot-move"),
        pytest.param({"type": "bridge"}, InterfaceChoice(shared=("*",)), True, id="a-bridge-can-be-shared"),
        pytest.param({}, InterfaceChoice(include=("eth*",)), False, id="only-what-is-named"),
        pytest.param({}, InterfaceChoice(include=("ens*",), exclude=("*f0",)), False, id="exclude-wins"),
    ],
)
def test_which_interfaces_are_offered(changes, choice, expected):
    assert is_offered(replace(CARD, **changes), choice) is expected


def test_a_card_has_the_attributes_of_dranet():
    attributes = device_of("any", replace(CARD, pci=PCI), InterfaceChoice()).attributes
    values = {
        name: next(v for v in (each.string, each.int_, each.bool_) if v is not None)
        for name, each in attributes.items()
    }
    assert values == {
        "ifName": "ens1f0",
        "type": "device",
        "state": "up",
        "encapsulation": "ether",
        "mtu": 9000,
        "virtual": False,
        "mac": "02:00:00:00:00:01",
        "ipv4": "10.0.0.2/24",
        "rdma": True,
        "rdmaDevice": "mlx5_0",
        "sriov": True,
        "sriovVfs": 4,
        "isSriovVf": False,
        "numaNode": 1,
        "resource.kubernetes.io/numaNode": 1,
        "pciAddress": "0000:8a:00.0",
        "resource.kubernetes.io/pciBusID": "0000:8a:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:80",
        # Those that DRANET does not have:
        "driver": "mlx5_core",
        "speedMbps": 100_000,
        "pciVendorID": "0x15b3",
        "pciDeviceID": "0x1021",
    }


def test_a_shared_card_gives_out_its_bandwidth():
    known = device_of("any", CARD, InterfaceChoice(shared=("ens*",)))
    unknown = device_of(
        "any", replace(CARD, speed_mbit=None), InterfaceChoice(shared=("ens*",), unknown_speed_mbit=2500)
    )
    assert str(known.capacity["bandwidth"].value) == "100G"
    assert str(unknown.capacity["bandwidth"].value) == "2500M"
    assert known.allow_multiple_allocations


def test_many_addresses_are_cut_between_two_of_them():
    many = tuple(f"10.0.{n}.2/24" for n in range(20))
    text = device_of("any", replace(CARD, ipv4=many), InterfaceChoice()).attributes["ipv4"].string
    assert len(text) <= 64
    assert set(text.split(",")) <= set(many)


def test_names_of_devices():
    links = [
        replace(CARD, name="ens1f0", pci=PCI),
        replace(CARD, name="one", pci=replace(PCI, address="0000:8b:00.0")),
        replace(CARD, name="two", pci=replace(PCI, address="0000:8b:00.0")),
        replace(CARD, name="eth1"),
        replace(CARD, name="eth1.100@x"),
    ]
    assert list(names_of(links)) == ["pci-0000-8a-00-0", "one", "two", "eth1", "net-mv2gqmjogeydaqdy"]


def test_facts_of_a_card_and_its_virtual_function(tmp_path):
    """The folders are laid out as the kernel lays them out for an SR-IOV card."""
    root = tmp_path / "devices/pci0000:80/0000:80:01.0"
    card, function = root / "0000:8a:00.0", root / "0000:8a:00.1"
    for folder in (card, function):
        (folder / "net").mkdir(parents=True)
        (folder / "numa_node").write_text("1\n" if folder == card else "-1\n")
    (card / "net/ens1f0").mkdir()
    (card / "infiniband/mlx5_0").mkdir(parents=True)
    for name, text in {"sriov_totalvfs": "8", "sriov_numvfs": "1", "vendor": "0x15b3", "device": "0x1021"}.items():
        (card / name).write_text(f"{text}\n")
    (function / "physfn").symlink_to(card)
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    for folder in (card, function):
        (tmp_path / "bus/pci/devices" / folder.name).symlink_to(folder)
    virtio = card / "virtio3"
    virtio.mkdir()
    (tmp_path / "bus/virtio/devices").mkdir(parents=True)
    (tmp_path / "bus/virtio/devices/virtio3").symlink_to(virtio)

    found = pci_facts(tmp_path, "pci", "0000:8a:00.0")
    assert found == PciFacts("0000:8a:00.0", "pci0000:80", "0x15b3", "0x1021", 1, "mlx5_0", 8, 1)
    assert pci_facts(tmp_path, "virtio", "virtio3") == found
    virtual = pci_facts(tmp_path, "pci", "0000:8a:00.1")
    assert (virtual.is_vf, virtual.parent, virtual.numa_node) == (True, "ens1f0", None)
    assert pci_facts(tmp_path, "usb", "1-1") is None


def test_links_of_the_kernel(host):
    host.ip("addr", "add", "10.9.0.1/24", "dev", "eth2")
    host.ip("route", "add", "default", "dev", "eth2")
    host.ip("link", "set", "eth1", "mtu", "1400", "alias", "left")
    links = {link.name: link for link in read_links(host.path)}
    assert links["lo"].is_loopback
    assert (links["br0"].type, links["br0"].state, links["eth1-port"].has_master) == ("bridge", "up", True)
    eth1, eth2 = links["eth1"], links["eth2"]
    assert (eth1.type, eth1.mtu, eth1.alias, eth1.is_up, eth1.state) == ("veth", 1400, "left", False, "down")
    assert (eth2.is_up, eth2.has_default_route, eth2.ipv4) == (True, True, ("10.9.0.1/24",))
    assert (eth1.speed_mbit, eth1.has_default_route, eth1.pci) == (10_000, False, None)


async def test_changes_of_the_kernel_are_followed(host, begin):
    driver = begin()
    seen = []

    def republish():
        [pool] = driver.pools("n")
        seen.append({each.name: each.attributes["state"].string for each in pool.devices})

    republish()
    assert seen == [{"eth1": "down", "eth2": "up"}]
    watching = asyncio.create_task(driver.watch(republish))
    try:
        await asyncio.sleep(0)
        for change, expected in (
            (("link", "set", "eth1", "up"), {"eth1": "up", "eth2": "up"}),
            (("link", "set", "eth1-port", "down"), {"eth1": "lower-layer-down", "eth2": "up"}),
            (("link", "add", "eth3", "type", "veth"), {"eth1": "lower-layer-down", "eth2": "up", "eth3": "down"}),
            (("link", "del", "eth2"), {"eth1": "lower-layer-down", "eth3": "down"}),
        ):
            await asyncio.to_thread(host.ip, *change)
            await eventually(lambda expected=expected: seen[-1] == expected, lambda: seen)
    finally:
        watching.cancel()


def test_a_namespace_that_is_not_there(has_namespaces):
    with pytest.raises(FileNotFoundError):
        read_links(Path("/run/netns/no-such-namespace"))
