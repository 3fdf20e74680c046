"""Records on disk of the interfaces of each claim. The driver writes a record before it changes an interface, so it can undo the change after a crash."""

import msgspec

from dray.driver.claim_files import ClaimWithPods
from dray.driver.net.links import Link
from dray.driver.net.parameters import NetworkConfig


class SavedRoute(msgspec.Struct, frozen=True):
    """A route over an interface that somebody has set; those that come with an address are not saved."""

    destination: str
    gateway: str | None = None
    source: str | None = None
    scope: int = 0
    metric: int | None = None
    protocol: int = 4


class PodSide(msgspec.Struct, frozen=True):
    """An interface as a pod has it."""

    name: str
    ips: tuple[str, ...]
    hardware_address: str


class InterfaceUse(msgspec.Struct, frozen=True):
    """One device that a claim has.

    `link` and `routes` are the interface as it was when the claim was prepared. `is_touched` is set before the first change,
    with the `namespace` of the pod, and `pod_side` after the last change.
    """

    pool: str
    device: str
    share_id: str | None
    config: NetworkConfig
    link: Link
    name_in_pod: str
    routes: tuple[SavedRoute, ...] = ()
    is_shared: bool = False
    bits_per_second: int | None = None
    is_touched: bool = False
    namespace: tuple[int, int] = (0, 0)
    pod_side: PodSide | None = None


class InterfaceRecord(ClaimWithPods, frozen=True):
    uses: tuple[InterfaceUse, ...] = ()

    def with_use(self, index: int, use: InterfaceUse) -> "InterfaceRecord":
        return msgspec.structs.replace(self, uses=(*self.uses[:index], use, *self.uses[index + 1 :]))
