"""ResourceClaims: made from templates for pods, released when their pods are over, freed and deleted.

`controller` decides what to look at, `creating` serves a pod, `releasing` serves a claim; `pods` and `names` hold the pure
questions. Which devices a claim gets is the scheduler's business.
"""

from dray.controllers.claims.controller import DEFAULT_WORKERS, ClaimController

__all__ = ["DEFAULT_WORKERS", "ClaimController"]
