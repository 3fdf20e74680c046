"""Rules for PersistentVolumes, which Dray stores for those who provision and mount them."""

from __future__ import annotations

from dray.api import names
from dray.api.quantity import Quantity
from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE
from dray.validation.volumes import ACCESS_MODES, VOLUME_MODES

RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
# In the order in which the first one counts, each with the fields that it needs.
SOURCES: dict[str, tuple[str, ...]] = {
    "hostPath": ("path",),
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "glusterfs": ("endpoints", "path"),
    "flocker": (),
    "nfs": ("server", "path"),
    "rbd": (),
    "quobyte": (),
    "cephfs": (),
    "iscsi": ("targetPortal", "iqn"),
    "cinder": ("volumeID",),
    "fc": (),
    "flexVolume": ("driver",),
    "azureFile": ("secretName", "shareName"),
    "vsphereVolume": ("volumePath",),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "azureDisk": (),
    "scaleIO": (),
    "local": ("path",),
    "storageos": (),
    "csi": ("driver", "volumeHandle"),
}
HOST_PATH_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip


def check_volume(new: Document, old: Document | None, errors: Errors) -> None:
    """What an earlier version took may stay; the place of the data and the mode of a volume always do."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    if old is None or spec != before:
        _check_spec(spec, errors)
    if old is None:
        return
    if {name: spec.get(name) for name in SOURCES} != {name: before.get(name) for name in SOURCES}:
        errors.forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation")
    if spec.get("volumeMode") != before.get("volumeMode"):
        errors.invalid("volumeMode", spec.get("volumeMode"), IMMUTABLE)


def _check_spec(spec: Document, errors: Errors) -> None:
    _check_access_modes(spec.get("accessModes") or [], "spec.accessModes", errors)
    _check_capacity(spec.get("capacity"), errors)
    policy = spec.get("persistentVolumeReclaimPolicy")
    if policy and policy not in RECLAIM_POLICIES:
        errors.not_supported("spec.persistentVolumeReclaimPolicy", policy, RECLAIM_POLICIES)
    affinity = spec.get("nodeAffinity")
    if affinity is not None and affinity.get("required") is None:
        errors.required("spec.nodeAffinity.required", "must specify required node constraints")
    _check_source(spec, "spec", errors)
    if name := spec.get("storageClassName"):
        errors.each_invalid("spec.storageClassName", name, names.subdomain_problems(name))
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        errors.not_supported("spec.volumeMode", mode, VOLUME_MODES)
    _check_attributes_class(spec, errors)


def _check_attributes_class(spec: Document, errors: Errors) -> None:
    path, name = "spec.volumeAttributesClassName", spec.get("volumeAttributesClassName")
    if name is None:
        return
    if name:
        errors.each_invalid(path, name, names.subdomain_problems(name))
    else:
        errors.required(path, "an empty string is disallowed")
    if spec.get("csi") is None:
        errors.required("spec.csi", "has to be specified when using volumeAttributesClassName")


def check_inline_spec(spec: Document, path: str, errors: Errors) -> None:
    """A volume that a pod brings along, written as the spec of a PersistentVolume."""
    inline = "in the context of inline volumes"
    for field in ("claimRef", "capacity", "nodeAffinity", "storageClassName"):
        if spec.get(field):
            errors.forbidden(f"{path}.{field}", f"may not be specified {inline}")
    if spec.get("csi") is None:
        errors.required(f"{path}.csi", f"has to be specified {inline}")
    _check_access_modes(spec.get("accessModes") or [], f"{path}.accessModes", errors)
    if spec.get("persistentVolumeReclaimPolicy") not in (None, "", "Retain"):
        errors.forbidden(f"{path}.persistentVolumeReclaimPolicy", f"may only be Retain {inline}")
    _check_source(spec, path, errors)
    if spec.get("volumeMode") not in (None, "Filesystem"):
        errors.forbidden(f"{path}.volumeMode", f"may not specify volumeMode other than Filesystem {inline}")


def _check_access_modes(modes: list[str], path: str, errors: Errors) -> None:
    if not modes:
        errors.required(path)
    for mode in modes:
        if mode not in ACCESS_MODES:
            errors.not_supported(path, mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES and mode != "ReadWriteOncePod" for mode in modes):
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _check_capacity(capacity: Document | None, errors: Errors) -> None:
    path = "spec.capacity"
    if not capacity:
        errors.required(path)
    if not capacity or "storage" not in capacity or len(capacity) > 1:
        errors.not_supported(path, capacity, ("storage",))
    for name, amount in (capacity or {}).items():
        nanos = Quantity.parse(amount).nanos
        if nanos < 0:
            errors.invalid(f"{path}[{name}]", nanos // 10**9, "must be a valid resource quantity")
        if nanos <= 0:
            errors.invalid(f"{path}[{name}]", amount, "must be greater than zero")


def _check_source(spec: Document, path: str, errors: Errors) -> None:
    said = [name for name in SOURCES if spec.get(name) is not None]
    if not said:
        errors.required(path, "must specify a volume type")
        return
    for name in said[1:]:
        errors.forbidden(f"{path}.{name}", "may not specify more than 1 volume type")
    chosen, source = said[0], spec[said[0]]
    for field in SOURCES[chosen]:
        if not source.get(field):
            errors.required(f"{path}.{chosen}.{field}")
    if chosen == "hostPath" and (kind := source.get("type") or "") not in HOST_PATH_TYPES:
        errors.not_supported(f"{path}.hostPath.type", kind, HOST_PATH_TYPES)
    if chosen == "local" and not (spec.get("nodeAffinity") or {}).get("required"):
        errors.required(f"{path}.nodeAffinity", "Local volume requires node affinity")
