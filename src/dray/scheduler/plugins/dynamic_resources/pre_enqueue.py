"""PreEnqueue: a pod waits outside until all its claims exist and are usable."""

from dray.api.core import Pod
from dray.scheduler.assumed import AssumedClaims
from dray.scheduler.framework.status import PluginStatus
from dray.scheduler.plugins.dynamic_resources.pod_claims import ClaimNotReady, claims_of


def pre_enqueue(pod: Pod, claims: AssumedClaims) -> PluginStatus | None:
    if not pod.spec.resource_claims:
        return None
    try:
        claims_of(pod, claims)
    except ClaimNotReady as problem:
        return problem.status()
    return None
