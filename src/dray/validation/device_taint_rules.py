"""Rules for DeviceTaintRule: the device selector and the taint."""

from __future__ import annotations

from dray.validation.conditions import check_conditions
from dray.validation.devices import TAINT_EFFECTS, check_taint_names
from dray.validation.errors import Document, Errors
from dray.validation.formats import check_driver, check_enum, check_label, check_pool

MAX_CONDITIONS = 8


def check_rule(document: Document, old: Document | None, errors: Errors) -> None:
    spec = document.get("spec") or {}
    selector, taint = spec.get("deviceSelector") or {}, spec.get("taint") or {}
    if (driver := selector.get("driver")) is not None:
        check_driver(driver, "spec.deviceSelector.driver", errors)
    if (pool := selector.get("pool")) is not None:
        check_pool(pool, "spec.deviceSelector.pool", errors)
    if (device := selector.get("device")) is not None:
        check_label(device, "spec.deviceSelector.device", errors)
    check_taint_names(taint, "spec.taint", errors)
    effect = taint.get("effect") or ""
    before = (((old or {}).get("spec") or {}).get("taint") or {}).get("effect") or ""
    if old is None or effect != before:
        check_enum(effect, TAINT_EFFECTS, "spec.taint.effect", errors, required=True)


def check_rule_status(new: Document, errors: Errors) -> None:
    conditions = (new.get("status") or {}).get("conditions") or []
    check_conditions(conditions, MAX_CONDITIONS, "status.conditions", errors)
