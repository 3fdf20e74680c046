"""Network cards whose bandwidth many claims share, each a part of its own: consumable capacity with a request policy.

Cards sit on rails; a claim for several cards can ask for different rails with `distinctAttribute`.
"""

from collections.abc import Iterable

from dray.api.cdi import ContainerEdits
from dray.api.quantity import Quantity
from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceAttribute,
    DeviceCapacity,
)
from dray.driver.plugin import AllocatedDevice, ClaimToPrepare, Driver, Pool, PreparedDevice


class NicDriver(Driver):
    name = "nic.example.com"

    def __init__(self, cards: int = 4, bandwidth: str = "100G") -> None:
        self._cards = cards
        self._bandwidth = bandwidth

    def pools(self, node_name: str) -> Iterable[Pool]:
        return [Pool(node_name, tuple(self._card(index) for index in range(self._cards)))]

    def _card(self, index: int) -> Device:
        policy = CapacityRequestPolicy(
            default=Quantity.parse("1G"),
            valid_range=CapacityRequestPolicyRange(min=Quantity.parse("100M"), step=Quantity.parse("100M")),
        )
        return Device(
            name=f"nic-{index}",
            attributes={
                "interface": DeviceAttribute(string=f"eth{index}"),
                "rail": DeviceAttribute(int_=index % 2),
                "linkSpeed": DeviceAttribute(string=self._bandwidth),
                "resource.kubernetes.io/pcieRoot": DeviceAttribute(string=f"pci0000:{index:02x}"),
                "resource.kubernetes.io/pciBusID": DeviceAttribute(string=f"0000:{0x80 + index:02x}:00.0"),
            },
            capacity={"bandwidth": DeviceCapacity(value=Quantity.parse(self._bandwidth), request_policy=policy)},
            allow_multiple_allocations=True,
        )

    def prepare(self, claim: ClaimToPrepare) -> Iterable[PreparedDevice]:
        return [PreparedDevice(device, ContainerEdits(env=_environment(device))) for device in claim.devices]


def _environment(device: AllocatedDevice) -> tuple[str, ...]:
    key = device.device.upper().replace("-", "_")
    bandwidth = device.consumed_capacity.get("bandwidth")
    entries = [f"NIC_{key}_INTERFACE=eth{device.device.rpartition('-')[2]}"]
    if bandwidth is not None:
        entries.append(f"NIC_{key}_BANDWIDTH={bandwidth}")
    if device.share_id:
        entries.append(f"NIC_{key}_SHARE={device.share_id}")
    return tuple(entries)
