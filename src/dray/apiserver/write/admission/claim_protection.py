"""ClaimProtection: the protection finalizer of a claim stays while the claim is reserved.

The finalizer keeps a claim, and with it the record of its devices, until no pod uses it. Kubernetes lets everyone who may update the claim remove it;
then the claim can be deleted under a running pod, and its devices go to somebody else.
"""

from dray.api.resource import CLAIM_FINALIZER
from dray.api.safe_get import mappings, strings
from dray.apiserver.write.admission.chain import UPDATE, Admission, AdmissionPlugin, forbidden


class ClaimProtection(AdmissionPlugin):
    name = "ClaimProtection"
    resources = frozenset({("resource.k8s.io", "resourceclaims")})

    async def validate(self, admission: Admission) -> None:
        if admission.operation != UPDATE or not mappings(admission.document, "status", "reservedFor"):
            return
        before, after = (strings(claim, "metadata", "finalizers") for claim in (admission.old, admission.document))
        if CLAIM_FINALIZER in before and CLAIM_FINALIZER not in after:
            why = f"the finalizer {CLAIM_FINALIZER} cannot be removed while status.reservedFor names users of the claim"
            raise forbidden(admission, why)
