"""PodResizeValidator: a pod cannot grow beyond its node, whatever else runs there."""

from dray.accounting import pod_requests
from dray.api.codec import to_object
from dray.api.core import Pod
from dray.api.quantity import Quantity
from dray.apiserver.errors import forbidden
from dray.apiserver.safe_get import (
    mapping,
    text,
)
from dray.apiserver.watch.object_reader import Objects
from dray.apiserver.write.admission.base import (
    UPDATE,
    Admission,
    AdmissionPlugin,
    concerns,
    row_of,
)

RESIZABLE = ("cpu", "memory")


class PodResizeValidator(AdmissionPlugin):
    name = "PodResizeValidator"
    resources = frozenset({("", "pods")})

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def validate(self, admission: Admission) -> None:
        if admission.operation != UPDATE or not concerns(admission, "", "pods", "resize"):
            return
        assert admission.document is not None
        assert admission.old is not None
        node_name = text(admission.document, "spec", "nodeName")
        node = await self._objects.get("", "nodes", "", node_name) if node_name else None
        if node is None:
            return
        wanted = pod_requests(to_object(admission.document, Pod))
        before = pod_requests(to_object(admission.old, Pod))
        allocatable = mapping(node, "status", "allocatable")
        for name in RESIZABLE:
            if name not in wanted or name not in allocatable or wanted[name] == before.get(name):
                continue
            if wanted[name] > (most := Quantity.parse(allocatable[name])):
                why = f"Node didn't have enough capacity: {name}, requested: {wanted[name]}, capacity: {most}"
                cause = {"reason": "NodeCapacity", "message": why}
                raise forbidden(row_of(admission.attributes), admission.name, why, [cause])
