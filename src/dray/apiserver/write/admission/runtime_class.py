"""RuntimeClass: a pod's runtime must be defined; its class says what the runtime itself takes from a node, and which nodes have it."""

from collections.abc import Sequence

from dray.api.quantity import Quantity
from dray.api.safe_get import Document, mapping, mappings, part, text, texts
from dray.apiserver.errors import ApiError
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.apiserver.write.admission.chain import CREATE, Admission, AdmissionPlugin, KindOfWrite, forbidden

OTHER_OVERHEAD = "Pod's Overhead doesn't match RuntimeClass's defined Overhead"
UNEXPLAINED_OVERHEAD = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
# Each toleration is compared with each other one.
MOST_COMPARED = 128


class RuntimeClass(AdmissionPlugin):
    name = "RuntimeClass"

    def __init__(self, objects: ObjectLookup) -> None:
        self._objects = objects

    def looks_at(self, write: KindOfWrite) -> bool:
        return write == KindOfWrite(CREATE, "", "pods")

    async def mutate(self, admission: Admission) -> None:
        spec = mapping(admission.document, "spec")
        found = await self._class_of(admission, spec)
        overhead = None if found is None else _overhead(found)
        if overhead is None and spec.get("overhead") == {}:
            raise _rejected(admission, UNEXPLAINED_OVERHEAD)  # what is empty is not kept for the second round
        if found is None:
            return
        if overhead is not None:
            if spec.get("overhead") and not _is_same(spec["overhead"], overhead):
                raise _rejected(admission, OTHER_OVERHEAD)
            spec["overhead"] = dict(overhead)
        if found.get("scheduling"):
            _set_scheduling(admission, spec, found["scheduling"])

    async def validate(self, admission: Admission) -> None:
        """Webhooks and policies may have changed the pod since."""
        spec = mapping(admission.document, "spec")
        if spec.get("runtimeClassName") is None and spec.get("overhead") is None:
            return
        found = await self._class_of(admission, spec)
        overhead = None if found is None else _overhead(found)
        if overhead is None:
            if spec.get("overhead") is not None:
                raise _rejected(admission, UNEXPLAINED_OVERHEAD)
        elif not _is_same(mapping(spec, "overhead"), overhead):
            raise _rejected(admission, OTHER_OVERHEAD)

    async def _class_of(self, admission: Admission, spec: Document) -> Document | None:
        name = spec.get("runtimeClassName")
        if name is None:
            return None
        found = await self._objects.look("node.k8s.io", "runtimeclasses", "", name) if name else None
        if found is None:
            raise _rejected(admission, f'RuntimeClass "{name}" not found')
        return found


def _rejected(admission: Admission, why: str) -> ApiError:
    return forbidden(admission, f"pod rejected: {why}")


def _overhead(runtime_class: Document) -> Document | None:
    return None if runtime_class.get("overhead") is None else mapping(runtime_class, "overhead", "podFixed")


def _is_same(given: Document, defined: Document) -> bool:
    return given.keys() == defined.keys() and all(
        Quantity.parse(given[name]).nanos == Quantity.parse(defined[name]).nanos for name in given
    )


def _set_scheduling(admission: Admission, spec: Document, scheduling: Document) -> None:
    selector, wanted = texts(spec, "nodeSelector"), texts(scheduling, "nodeSelector")
    for key, value in wanted.items():
        if selector.get(key, value) != value:
            why = (
                f"runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise forbidden(admission, f"conflict: {why}")
    if wanted:
        spec["nodeSelector"] = {**selector, **wanted}
    tolerations = _merged(mappings(spec, "tolerations"), mappings(scheduling, "tolerations"))
    if tolerations:
        spec["tolerations"] = tolerations


def _merged(own: Sequence[Document], more: Sequence[Document]) -> list[Document]:
    """Both, without those that another one includes; of equal ones the first."""
    everything = [*own, *map(dict, more)]
    if len(everything) > MOST_COMPARED:
        return everything  # they tolerate the same
    merged: list[Document] = []
    for position, toleration in enumerate(everything):
        later = (other for other in everything[position + 1 :] if other != toleration)
        if not any(_includes(other, toleration) for other in (*merged, *later)):
            merged.append(toleration)
    return merged


def _includes(wide: Document, narrow: Document) -> bool:
    """Whether `wide` tolerates all that `narrow` tolerates."""
    if wide == narrow:
        return True
    key, effect, operator = (text(wide, field) for field in ("key", "effect", "operator"))
    if text(narrow, "key") != key and (key or operator != "Exists"):
        return False
    if effect not in ("", text(narrow, "effect")):
        return False
    if effect == "NoExecute" and not _lasts_as_long(part(wide, "tolerationSeconds"), part(narrow, "tolerationSeconds")):
        return False
    if operator == "Exists":
        return True
    return (
        operator in ("", "Equal")
        and text(narrow, "operator") == "Equal"
        and text(narrow, "value") == text(wide, "value")
    )


def _lasts_as_long(wide: int | None, narrow: int | None) -> bool:
    return wide is None or (narrow is not None and narrow <= wide)
