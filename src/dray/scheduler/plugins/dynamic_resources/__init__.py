"""ResourceClaims: from waiting for claims to allocated, reserved and bound devices. One file for each large extension point.

`plugin.py` names the extension points and hands each to its file; `PodAttempt` in `pod_claims.py` holds the state of one attempt. `dray.allocator`
decides which devices fit; `dray.accounting` computes the amounts that they take from the node.
"""

from dray.scheduler.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
