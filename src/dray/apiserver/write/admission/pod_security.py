"""PodSecurity: what the labels of a namespace let its pods ask for (`dray.validation.pod_security` has the rules).

A pod is refused, noted in the log and warned about, as the labels say. Workloads are never refused: whoever makes one is warned of what will become
of its pods. Labels that cannot be read are refused when they are written.
"""

from collections.abc import Sequence
from itertools import islice

from dray.api.safe_get import Document, labels_of, mappings, part, text
from dray.apiserver import errors
from dray.apiserver.core import in_thread, in_thread_if_large
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
