"""Semantic versions 2.0.0, as device attributes of type `version` and the CEL function `semver()` use them."""

from __future__ import annotations

import re
from functools import total_ordering

from dray.api.caching import RememberedTexts

_SYNTAX = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
    re.ASCII,
).fullmatch

MAX_TEXT = 4096


class SemverError(ValueError):
    """The text is not a semantic version."""


def is_semver(text: str) -> bool:
    """Says nothing about the size of the numbers: validation accepts what a 64-bit evaluator then cannot read."""
    return len(text) <= MAX_TEXT and _SYNTAX(text) is not None


@total_ordering
class Semver:
    """One version; build metadata counts for nothing in comparisons."""

    __slots__ = ("_key", "build", "major", "minor", "patch", "prerelease")

    def __init__(self, major: int, minor: int, patch: int, prerelease: str = "", build: str = "") -> None:
        self.major, self.minor, self.patch = major, minor, patch
        self.prerelease, self.build = prerelease, build
        self._key = (major, minor, patch, _prerelease_key(prerelease))

    @staticmethod
    def parse(text: str) -> Semver:
        return _parse(text)

    def __str__(self) -> str:
        prerelease = f"-{self.prerelease}" if self.prerelease else ""
        build = f"+{self.build}" if self.build else ""
        return f"{self.major}.{self.minor}.{self.patch}{prerelease}{build}"

    def __repr__(self) -> str:
        return f"Semver({str(self)!r})"

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key == other._key

    def __lt__(self, other: Semver) -> bool:
        return self._key < other._key


def _read(text: str) -> Semver:
    found = _SYNTAX(text) if len(text) <= MAX_TEXT else None
    if found is None:
        raise SemverError("must be a string compatible with semver.org spec 2.0.0")
    major, minor, patch, prerelease, build = found.groups()
    if max(len(major), len(minor), len(patch)) > 20:
        raise SemverError(f"version {text!r}: a number does not fit into 64 bits")
    return Semver(int(major), int(minor), int(patch), prerelease or "", build or "")


_parse = RememberedTexts(_read, entries=8192, long_characters=256 * 1024)


def _prerelease_key(prerelease: str) -> tuple[object, ...]:
    """Sorts a release after its prereleases, and numbers before words."""
    if not prerelease:
        return (1,)
    return (0, tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in prerelease.split(".")))
