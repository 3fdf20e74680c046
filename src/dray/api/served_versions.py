"""Which groups, versions and resources a server offers: by `--runtime-config` and feature gates."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from dray.api.scheme import RESOURCES, Resource, Version, group_version
from dray.features import FeatureGates

ON = ("true", "1", "")
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?").fullmatch


@cache
def version_order(name: str) -> tuple[int, int, int, str]:
    """Sorts as Kubernetes does: v2, v1, v1beta2, v1alpha1, and then names that are no versions."""
    found = _VERSION(name)
    if found is None:
        return (3, 0, 0, name)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0), name)


class BadRuntimeConfig(ValueError):
    """A --runtime-config that names an unknown version, or is not written KEY=BOOL."""


class ServedVersions:
    def __init__(self, enabled: Iterable[tuple[Resource, Version]]) -> None:
        self._built_in = tuple(enabled)
        # Counts the changes of what is served, for those who keep documents about it.
        self.generation = 0
        self._arrange(self._built_in)

    def set_custom(self, rows: Iterable[Resource]) -> None:
        """The kinds of definitions that are served from now on, besides the built-in ones."""
        custom = [(row, version) for row in rows for version in row.versions if version.default]
        self._arrange((*self._built_in, *custom))
        self.generation += 1

    def _arrange(self, enabled: Iterable[tuple[Resource, Version]]) -> None:
        self._versions: dict[tuple[str, str], dict[str, tuple[Resource, Version]]] = {}
        self._order: dict[str, list[str]] = {}
        for row, version in enabled:
            self._versions.setdefault((row.group, version.name), {})[row.plural] = (row, version)
            versions = self._order.setdefault(row.group, [])
            if version.name not in versions:
                versions.append(version.name)
        for versions in self._order.values():
            versions.sort(key=version_order)

    def find(self, group: str, version: str, plural: str) -> tuple[Resource, Version] | None:
        return self._versions.get((group, version), {}).get(plural)

    def groups(self) -> list[str]:
        return [group for group in self._order if group]

    def has_group(self, group: str) -> bool:
        return group in self._order

    def versions(self, group: str) -> list[str]:
        """The preferred version first."""
        return self._order.get(group, [])

    def rows(self, group: str, version: str) -> list[Resource]:
        found = self._versions.get((group, version), {})
        return [row for _, (row, _) in sorted(found.items())]


def served_versions(runtime_config: str = "", gates: FeatureGates | None = None) -> ServedVersions:
    """`api/all=true`, `api/beta=true`, `resource.k8s.io/v1beta1=true`, several joined by commas."""
    switches = _switches(runtime_config)
    gates = gates or FeatureGates.default()
    rows = [row for row in RESOURCES if not row.gate or gates.enabled(row.gate)]
    return ServedVersions((row, version) for row in rows for version in row.versions if _is_on(row, version, switches))


def _switches(text: str) -> dict[str, bool]:
    known = {group_version(row.group, version.name) for row in RESOURCES for version in row.versions}
    known |= {"api/all", "api/ga", "api/beta", "api/alpha"} | {f"api/{name}" for name in known if "/" not in name}
    switches = {}
    for part in text.split(","):
        if not part.strip():
            continue
        key, _, value = (piece.strip() for piece in part.partition("="))
        if value not in (*ON, "false", "0"):
            raise BadRuntimeConfig(f"runtime-config {part.strip()}: the value must be true or false")
        if key not in known:
            raise BadRuntimeConfig(
                f"runtime-config {key}: unknown, write api/all, api/beta, api/alpha or GROUP/VERSION"
            )
        switches[key.removeprefix("api/") if key.removeprefix("api/").startswith("v") else key] = value in ON
    return switches


def _is_on(row: Resource, version: Version, switches: dict[str, bool]) -> bool:
    """The most specific switch decides."""
    stage = "api/alpha" if "alpha" in version.name else "api/beta" if "beta" in version.name else "api/ga"
    for key in (group_version(row.group, version.name), stage, "api/all"):
        if key in switches:
            return switches[key]
    return version.default
