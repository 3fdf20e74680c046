"""The ResourceClaim controller: creates claims from templates, reserves, releases and deletes them.

`controller` decides which pod, group or claim to look at, and releases claims: it drops users that are over, deallocates and
deletes. `creating` serves a pod or a group: it creates the claims, records their names in the status, counts, and reserves them for
pods that were bound without a scheduler. The scheduler chooses the devices.
"""

from dray.controllers.claims.controller import DEFAULT_WORKERS, ClaimController

__all__ = ["DEFAULT_WORKERS", "ClaimController"]
