"""May a second pod use a claim that takes amounts from the node?"""

from collections.abc import Collection

from dray.accounting.charges import ClaimCharge
from dray.accounting.fit import sharing_reason
from dray.api.reasons import Reason
from dray.api.resource import ResourceClaim


def sharing_conflict(claim: ResourceClaim, charge: ClaimCharge, consumer_uids: Collection[str]) -> Reason | None:
    """Why the consumer may not use an allocated claim; None if it may.

    `consumer_uids` are the pod's UID and, for a member of a pod group, the group's. Mapped amounts belong to one
    consumer; overhead is charged to each, and a pool is made for sharing.
    """
    reserved_for = claim.status.reserved_for
    if charge.is_shareable or not reserved_for or any(user.uid in consumer_uids for user in reserved_for):
        return None
    return sharing_reason(claim.metadata.name)
