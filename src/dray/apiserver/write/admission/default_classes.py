"""Classes of volumes and ingresses: DefaultStorageClass, PersistentVolumeClaimResize and DefaultIngressClass."""

from dray.api.quantity import Quantity
from dray.api.safe_get import Document, mapping, name_of, part, text, texts
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.apiserver.write.admission.chain import CREATE, UPDATE, Admission, AdmissionPlugin, forbidden

STORAGE, NETWORKING = "storage.k8s.io", "networking.k8s.io"
DEFAULT_STORAGE_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
DEFAULT_INGRESS_CLASS = ("ingressclass.kubernetes.io/is-default-class",)
VOLUME_CLAIMS = frozenset({("", "persistentvolumeclaims")})
# How objects named their class before there were fields for it.
CLASS_OF_VOLUME_CLAIM = "volume.beta.kubernetes.io/storage-class"
CLASS_OF_INGRESS = "kubernetes.io/ingress.class"


async def _default_class(objects: ObjectLookup, group: str, plural: str, marks: tuple[str, ...]) -> str:
    """The newest of the classes that are marked as the default; of those made at the same time the first by name."""
    found = [
        entry
        for entry in await objects.look_at_all(group, plural)
        if any(_annotations(entry).get(mark) == "true" for mark in marks)
    ]
    found.sort(key=name_of)
    found.sort(key=lambda entry: text(entry, "metadata", "creationTimestamp"), reverse=True)
    return name_of(found[0]) if found else ""


def _annotations(document: Document | None) -> dict[str, str]:
    return texts(document, "metadata", "annotations")


class DefaultStorageClass(AdmissionPlugin):
    name = "DefaultStorageClass"
    resources = VOLUME_CLAIMS

    def __init__(self, objects: ObjectLookup) -> None:
        self._objects = objects

    async def mutate(self, admission: Admission) -> None:
        if admission.operation != CREATE or admission.attributes.subresource:
            return
        spec = mapping(admission.document, "spec")
        if spec.get("storageClassName") is not None or CLASS_OF_VOLUME_CLAIM in _annotations(admission.document):
            return
        found = await _default_class(self._objects, STORAGE, "storageclasses", DEFAULT_STORAGE_CLASS)
        if found:
            spec["storageClassName"] = found


class PersistentVolumeClaimResize(AdmissionPlugin):
    name = "PersistentVolumeClaimResize"
    resources = VOLUME_CLAIMS

    def __init__(self, objects: ObjectLookup) -> None:
        self._objects = objects

    async def validate(self, admission: Admission) -> None:
        if admission.operation != UPDATE or admission.attributes.subresource:
            return
        if _size(admission.document) <= _size(admission.old):
            return
        if text(admission.old, "status", "phase") != "Bound":
            raise forbidden(admission, "Only bound persistent volume claims can be expanded")
        storage_class = _class_of(admission.document)
        if storage_class and storage_class == _class_of(admission.old):
            found = await self._objects.look(STORAGE, "storageclasses", "", storage_class)
            if part(found, "allowVolumeExpansion") is True:
                return
        why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
        raise forbidden(admission, why)


def _size(claim: Document | None) -> int:
    return Quantity.parse(part(claim, "spec", "resources", "requests", "storage") or "0").nanos


def _class_of(claim: Document | None) -> str:
    return _annotations(claim).get(CLASS_OF_VOLUME_CLAIM, text(claim, "spec", "storageClassName"))


class DefaultIngressClass(AdmissionPlugin):
    name = "DefaultIngressClass"
    resources = frozenset({(NETWORKING, "ingresses")})

    def __init__(self, objects: ObjectLookup) -> None:
        self._objects = objects

    async def mutate(self, admission: Admission) -> None:
        if admission.operation != CREATE or admission.attributes.subresource:
            return
        spec = mapping(admission.document, "spec")
        if spec.get("ingressClassName") is not None or CLASS_OF_INGRESS in _annotations(admission.document):
            return
        found = await _default_class(self._objects, NETWORKING, "ingressclasses", DEFAULT_INGRESS_CLASS)
        if found and admission.document is not None:
            admission.document["spec"] = {**spec, "ingressClassName": found}
