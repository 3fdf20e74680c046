"""Explains why a pod waits, and what would help, with the real scheduler in a simulated cluster.

`explained_cluster` answers for a pod that has finished, that is being deleted or that has a node. `waiting_pod` takes every other pod through one
attempt of the scheduler: `claim_causes` says which claim keeps the pod waiting before any node is asked, `node_verdicts` asks every
filter on every node (`node_refusals` adds the details, `extended_resource_text` the words of the pod), and `pod_remedies` collects
what may help, which `rehearsals` tries.
"""

from dray.sim.pod_explanation.explained_cluster import (
    ExplainedCluster,
    explain_live_pod,
    explain_live_pods,
    explain_pod,
)
from dray.sim.pod_explanation.options import ExplainOptions

__all__ = ["ExplainOptions", "ExplainedCluster", "explain_live_pod", "explain_live_pods", "explain_pod"]
