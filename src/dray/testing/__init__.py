"""A running cluster for tests: `with cluster() as c:` or the pytest fixture `dray_cluster`.

    from dray.testing import cluster

    with cluster(nodes=2, devices=("gpu",)) as c:
        c.apply("examples/gpu/classes.yaml", "examples/gpu/one-gpu.yaml")
        pod = c.wait_until_running("one-gpu")
        assert pod.spec.node_name == "node-1"

The cluster runs on an event loop in a thread of its own. `c.client` is the async client, for use through `c.run(...)`;
the helpers are plain functions. `c.kubeconfig` works with kubectl and with every other client. In `conftest.py`,
`pytest_plugins = ["dray.testing.pytest_plugin"]` gives the fixture.
"""

from dray.testing.cluster import Cluster, TimedOut, cluster

__all__ = ["Cluster", "TimedOut", "cluster"]
