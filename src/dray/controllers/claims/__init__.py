"""ResourceClaims: made from templates for pods and pod groups, released when their users are over, freed and deleted.

`controller` decides what to look at, `creating` serves a pod or group, `reserving` a pod placed by hand, `releasing` a
claim; `groups` knows the group of a pod; `pods` and `names` hold the pure questions. Which devices a claim gets is the scheduler's business.
"""

from dray.controllers.claims.controller import DEFAULT_WORKERS, ClaimController

__all__ = ["DEFAULT_WORKERS", "ClaimController"]
