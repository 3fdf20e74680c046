"""The plugins that decide with which rights and in which runtime a pod's containers may run.

PodSecurity: what the labels of a namespace let its pods ask for (`dray.validation.pod_security` has the rules). A pod is refused, noted in the log
and warned about, as the labels say. Workloads are never refused: whoever makes one is warned of what will become of its pods. Labels that cannot be
read are refused when they are written.

RuntimeClass: a pod's runtime must be defined; its class says what the runtime itself takes from a node, and which nodes have it.
"""

from collections.abc import Sequence
from itertools import islice

from dray.api.quantity import Quantity
from dray.api.safe_get import Document, labels_of, mapping, mappings, part, text, texts
from dray.apiserver import errors
from dray.apiserver.core import in_thread, in_thread_if_large
from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import add_warning
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.apiserver.watch.stored_object import Stored
from dray.apiserver.write.admission.chain import (
    CREATE,
    UPDATE,
    Admission,
    AdmissionPlugin,
    KindOfWrite,
    forbidden,
    log_for_audit,
    row_of,
)
from dray.features import FeatureGates
from dray.validation.pod_security.levels import (
    NEWEST,
    POLICY_LABELS,
    PREFIX,
    PRIVILEGED,
    LevelVersion,
    NamespaceLevels,
    namespace_levels,
)

NAMESPACES, PODS = ("", "namespaces"), ("", "pods")
# Where the kinds that make pods have their template.
TEMPLATES: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "replicationcontrollers"): ("spec", "template"),
    ("", "podtemplates"): ("template",),
    ("apps", "replicasets"): ("spec", "template"),
    ("apps", "deployments"): ("spec", "template"),
    ("apps", "statefulsets"): ("spec", "template"),
    ("apps", "daemonsets"): ("spec", "template"),
    ("batch", "jobs"): ("spec", "template"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
}
# The others write a whole pod.
UNCHECKED_SUBRESOURCES = frozenset(
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"],
)
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
# The work on a container, as if it were so many bytes of a request.
WORK_OF_A_CONTAINER = 512
# Of the pods of a namespace so many are read when its labels change.
MOST_READ = 10_000


class PodSecurity(AdmissionPlugin):
    name = "PodSecurity"

    def __init__(self, objects: ObjectLookup, gates: FeatureGates) -> None:
        self._objects = objects
        self._newest = min(NEWEST, int(gates.release.partition(".")[2])) if gates.release else NEWEST

    def looks_at(self, write: KindOfWrite) -> bool:
        kind = (write.group, write.resource)
        if write.operation not in (CREATE, UPDATE):
            return False
        if kind == PODS:
            return write.subresource not in UNCHECKED_SUBRESOURCES
        return not write.subresource and (kind == NAMESPACES or kind in TEMPLATES)

    async def validate(self, admission: Admission) -> None:
        attributes = admission.attributes
        kind = (attributes.group, attributes.resource)
        if kind == NAMESPACES:
            await self._check_labels(admission)
            return
        namespace = await self._objects.look("", "namespaces", "", attributes.namespace)
        labels = labels_of(namespace)
        if POLICY_LABELS.isdisjoint(labels):
            return
        levels, _ = namespace_levels(labels)
        if kind == PODS:
            if admission.old is None or _asks_for_more(admission.document, admission.old):
                await self._check_pod(admission, levels, admission.document)
        else:
            await self._check_pod(admission, levels, part(admission.document, *TEMPLATES[kind]), is_template=True)

    async def _check_pod(
        self, admission: Admission, levels: NamespaceLevels, pod: Document | None, *, is_template: bool = False
    ) -> None:
        if pod is None:
            return
        # Most clusters have no such labels.
        from dray.validation.pod_security.evaluation import violations

        def found(asked: LevelVersion) -> str:
            if asked.level == PRIVILEGED:
                return ""
            details = violations(pod, asked, self._newest).details
            return details and f'violate PodSecurity "{asked}": {details}'

        size = sum(len(mappings(pod, "spec", field)) for field in CONTAINERS) * WORK_OF_A_CONTAINER
        enforced, noted, warned = await in_thread_if_large(
            size,
            lambda: ("" if is_template else found(levels.enforce), found(levels.audit), found(levels.warn)),
        )
        if noted:
            log_for_audit(admission, f"{PREFIX}audit-violations: would {noted}")
        if enforced:
            raise forbidden(admission, enforced.replace("violate", "violates", 1))
        if warned:
            add_warning(admission.warnings, f"would {warned}")

    # --- namespaces

    async def _check_labels(self, admission: Admission) -> None:
        labels = labels_of(admission.document)
        before = labels_of(admission.old)
        if all(labels.get(label) == before.get(label) for label in POLICY_LABELS):
            return
        levels, problems = namespace_levels(labels)
        old_levels, old_problems = namespace_levels(before)
        if problems and problems != old_problems:
            raise errors.invalid_object(row_of(admission), admission.name, problems)
        if admission.old is not None and _is_tighter(levels.enforce, old_levels.enforce):
            await self._warn_about_pods(admission, levels.enforce)

    async def _warn_about_pods(self, admission: Admission, asked: LevelVersion) -> None:
        pods = await self._objects.stored("", "pods", admission.name)
        if pods:
            for warning in await in_thread(self._pod_warnings, pods, admission.name, asked):
                add_warning(admission.warnings, warning)

    def _pod_warnings(self, pods: Sequence[Stored], namespace: str, asked: LevelVersion) -> list[str]:
        from dray.validation.pod_security.evaluation import warnings_about_pods

        read = (stored.document() for stored in islice(pods, MOST_READ))
        return warnings_about_pods(read, len(pods), namespace, asked, self._newest)


def _is_tighter(new: LevelVersion, old: LevelVersion) -> bool:
    if new.level == PRIVILEGED or new == old:
        return False
    return new.minor != old.minor or new.is_stricter_than(old)


def _asks_for_more(new: Document | None, old: Document) -> bool:
    """Of what the rules look at, an update can only change images, and add containers."""
    return any(_images(new, field) != _images(old, field) for field in CONTAINERS[:2]) or bool(
        set(_images(new, CONTAINERS[2])) - set(_images(old, CONTAINERS[2]))
    )


def _images(pod: Document | None, field: str) -> list[tuple[str, str]]:
    return [(text(container, "name"), text(container, "image")) for container in mappings(pod, "spec", field)]


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
