"""From waiting pod to bound pod.

Decisions live in `cycle` and the plugins: synchronous, over `snapshot`, without a server, on whatever clock they are given.
Writes live in `binding` and the plugins' `pre_bind` and `post_filter`, behind the small `ClusterWriter` protocol. `service` joins both to
a real API server through `dray.client`. Which devices serve a claim is decided by `dray.allocator`, what a pod asks of a node
by `dray.accounting`; neither is repeated here.
"""
