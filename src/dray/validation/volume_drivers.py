"""Rules for the kinds by which CSI drivers, schedulers and kubelets agree on volumes: CSIDriver, CSINode, CSIStorageCapacity, VolumeAttachment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.api import names
from dray.api.names import byte_length
from dray.api.quantity import Quantity
from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE, NEGATIVE, check_driver, check_not_negative
from dray.validation.label_selectors import check_label_selector
from dray.validation.persistent_volumes import check_inline_spec

GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
LIFECYCLE_MODES = ("Persistent", "Ephemeral")
SHORTEST_UPDATE_PERIOD_S = 10
SHORTEST_TOKEN_S, LONGEST_TOKEN_S = 600, 1 << 32
MAX_NODE_ID = 256
MAX_ATTACHMENT_METADATA = 256 * 1024
MAX_VOLUME_ERROR = 1024


# --- CSIDriver -------------------------------------------------------------------------------------------------------


def check_csi_driver(new: Document, old: Document | None, errors: Errors) -> None:
    """What an earlier version took may stay."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    if old is not None and spec == before:
        return
    if (policy := spec.get("fsGroupPolicy")) is not None and policy not in GROUP_POLICIES:
        errors.not_supported("spec.fsGroupPolicy", policy, GROUP_POLICIES)
    tokens = spec.get("tokenRequests") or []
    _check_tokens(tokens, errors)
    for mode in spec.get("volumeLifecycleModes") or ():
        if mode not in LIFECYCLE_MODES:
            errors.not_supported("spec.volumeLifecycleModes", mode, LIFECYCLE_MODES)
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < SHORTEST_UPDATE_PERIOD_S:
        detail = f"must be greater than or equal to {SHORTEST_UPDATE_PERIOD_S} seconds"
        errors.invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, detail)
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not tokens:
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errors.invalid("spec.serviceAccountTokenInSecrets", in_secrets, detail)
    if old is not None:
        _check_driver_kept(spec, before, errors)


def _check_tokens(tokens: Sequence[Document], errors: Errors) -> None:
    known: set[str] = set()
    for i, token in enumerate(tokens):
        path, audience, lifetime_s = (
            f"spec.tokenRequests[{i}]",
            token.get("audience") or "",
            token.get("expirationSeconds"),
        )
        if audience in known:
            errors.duplicate(f"{path}.audience", audience)
            continue
        known.add(audience)
        if lifetime_s is None:
            continue
        if lifetime_s < SHORTEST_TOKEN_S:
            errors.invalid(f"{path}.expirationSeconds", lifetime_s, "may not specify a duration less than 10 minutes")
        if lifetime_s > LONGEST_TOKEN_S:
            detail = "may not specify a duration larger than 2^32 seconds"
            errors.invalid(f"{path}.expirationSeconds", lifetime_s, detail)


def _check_driver_kept(spec: Document, before: Document, errors: Errors) -> None:
    # Kubernetes spells the first path in this way.
    for field, path in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")):
        if field in before and spec.get(field) != before[field]:
            errors.invalid(f"spec.{path}", spec.get(field), IMMUTABLE)


# --- CSINode ---------------------------------------------------------------------------------------------------------


def check_csi_node(new: Document, old: Document | None, errors: Errors) -> None:
    drivers = (new.get("spec") or {}).get("drivers") or []
    before = ((old or {}).get("spec") or {}).get("drivers") or []
    if old is not None and drivers == before:
        return
    known: set[str] = set()
    for i, driver in enumerate(drivers):
        _check_node_driver(driver, f"spec.drivers[{i}]", known, errors)
    fixed = {driver.get("name"): _fixed_fields(driver) for driver in before}
    for driver in drivers:
        fields = _fixed_fields(driver)
        if fixed.get(driver.get("name"), fields) != fields:
            errors.invalid("spec.drivers", fields, IMMUTABLE)


