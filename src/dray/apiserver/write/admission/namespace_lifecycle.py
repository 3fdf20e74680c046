"""Nothing is created in a namespace that is missing or on its way out; some namespaces are here to stay."""

from dray.api.scheme import by_kind
from dray.apiserver import errors
from dray.apiserver.read.object_reader import Objects
from dray.apiserver.safe_get import (
    mapping,
    text,
)
from dray.apiserver.write.admission.chain import CREATE, DELETE, Admission, AdmissionPlugin, concerns, forbidden, row_of

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
# Questions about a namespace are fine even if there is no such namespace.
REVIEWS = frozenset({"localsubjectaccessreviews"})


class NamespaceLifecycle(AdmissionPlugin):
    name = "NamespaceLifecycle"

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def mutate(self, admission: Admission) -> None:
        attributes = admission.attributes
        if admission.operation == DELETE and concerns(admission, "", "namespaces") and admission.name in IMMORTAL:
            raise forbidden(admission, "this namespace may not be deleted")
        if admission.operation != CREATE or not attributes.namespace or attributes.resource in REVIEWS:
            return
        if attributes.resource == "namespaces":
            return
        namespace = await self._objects.get("", "namespaces", "", attributes.namespace)
        if namespace is None:
            raise errors.not_found(by_kind("Namespace"), attributes.namespace)
        # Events may still tell what happened while it ends; everything else is new content.
        if text(namespace, "status", "phase") == "Terminating" or mapping(namespace, "metadata").get(
            "deletionTimestamp"
        ):
            raise _terminating(admission)


def _terminating(admission: Admission) -> errors.ApiError:
    namespace = admission.attributes.namespace
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return errors.forbidden(row_of(admission.attributes), admission.name, why, [cause])
