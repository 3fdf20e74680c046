"""ResourceClaims: from waiting for claims to allocated, reserved and bound devices. One file per extension point that carries weight.

`plugin.py` names the extension points and hands each to its file; `Attempt` in `pre_filter.py` holds what one attempt knows. Which devices
fit is `dray.allocator`'s answer, what they take from the node `dray.accounting`'s.
"""

from dray.scheduler.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
