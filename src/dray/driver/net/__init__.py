"""The driver of the machine's network interfaces: `dra.net`, as `dray driver net` serves it.

`namespaces` enters network namespaces and keeps them alive; `links` asks the kernel what interfaces there are; `devices`
describes them as DRA devices, with the attribute names of DRANET; `parameters` reads NetworkConfig; `claim_records`
remembers on disk which claim has which interfaces; `interfaces` brings an interface into a pod's namespace and back; `health`
finds interfaces that carry no packets, in pods and on the machine, and counts their traffic; through `hook` a container runtime
tells the driver that a container starts; `driver` puts them together.
"""

from dray.driver.net.driver import NetDriver

__all__ = ["NetDriver"]
