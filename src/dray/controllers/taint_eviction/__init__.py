"""Pods off tainted devices (KEP-5055): `controller` watches and acts, the rest decides.

`deadlines` says when a taint ends the use of a device, `pools` which taints drivers publish, `rule_status` what a rule's
status tells. Keeping new pods away from tainted devices is the scheduler's business.
"""

from dray.controllers.taint_eviction.controller import TaintEvictionController

__all__ = ["TaintEvictionController"]
