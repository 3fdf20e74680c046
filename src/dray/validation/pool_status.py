"""Rules for ResourcePoolStatusRequest. Its spec never changes, and its status is written once."""

from __future__ import annotations

from dray.api import names
from dray.api.names import MAX_POOL, byte_length
from dray.validation.conditions import check_conditions
from dray.validation.equality import same
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import IMMUTABLE, check_full_name, check_unique

MIN_LIMIT, MAX_LIMIT = 1, 1000
MAX_POOLS = 1000
MAX_CONDITIONS = 10
MAX_VALIDATION_ERROR = 256
MAX_SUMMARIES = 32
_COUNTS = ("totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices")


def check_request(document: Document, context: ValidationContext, errors: Errors) -> None:
    spec = document.get("spec") or {}
    _check_driver(spec.get("driver") or "", "spec.driver", errors)
    if (pool := spec.get("poolName")) is not None:
        _check_pool_name(pool, "spec.poolName", errors)
    if (limit := spec.get("limit")) is not None:
        _check_at_least(limit, MIN_LIMIT, "spec.limit", errors)
        if limit > MAX_LIMIT:
            detail = f"must be less than or equal to {MAX_LIMIT}"
            errors.invalid("spec.limit", limit, detail, declarative=True)
    if (name := spec.get("defaultPartitionTypeAttribute")) is not None:
        if not context.enabled("DRAPartitionableDevicesType"):
            errors.forbidden("spec.defaultPartitionTypeAttribute", "requires DRAPartitionableDevicesType")
        check_full_name(name, "spec.defaultPartitionTypeAttribute", errors)


def check_request_update(new: Document, old: Document, errors: Errors) -> None:
    if not same(new.get("spec"), old.get("spec")):
        errors.invalid("spec", None, IMMUTABLE, declarative=True)


def check_request_status(new: Document, old: Document, errors: Errors) -> None:
    status, before = new.get("status"), old.get("status")
    if before is not None:
        if not same(status, before):
            errors.invalid("status", status, IMMUTABLE, declarative=True)
        return
    if status is not None:
        _check_answer(status, errors)


def _check_answer(status: Document, errors: Errors) -> None:
    if (count := status.get("poolCount")) is None:
        errors.required("status.poolCount", declarative=True)
    else:
        _check_at_least(count, 0, "status.poolCount", errors)
    pools = status.get("pools") or []
    if len(pools) > MAX_POOLS:
        errors.too_many("status.pools", len(pools), MAX_POOLS, declarative=True)
    else:
        for i, pool in enumerate(pools):
            _check_pool(pool, f"status.pools[{i}]", errors)
    check_conditions(status.get("conditions") or [], MAX_CONDITIONS, "status.conditions", errors)


def _check_pool(pool: Document, path: str, errors: Errors) -> None:
    _check_driver(pool.get("driver") or "", f"{path}.driver", errors)
    name = pool.get("poolName") or ""
    if not name:
        errors.required(f"{path}.poolName", declarative=True)
    else:
        _check_pool_name(name, f"{path}.poolName", errors)
    if not (generation := pool.get("generation") or 0):
        errors.required(f"{path}.generation", declarative=True)
    else:
        _check_at_least(generation, 0, f"{path}.generation", errors)
    if (count := pool.get("resourceSliceCount")) is not None:
        _check_at_least(count, 1, f"{path}.resourceSliceCount", errors)
    for field in _COUNTS:
        if (count := pool.get(field)) is not None:
            _check_at_least(count, 0, f"{path}.{field}", errors)
    if (node := pool.get("nodeName")) is not None:
        errors.each_invalid(f"{path}.nodeName", node, names.subdomain_problems(node), declarative=True)
    if byte_length(pool.get("validationError") or "") > MAX_VALIDATION_ERROR:
        errors.too_long(f"{path}.validationError", MAX_VALIDATION_ERROR, declarative=True, unit="characters")
    _check_partitions(pool.get("partitionSummary") or [], f"{path}.partitionSummary", errors)
    if (summary := pool.get("shareableSummary")) is not None:
        _check_shareable(summary, f"{path}.shareableSummary", errors)


def _check_partitions(partitions: list[Document], path: str, errors: Errors) -> None:
    if len(partitions) > MAX_SUMMARIES:
        errors.too_many(path, len(partitions), MAX_SUMMARIES, declarative=True)
        return
    check_unique(partitions, lambda p: (p.get("attribute") or "", p.get("type") or ""), path, errors, declarative=True)
    for i, partition in enumerate(partitions):
        for field in ("attribute", "type"):
            if not partition.get(field):
                errors.required(f"{path}[{i}].{field}", declarative=True)
        for field in ("total", "allocatable"):
            if (count := partition.get(field)) is not None:
                _check_at_least(count, 0, f"{path}[{i}].{field}", errors)


def _check_shareable(summary: Document, path: str, errors: Errors) -> None:
    for field in ("fullyAvailableDevices", "partiallyAvailableDevices"):
        if (count := summary.get(field)) is not None:
            _check_at_least(count, 0, f"{path}.{field}", errors)
    capacity = summary.get("capacity") or []
    if len(capacity) > MAX_SUMMARIES:
        errors.too_many(f"{path}.capacity", len(capacity), MAX_SUMMARIES, declarative=True)
        return
    check_unique(capacity, lambda c: c.get("name") or "", f"{path}.capacity", errors, declarative=True)
    for i, entry in enumerate(capacity):
        if not entry.get("name"):
            errors.required(f"{path}.capacity[{i}].name", declarative=True)


def _check_driver(driver: str, path: str, errors: Errors) -> None:
    """Unlike elsewhere, a driver name here may be as long as a subdomain."""
    if not driver:
        errors.required(path, declarative=True)
    else:
        errors.each_invalid(path, driver, names.caseless_subdomain_problems(driver), declarative=True)


def _check_pool_name(pool: str, path: str, errors: Errors) -> None:
    if byte_length(pool) > MAX_POOL:
        errors.too_long(path, MAX_POOL, declarative=True)
    for segment, problem in names.pool_segment_problems(pool):
        errors.invalid(path, pool, f"segment {segment}: {problem}", declarative=True)


def _check_at_least(value: int, limit: int, path: str, errors: Errors) -> None:
    if value < limit:
        errors.invalid(path, value, f"must be greater than or equal to {limit}", declarative=True)