def _check_node_driver(driver: Document, path: str, known: set[str], errors: Errors) -> None:
    name, node = driver.get("name") or "", driver.get("nodeID") or ""
    check_driver(name, f"{path}.name", errors)
    if not node:
        errors.required(f"{path}.nodeID")
    elif byte_length(node) > MAX_NODE_ID:
        errors.invalid(f"{path}.nodeID", node, f"must be {MAX_NODE_ID} characters or less")
    check_not_negative(driver.get("allocatable") or {}, f"{path}.allocatable", ("count",), errors)
    if name in known:
        errors.duplicate(f"{path}.name", name)
    known.add(name)
    keys: set[str] = set()
    for key in driver.get("topologyKeys") or ():
        if not key:
            errors.required(path)
        if key in keys:
            errors.duplicate(path, key)
        keys.add(key)
        errors.each_invalid(path, key, names.qualified_name_problems(key))


def _fixed_fields(driver: Document) -> Document:
    """What cannot change while the driver is on the node, printed as Go prints it."""
    keys = driver.get("topologyKeys") or None
    shown = {"Name": driver.get("name") or "", "NodeID": driver.get("nodeID") or "", "TopologyKeys": keys}
    return {**shown, "Allocatable": None}


# --- CSIStorageCapacity ----------------------------------------------------------------------------------------------


def check_storage_capacity(new: Document, old: Document | None, errors: Errors) -> None:
    topology, storage_class = new.get("nodeTopology"), new.get("storageClassName") or ""
    if topology is not None and (old is None or topology != old.get("nodeTopology")):
        check_label_selector(topology, "nodeTopology", errors)
    if old is None or storage_class != (old.get("storageClassName") or ""):
        errors.each_invalid("storageClassName", storage_class, names.subdomain_problems(storage_class))
    amount = new.get("capacity")
    if amount is not None and Quantity.parse(amount).nanos < 0:
        errors.invalid("capacity", amount, NEGATIVE)
    if old is None:
        return
    if (topology or None) != (old.get("nodeTopology") or None):
        errors.invalid("nodeTopology", topology, IMMUTABLE)
    if storage_class != (old.get("storageClassName") or ""):
        errors.invalid("storageClassName", storage_class, IMMUTABLE)


# --- VolumeAttachment ------------------------------------------------------------------------------------------------


def check_attachment(new: Document, old: Document | None, errors: Errors) -> None:
    spec = new.get("spec") or {}
    if old is None:
        check_driver(spec.get("attacher") or "", "spec.attacher", errors, declarative=True)
    elif spec == (old.get("spec") or {}):
        return
    else:
        errors.invalid("spec", None, IMMUTABLE, declarative=True)
    source, node = spec.get("source") or {}, spec.get("nodeName") or ""
    _check_source(source, errors)
    errors.each_invalid("spec.nodeName", node, names.subdomain_problems(node))
    if (volume := source.get("persistentVolumeName")) is not None:
        errors.each_invalid("spec.source.persistentVolumeName", volume, names.subdomain_problems(volume))


def _check_source(source: Document, errors: Errors) -> None:
    path, rule = "spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    volume, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if volume is None and inline is None:
        errors.required(path, rule)
    elif volume is not None and inline is not None:
        errors.forbidden(path, rule)
    elif volume is not None and not volume:
        errors.required(f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName")
    elif inline is not None:
        check_inline_spec(inline, f"{path}.inlineVolumeSpec", errors)


def check_attachment_status(new: Document, old: Document, errors: Errors) -> None:
    status = new.get("status") or {}
    metadata = status.get("attachmentMetadata") or {}
    if sum(byte_length(key) + byte_length(value) for key, value in metadata.items()) > MAX_ATTACHMENT_METADATA:
        errors.too_long("status.attachmentMetadata", MAX_ATTACHMENT_METADATA)
    for field in ("attachError", "detachError"):
        _check_volume_error(status.get(field) or {}, f"status.{field}", errors)


def _check_volume_error(error: dict[str, Any], path: str, errors: Errors) -> None:
    if byte_length(error.get("message") or "") > MAX_VOLUME_ERROR:
        errors.too_long(f"{path}.message", MAX_VOLUME_ERROR)
    if (code := error.get("errorCode")) is not None and code < 0:
        errors.invalid(f"{path}.errorCode", code, "must be between 0 and 2147483647, inclusive")
