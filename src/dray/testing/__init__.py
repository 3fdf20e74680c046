"""A running cluster for tests: `with cluster() as c:` or the pytest fixture `dray_cluster`.

    from dray.testing import cluster

    with cluster(nodes=2, devices=("gpu",)) as c:
        c.apply("examples/gpu/classes.yaml", "examples/gpu/one-gpu.yaml")
        pod = c.wait_until_running("one-gpu")
        assert pod.spec.node_name == "node-1"

The cluster runs on an event loop in a thread of its own. `c.client` is the async client, for use through `c.run(...)`;
the helpers are plain functions. `c.kubeconfig` works with kubectl and with every other client. pytest has the fixtures of
`pytest_plugin` where Dray is installed. `driver_checks` is `dray driver test`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dray.sim.node_pools import NodePool, NodePoolError
    from dray.testing.running_cluster import Cluster, TimedOut, cluster

__all__ = ["Cluster", "NodePool", "NodePoolError", "TimedOut", "cluster"]


def __getattr__(name: str) -> Any:
    """Imports the cluster when it is asked for: pytest loads the plugin of this package for every project."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dray.sim import node_pools
    from dray.testing import running_cluster

    return getattr(node_pools if name.startswith("NodePool") else running_cluster, name)
