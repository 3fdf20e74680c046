"""From waiting pod to bound pod.

Decisions live in `cycle.Decider` and the plugins: synchronous, over `snapshot`, without a server; the clock is an argument.
Writes live in `cycle.Binder` and the plugins' `pre_bind` and `post_filter`, behind the small `ClusterWriter` protocol. `service` joins both to
a real API server through `dray.client`. `event_handlers` applies watch events. `dray.allocator` chooses the devices
of a claim, and `dray.accounting` computes the amounts that a pod needs on a node.
"""
