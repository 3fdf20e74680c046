"""The disruption controller: says in the status of each PodDisruptionBudget how many of its pods may be evicted now.

`coverage` keeps what each budget needs to know of its pods, `scales` asks the owners of pods how many there should be,
`numbers` does the arithmetic, `controller` watches and writes. The server's eviction endpoint takes from what is allowed.
"""

from dray.controllers.disruption.controller import DisruptionController

__all__ = ["DisruptionController"]
