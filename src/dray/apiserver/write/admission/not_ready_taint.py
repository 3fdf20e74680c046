"""A node starts out tainted: nothing is scheduled to it before somebody has seen it ready."""

from dray.apiserver.write.admission.base import (
    CREATE,
    Admission,
    AdmissionPlugin,
    concerns,
)

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class NotReadyTaint(AdmissionPlugin):
    """The node lifecycle controller takes the taint away. (`TaintNodesByCondition` in Kubernetes.)"""

    name = "TaintNodesByCondition"
    resources = frozenset({("", "nodes")})

    async def mutate(self, admission: Admission) -> None:
        if admission.operation != CREATE or not concerns(admission, "", "nodes") or admission.document is None:
            return
        spec = dict(admission.document.get("spec") or {})
        taints = list(spec.get("taints") or ())
        if not any(taint.get("key") == NOT_READY["key"] and taint.get("effect") == "NoSchedule" for taint in taints):
            spec["taints"] = [*taints, dict(NOT_READY)]
            admission.document["spec"] = spec
