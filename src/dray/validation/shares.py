"""Rules for a number of pods that may also be written as so many of a hundred, such as `maxUnavailable: 25%`."""

from __future__ import annotations

import re

from dray.validation.errors import Errors

PERCENT_RULE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
    "regex used for validation is '[0-9]+%')"
)
_is_percent = re.compile("[0-9]+%").fullmatch


def check_share(value: int | str, path: str, errors: Errors) -> None:
    if isinstance(value, str):
        if not _is_percent(value):
            errors.invalid(path, value, PERCENT_RULE)
    elif value < 0:
        errors.invalid(path, value, "must be greater than or equal to 0")


def check_at_most_all(value: int | str, path: str, errors: Errors) -> None:
    if isinstance(value, int) or not _is_percent(value):
        return
    digits = value[:-1].lstrip("0")
    if len(digits) > 3 or int(digits or "0") > 100:
        errors.invalid(path, value, "must not be greater than 100%")


def is_none(value: int | str) -> bool:
    """No pods at all; text that is no percentage counts as none, too."""
    if isinstance(value, int):
        return value == 0
    return not _is_percent(value) or not value.strip("0%")
