"""A pod stays five minutes on a node that is not ready or not reachable, unless it says otherwise."""

from dray.apiserver.request.request_info import Document
from dray.apiserver.safe_get import (
    mapping,
    mappings,
)
from dray.apiserver.write.admission.base import (
    CREATE,
    UPDATE,
    Admission,
    AdmissionPlugin,
    concerns,
)

SECONDS = 300
TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class DefaultTolerationSeconds(AdmissionPlugin):
    name = "DefaultTolerationSeconds"
    resources = frozenset({("", "pods")})

    async def mutate(self, admission: Admission) -> None:
        if admission.operation not in (CREATE, UPDATE) or not concerns(admission, "", "pods"):
            return
        spec = mapping(admission.document, "spec")
        tolerations = mappings(spec, "tolerations")
        missing = [taint for taint in TAINTS if not any(_tolerates(entry, taint) for entry in tolerations)]
        if spec and missing:
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *map(_toleration, missing)]


def _tolerates(toleration: Document, taint: str) -> bool:
    return toleration.get("key") in (taint, "", None) and toleration.get("effect") in ("NoExecute", "", None)


def _toleration(taint: str) -> Document:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}
