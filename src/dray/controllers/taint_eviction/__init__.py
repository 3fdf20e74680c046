"""Evicts pods from devices that are tainted NoExecute (KEP-5055): `controller` watches and acts, the rest decides.

`deadlines` says when a taint ends the use of a device and which taints drivers publish, `causes` which taints reach a
pod through its claims, `rule_status` what a rule's status tells. The scheduler keeps new pods away from tainted devices.
"""

from dray.controllers.taint_eviction.controller import TaintEvictionController

__all__ = ["TaintEvictionController"]
