"""Higher priority first; among equals the pod that has waited longer."""

from dray.api.core import Pod


class PrioritySort:
    name = "PrioritySort"

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]:
        return (-(pod.spec.priority or 0), queued_at)
