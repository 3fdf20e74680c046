"""A pod's priority comes from its class, never from its author."""

from dray.apiserver.request.request_info import Document
from dray.apiserver.safe_get import (
    mapping,
    name_of,
    part,
    text,
)
from dray.apiserver.watch.object_reader import Objects
from dray.apiserver.write.admission.base import (
    CREATE,
    UPDATE,
    Admission,
    AdmissionPlugin,
    concerns,
    forbidden,
)

DEFAULT_POLICY = "PreemptLowerPriority"
GROUP = "scheduling.k8s.io"


class Priority(AdmissionPlugin):
    name = "Priority"
    resources = frozenset({("", "pods"), (GROUP, "priorityclasses")})

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def mutate(self, admission: Admission) -> None:
        if admission.operation == CREATE and concerns(admission, "", "pods"):
            await self._set_priority(admission)

    async def validate(self, admission: Admission) -> None:
        """Only one class can be what pods without a class get."""
        if admission.operation not in (CREATE, UPDATE) or not concerns(admission, GROUP, "priorityclasses"):
            return
        if part(admission.document, "globalDefault") is not True:
            return
        other = await self._default_class()
        if other and name_of(other) != admission.name:
            why = f"PriorityClass {name_of(other)} is already marked as default. Only one default can exist"
            raise forbidden(admission, why)

    async def _set_priority(self, admission: Admission) -> None:
        spec = mapping(admission.document, "spec")
        found = await self._class_of(admission, spec)
        value = part(found, "value")
        priority = value if isinstance(value, int) else 0
        policy = text(found, "preemptionPolicy") or DEFAULT_POLICY
        given, given_policy = spec.get("priority"), spec.get("preemptionPolicy")
        if given is not None and given != priority:
            raise forbidden(
                admission,
                f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {priority} from the given PriorityClass name",
            )
        if given_policy is not None and given_policy != policy:
            raise forbidden(
                admission,
                f"the string value of PreemptionPolicy ({given_policy}) must not be provided in pod spec; priority "
                f"admission controller computed {policy} from the given PriorityClass name",
            )
        spec["priority"] = priority
        spec["preemptionPolicy"] = policy

    async def _class_of(self, admission: Admission, spec: Document) -> Document | None:
        name = text(spec, "priorityClassName")
        if not name:
            found = await self._default_class()
            if found:
                spec["priorityClassName"] = name_of(found)
            return found
        found = await self._objects.get(GROUP, "priorityclasses", "", name)
        if found is None:
            raise forbidden(admission, f"no PriorityClass with name {name} was found")
        return found

    async def _default_class(self) -> Document | None:
        """The global default with the lowest value, should there be several."""
        found = [entry for entry in await self._objects.list(GROUP, "priorityclasses") if entry.get("globalDefault")]
        return min(found, key=lambda entry: entry.get("value") or 0, default=None)
