"""Rules for status updates of a ResourceClaim: the allocation, its users, and what drivers report about devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dray.api.dra.claim_users import MAX_USERS
from dray.api.names import byte_length
from dray.validation.claims import check_admin_access, check_configs, check_tolerations
from dray.validation.conditions import check_conditions
from dray.validation.devices import check_binding_conditions
from dray.validation.equality import same
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import (
    RequestNames,
    check_driver,
    check_enum,
    check_interface_address,
    check_label,
    check_pool,
    check_raw_object,
    check_reference,
    check_unique,
    check_uuid,
)
from dray.validation.node_selector import check_node_selector
from dray.validation.slices import check_skipped_operations

MAX_RESULTS = 32
MAX_ALLOCATION_CONFIGS = 64
MAX_DEVICE_CONDITIONS = 8
MAX_IPS = 16
MAX_INTERFACE_NAME = 256
MAX_HARDWARE_ADDRESS = 128
CONFIG_SOURCES = ("FromClaim", "FromClass")

DeviceKey = tuple[str, str, str, str | None]


def check_claim_status(new: Document, old: Document, context: ValidationContext, errors: Errors) -> None:
    status, before = new.get("status") or {}, old.get("status") or {}
    allocation, old_allocation = status.get("allocation"), before.get("allocation")
    check_admin_access(_admin_results(allocation, old_allocation), context, errors)
    _check_reserved_for(status.get("reservedFor") or [], errors)
    allocated = {device_key(result) for result in results_of(allocation)}
    _check_device_statuses(status.get("devices") or [], allocated, "status.devices", errors)
    _check_reservations_allowed(new, status, before, errors)
    if allocation is None or same(allocation, old_allocation):
        return
    if old_allocation is not None:
        errors.invalid("status.allocation", None, "field cannot be modified once set", declarative=True)
    else:
        requests = ((new.get("spec") or {}).get("devices") or {}).get("requests") or []
        _check_allocation(allocation, RequestNames(requests), errors)


def results_of(allocation: Document | None) -> list[Document]:
    return ((allocation or {}).get("devices") or {}).get("results") or []


def device_key(holder: Document) -> DeviceKey:
    share = holder.get("shareID")
    return holder.get("driver") or "", holder.get("pool") or "", holder.get("device") or "", share


def _admin_results(allocation: Document | None, old: Document | None) -> Iterable[str]:
    """Admin access that was granted cannot be taken back."""
    if any(result.get("adminAccess") for result in results_of(old)):
        return
    for i, result in enumerate(results_of(allocation)):
        if result.get("adminAccess"):
            yield f"status.allocation.devices.results[{i}].adminAccess"


# --- reservedFor -----------------------------------------------------------------------------------------------------


def _check_reserved_for(users: list[Document], errors: Errors) -> None:
    path = "status.reservedFor"
    if len(users) > MAX_USERS:
        errors.too_many(path, len(users), MAX_USERS, declarative=True)
        return
    for i, user in enumerate(users):
        for field in ("resource", "name", "uid"):
            if not user.get(field):
                errors.required(f"{path}[{i}].{field}")
    check_unique(users, lambda user: user.get("uid") or "", path, errors, declarative=True)


def _check_reservations_allowed(new: Document, status: Document, before: Document, errors: Errors) -> None:
    users = status.get("reservedFor") or []
    if not users:
        return
    if status.get("allocation") is None:
        errors.forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    elif (new.get("metadata") or {}).get("deletionTimestamp"):
        known = before.get("reservedFor") or []
        if any(not any(same(user, other) for other in known) for user in users):
            detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            errors.forbidden("status.reservedFor", detail)


# --- devices ---------------------------------------------------------------------------------------------------------


def _check_device_statuses(statuses: list[Document], allocated: set[DeviceKey], path: str, errors: Errors) -> None:
    check_unique(statuses, device_key, path, errors, declarative=True)
    for i, status in enumerate(statuses):
        _check_device_status(status, allocated, f"{path}[{i}]", errors)


def _check_device_status(status: Document, allocated: set[DeviceKey], path: str, errors: Errors) -> None:
    check_driver(status.get("driver") or "", f"{path}.driver", errors)
    check_pool(status.get("pool") or "", f"{path}.pool", errors)
    check_label(status.get("device") or "", f"{path}.device", errors)
    if (share := status.get("shareID")) is not None:
        check_uuid(share, f"{path}.shareID", errors)
    if device_key(status) not in allocated:
        named = dict(zip(("Driver", "Pool", "Device", "ShareID"), device_key(status), strict=True))
        errors.invalid(path, named | {"ShareID": share or ""}, "must be an allocated device in the claim")
    check_conditions(status.get("conditions") or [], MAX_DEVICE_CONDITIONS, f"{path}.conditions", errors)
    if (data := status.get("data")) is not None:
        check_raw_object(data, f"{path}.data", errors)
    if network := status.get("networkData"):
        _check_network_data(network, f"{path}.networkData", errors)


def _check_network_data(network: Document, path: str, errors: Errors) -> None:
    for field, limit in (("interfaceName", MAX_INTERFACE_NAME), ("hardwareAddress", MAX_HARDWARE_ADDRESS)):
        if byte_length(network.get(field) or "") > limit:
            errors.too_long(f"{path}.{field}", limit, declarative=True)
    addresses = network.get("ips") or []
    if len(addresses) > MAX_IPS:
        errors.too_many(f"{path}.ips", len(addresses), MAX_IPS, declarative=True)
        return
    for i, address in enumerate(addresses):
        check_interface_address(address, f"{path}.ips[{i}]", errors)
    check_unique(addresses, _itself, f"{path}.ips", errors, declarative=True)


def _itself(value: Any) -> Any:
    return value


# --- allocation ------------------------------------------------------------------------------------------------------


def _check_allocation(allocation: Document, known: RequestNames, errors: Errors) -> None:
    devices = allocation.get("devices") or {}
    path = "status.allocation.devices"
    results = devices.get("results") or []
    if len(results) > MAX_RESULTS:
        errors.too_many(f"{path}.results", len(results), MAX_RESULTS, declarative=True)
    else:
        for i, result in enumerate(results):
            _check_result(result, known, f"{path}.results[{i}]", errors)
    configs = devices.get("config") or []
    check_configs(configs, MAX_ALLOCATION_CONFIGS, known, f"{path}.config", errors)
    if len(configs) <= MAX_ALLOCATION_CONFIGS:
        for i, config in enumerate(configs):
            source = config.get("source") or ""
            check_enum(source, CONFIG_SOURCES, f"{path}.config[{i}].source", errors, required=True)
    if (selector := allocation.get("nodeSelector")) is not None:
        check_node_selector(selector, "status.allocation.nodeSelector", errors)


def _check_result(result: Document, known: RequestNames, path: str, errors: Errors) -> None:
    check_reference(result.get("request") or "", known, f"{path}.request", errors)
    check_driver(result.get("driver") or "", f"{path}.driver", errors, declarative=True)
    check_pool(result.get("pool") or "", f"{path}.pool", errors, declarative=True)
    check_label(result.get("device") or "", f"{path}.device", errors)
    conditions, failures = result.get("bindingConditions") or [], result.get("bindingFailureConditions") or []
    if conditions or failures:
        check_binding_conditions(conditions, failures, path, errors)
    check_tolerations(result.get("tolerations") or [], f"{path}.tolerations", errors)
    if (share := result.get("shareID")) is not None:
        check_uuid(share, f"{path}.shareID", errors)
    check_skipped_operations(result.get("skipNodeOperations") or [], [], f"{path}.skipNodeOperations", errors)
