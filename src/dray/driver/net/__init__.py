"""The driver of the machine's network interfaces: `dra.net`, as `dray driver net` serves it.

`namespaces` enters network namespaces and keeps them alive; `links` asks the kernel what interfaces there are; `devices`
describes them as DRA devices, with the attribute names of DRANET; `parameters` reads NetworkConfig; `claims` remembers on
disk who has what; `interfaces` brings an interface into a pod's namespace and back; `conditions` tells how interfaces are
doing there and on the machine; `hook` is how a container runtime tells the driver that a container starts; `driver` puts
them together.
"""

from dray.driver.net.driver import NetDriver

__all__ = ["NetDriver"]
