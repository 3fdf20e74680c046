"""The labels with which a namespace says what its pods may ask for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from dray.validation.errors import Errors, FieldError

PRIVILEGED, BASELINE, RESTRICTED = LEVELS = ("privileged", "baseline", "restricted")

PREFIX = "pod-security.kubernetes.io/"
MODES = ("enforce", "audit", "warn")
POLICY_LABELS = frozenset(f"{PREFIX}{mode}{suffix}" for mode in MODES for suffix in ("", "-version"))

LATEST = "latest"
# The release whose rules are `latest`.
NEWEST = 37
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]*)", re.ASCII)
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LevelVersion:
    """A level as a release defines it; `minor` None is the newest release."""

    level: str = PRIVILEGED
    minor: int | None = None

    def __str__(self) -> str:
        return f"{self.level}:{LATEST if self.minor is None else f'v1.{self.minor}'}"

    def is_stricter_than(self, other: LevelVersion) -> bool:
        return LEVELS.index(self.level) > LEVELS.index(other.level)


@dataclass(frozen=True, slots=True)
class NamespaceLevels:
    """What is refused, noted and warned about."""

    enforce: LevelVersion = LevelVersion()
    audit: LevelVersion = LevelVersion()
    warn: LevelVersion = LevelVersion()


Read = TypeVar("Read")


def namespace_levels(labels: Mapping[str, str]) -> tuple[NamespaceLevels, list[FieldError]]:
    """The levels, and what is wrong with the labels.

    A level that cannot be read is refused as if it were `restricted`, and neither noted nor warned about.
    """
    errors = Errors()
    label = partial(_label, labels, errors)
    enforce_level = label("enforce", _level)
    enforce = LevelVersion(
        (enforce_level or RESTRICTED) if _has(labels, "enforce") else PRIVILEGED, label("enforce-version", _minor)
    )
    audit = LevelVersion(label("audit", _level) or PRIVILEGED, label("audit-version", _minor))
    warn = LevelVersion(label("warn", _level) or PRIVILEGED, label("warn-version", _minor))
    if enforce_level and not _has(labels, "warn") and enforce.is_stricter_than(warn):
        # Workloads are told what will become of their pods, even if nobody asked for warnings.
        warn = LevelVersion(enforce.level, warn.minor if _has(labels, "warn-version") else enforce.minor)
    return NamespaceLevels(enforce, audit, warn), errors.found


def _has(labels: Mapping[str, str], name: str) -> bool:
    return PREFIX + name in labels


def _label(labels: Mapping[str, str], errors: Errors, name: str, read: Callable[[str], Read]) -> Read | None:
    value = labels.get(PREFIX + name)
    if value is None:
        return None
    try:
        return read(value)
    except ValueError as error:
        errors.invalid(f"metadata.labels[{PREFIX}{name}]", value, str(error))
        return None


def _level(value: str) -> str:
    if value not in LEVELS:
        raise ValueError(f"must be one of {', '.join(LEVELS)}")
    return value


def _minor(value: str) -> int | None:
    if value == LATEST:
        return None
    found = _VERSION.fullmatch(value)
    if found is None or int(found[1]) > _MOST:
        raise ValueError('must be "latest" or "v1.x"')
    return int(found[1])
