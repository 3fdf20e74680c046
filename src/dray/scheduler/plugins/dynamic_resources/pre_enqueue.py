"""PreEnqueue: a pod waits outside until all its claims exist and are usable."""

from dray.api.core import Pod
from dray.scheduler.assumed import AssumedClaims
from dray.scheduler.framework.status import PluginStatus
from dray.scheduler.plugins.dynamic_resources.pod_claims import ClaimNotReady, claims_of
from dray.scheduler.pod_groups import PodGroups


def pre_enqueue(pod: Pod, claims: AssumedClaims, groups: PodGroups) -> PluginStatus | None:
    if not pod.spec.resource_claims:
        return None
    try:
        claims_of(pod, claims, groups)
    except ClaimNotReady as problem:
        return problem.status()
    return None
