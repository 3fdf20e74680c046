"""What the allocator found on one node, for explanations."""

from dray.allocator import NoFit
from dray.scheduler.handle import Handle
from dray.scheduler.outcomes import Rejection
from dray.scheduler.plugins.dynamic_resources.filter import deadlines
from dray.scheduler.plugins.dynamic_resources.pre_filter import Attempt

LOOK_AGAIN_S = 0.05


class AllocatorDetails:
    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def no_fit_on(self, rejection: Rejection, node_name: str) -> NoFit | None:
        attempt = rejection.cycle.read(Attempt)
        node = self._handle.snapshot.nodes.get(node_name)
        question = attempt.on(node).question if attempt is not None and node is not None else None
        if question is None or node is None:
            return None
        # Answered from memory, unless something has changed since: then not at any price.
        answer = question.on(node.node, deadlines(self._handle.clock.monotonic, LOOK_AGAIN_S)())
        return answer if isinstance(answer, NoFit) else None
