"""Admin access to devices that others use: only in namespaces an administrator has marked for it.

Claims and templates that ask for it, and the first allocation that grants it. Taking the mark away later changes nothing
about what exists.
"""

from collections.abc import Iterator

from dray.apiserver import errors
from dray.apiserver.admission.base import AdmissionPlugin, concerns, row_of
from dray.apiserver.attributes import CREATE, UPDATE, Admission, Document
from dray.apiserver.errors import OptionError
from dray.apiserver.objects import Objects
from dray.apiserver.parts import labels_of, mapping, mappings, part
from dray.features import FeatureGates

LABEL = "resource.kubernetes.io/admin-access"
GROUP = "resource.k8s.io"
WHY = f"Forbidden: admin access to devices requires the `{LABEL}: true` label on the containing namespace"


class AdminAccess(AdmissionPlugin):
    name = "DRAAdminAccess"

    def __init__(self, objects: Objects, gates: FeatureGates) -> None:
        self._objects = objects
        self._is_on = gates.enabled("DRAAdminAccess")

    async def validate(self, admission: Admission) -> None:
        if not self._is_on or admission.attributes.group != GROUP or admission.document is None:
            return
        fields = list(self._fields(admission))
        if not fields:
            return
        namespace = await self._objects.get("", "namespaces", "", admission.attributes.namespace)
        if labels_of(namespace).get(LABEL) == "true":
            return
        found = [OptionError("Forbidden", field, WHY) for field in fields]
        raise errors.invalid_object(row_of(admission.attributes), admission.name, found)

    def _fields(self, admission: Admission) -> Iterator[str]:
        document = admission.document
        if admission.operation == CREATE and concerns(admission, GROUP, "resourceclaims"):
            yield from _requests(mapping(document, "spec"))
        elif admission.operation == CREATE and concerns(admission, GROUP, "resourceclaimtemplates"):
            yield from _requests(mapping(document, "spec", "spec"))
        elif (
            admission.operation == UPDATE
            and concerns(admission, GROUP, "resourceclaims", "status")
            and not list(_results(admission.old))
        ):
            yield from _results(document)


def _requests(spec: Document) -> Iterator[str]:
    """Paths as Kubernetes reports them: without `exactly`, and for templates without the second `spec`."""
    for index, request in enumerate(mappings(spec, "devices", "requests")):
        if part(request, "exactly", "adminAccess") is True:
            yield f"spec.devices.requests[{index}].adminAccess"


def _results(claim: Document | None) -> Iterator[str]:
    for index, result in enumerate(mappings(claim, "status", "allocation", "devices", "results")):
        if result.get("adminAccess") is True:
            yield f"status.allocation.devices.results[{index}].adminAccess"
