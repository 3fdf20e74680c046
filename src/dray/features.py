"""Every feature gate, one row each: its stage and default per release, and what it needs.

The default is a cluster with everything in the KEPs switched on. `for_release` gives the defaults of one Kubernetes
release instead, and `with_overrides` changes single gates on top of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

Stage = Literal["ALPHA", "BETA", "GA"]

RELEASES = ("1.34", "1.35", "1.36", "1.37")


class FeatureGateError(ValueError):
    """A gate is unknown, locked, or on while something it needs is off."""


@dataclass(frozen=True, slots=True)
class Milestone:
    """What a gate became in a release; it stays so until its next milestone."""

    since: str
    stage: Stage
    default: bool
    locked: bool = False


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    milestones: tuple[Milestone, ...]
    needs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def at(self, release: str) -> Milestone | None:
        """Its state in `release`, or None if that release does not know the gate."""
        reached = [m for m in self.milestones if _version(m.since) <= _version(release)]
        return reached[-1] if reached else None


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def _gate(name: str, history: str, *needs: str, aliases: tuple[str, ...] = ()) -> Gate:
    return Gate(name, tuple(_milestone(entry) for entry in history.split(", ")), needs, aliases)


def _milestone(entry: str) -> Milestone:
    """Reads `1.36 BETA on`, with `locked` behind it where the gate can no longer be switched."""
    since, stage, default, *locked = entry.split()
    return Milestone(since, cast(Stage, stage), default == "on", locked == ["locked"])


_DRA = "DynamicResourceAllocation"
_STATUS = "DRAResourceClaimDeviceStatus"

GATES: dict[str, Gate] = {
    gate.name: gate
    for gate in (
        _gate(_DRA, "1.26 ALPHA off, 1.32 BETA off, 1.34 GA on, 1.35 GA on locked"),
        _gate("DRAAdminAccess", "1.32 ALPHA off, 1.34 BETA on, 1.36 GA on locked", _DRA),
        _gate("DRAPrioritizedList", "1.33 ALPHA off, 1.34 BETA on, 1.36 GA on, 1.37 GA on locked", _DRA),
        _gate(_STATUS, "1.32 ALPHA off, 1.33 BETA on, 1.37 GA on locked"),
        _gate("DRAExtendedResource", "1.34 ALPHA off, 1.36 BETA on, 1.37 GA on locked", _DRA),
        _gate("DRADeviceTaints", "1.33 ALPHA off, 1.36 BETA on, 1.37 GA on", _DRA),
        _gate("DRADeviceTaintRules", "1.35 ALPHA off, 1.36 BETA off, 1.37 GA on", "DRADeviceTaints"),
        _gate("DRAPartitionableDevices", "1.33 ALPHA off, 1.36 BETA on", _DRA),
        _gate("DRAConsumableCapacity", "1.34 ALPHA off, 1.36 BETA on", _DRA),
        # Beta and on only from a minimum compatibility version of 1.37, which a default 1.37 server does not have.
        _gate("DRAFractionalCapacityRange", "1.37 BETA off", "DRAConsumableCapacity"),
        # In no release: what KEP-5075 has among its future possibilities.
        _gate("DRACapacityStrategies", "1.38 ALPHA off", "DRAConsumableCapacity"),
        _gate("DRADeviceBindingConditions", "1.34 ALPHA off, 1.36 BETA on", _DRA, _STATUS),
        _gate("DRAResourceClaimGranularStatusAuthorization", "1.36 BETA on", _DRA, _STATUS),
        _gate("DRASchedulerFilterTimeout", "1.34 BETA on", _DRA),
        _gate("DRAListTypeAttributes", "1.36 ALPHA off", _DRA),
        _gate("DRANodeAllocatableResources", "1.36 ALPHA off", _DRA, aliases=("DRANativeResources",)),
        _gate("DRAResourcePoolStatus", "1.36 ALPHA off", _DRA),
        _gate("GenericWorkload", "1.35 ALPHA off, 1.37 BETA off"),
        _gate("DRAWorkloadResourceClaims", "1.36 ALPHA off, 1.37 BETA off", _DRA, "GenericWorkload"),
        _gate("DRADerivedAttributes", "1.37 ALPHA off", _DRA),
        _gate("DRADeviceCompatibilityGroups", "1.37 ALPHA off", _DRA, "DRAPartitionableDevices"),
        _gate("NodeDeclaredFeatures", "1.35 ALPHA off, 1.36 BETA on"),
        _gate("DRAOptionalNodeOperations", "1.37 ALPHA off", _DRA, "NodeDeclaredFeatures"),
        _gate(
            "DRAPartitionableDevicesType",
            "1.37 ALPHA off",
            _DRA,
            "DRAPartitionableDevices",
            "DRAResourcePoolStatus",
        ),
        _gate("DRADownwardDeviceAttributes", "1.35 ALPHA off"),
        _gate("ResourceHealthStatus", "1.31 ALPHA off, 1.36 BETA on", _DRA),
        _gate("ResourceHealthStatusMessage", "1.36 BETA on", "ResourceHealthStatus"),
        _gate("PodLevelResources", "1.32 ALPHA off, 1.34 BETA on"),
        _gate("InPlacePodVerticalScaling", "1.27 ALPHA off, 1.33 BETA on, 1.35 GA on locked"),
        _gate("InPlacePodLevelResourcesVerticalScaling", "1.35 ALPHA off, 1.36 BETA on", "PodLevelResources"),
        _gate("PodTopologyLabelsAdmission", "1.33 ALPHA off, 1.35 BETA on"),
        _gate("SchedulerPopFromBackoffQ", "1.33 BETA on"),
        _gate("NominatedNodeNameForExpectation", "1.34 ALPHA off, 1.35 BETA on"),
        _gate("WatchList", "1.27 ALPHA off, 1.34 BETA on"),
        _gate("DeclarativeValidation", "1.33 BETA on, 1.36 GA on locked"),
        _gate("DeclarativeValidationBeta", "1.36 BETA on", "DeclarativeValidation"),
    )
}

ALIASES: dict[str, str] = {alias: gate.name for gate in GATES.values() for alias in gate.aliases}


def canonical_name(name: str) -> str:
    """The gate's name of today; raises for a name that no release knew."""
    name = ALIASES.get(name, name)
    if name not in GATES:
        raise FeatureGateError(f"unrecognized feature gate: {name}")
    return name


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """Which gates are on; equal settings are equal values."""

    on: frozenset[str]
    release: str | None = None  # None: no release emulated, nothing locked

    @staticmethod
    def default() -> FeatureGates:
        return _everything_on()

    @staticmethod
    def for_release(release: str) -> FeatureGates:
        """The defaults of a Kubernetes release, as `--emulate` asks for."""
        if release not in RELEASES:
            raise FeatureGateError(f"release {release} cannot be emulated: choose one of {', '.join(RELEASES)}")
        known = ((gate.name, gate.at(release)) for gate in GATES.values())
        return FeatureGates(frozenset(name for name, state in known if state and state.default), release)

    @staticmethod
    def parse(text: str, base: FeatureGates | None = None) -> FeatureGates:
        """Reads `A=true,B=false`, as `--feature-gates` takes it, on top of `base`."""
        overrides = dict(_override(entry.strip()) for entry in text.split(",") if entry.strip())
        return (base or FeatureGates.default()).with_overrides(overrides)

    def with_overrides(self, overrides: Mapping[str, bool]) -> FeatureGates:
        """These gates with some switched; refuses what the release does not know or has locked.

        Without a release, gates that nobody named go off with the gate they need. A release refuses that, as Kubernetes does.
        """
        wanted = {canonical_name(name): state for name, state in overrides.items()}
        for name, state in wanted.items():
            self._check_may_be_set(name, state)
        off = [name for name, state in wanted.items() if not state]
        left = self.without(*off).on if self.release is None else self.on.difference(off)
        return FeatureGates(left | {name for name, state in wanted.items() if state}, self.release).checked()

    def without(self, *names: str) -> FeatureGates:
        """These gates with some off, and with them everything that needs them."""
        off = set(names)
        while more := {g.name for g in GATES.values() if g.name not in off and off.intersection(g.needs)}:
            off |= more
        return FeatureGates(self.on - off, self.release)

    def enabled(self, name: str) -> bool:
        return name in self.on

    def all_enabled(self, names: Iterable[str]) -> bool:
        return self.on.issuperset(names)

    def checked(self) -> FeatureGates:
        """Itself, if every gate that is on finds what it needs on as well."""
        for name in sorted(self.on):
            if missing := [need for need in GATES[name].needs if need not in self.on]:
                raise FeatureGateError(
                    f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]"
                )
        return self

    def _check_may_be_set(self, name: str, state: bool) -> None:
        if self.release is None:
            return
        current = GATES[name].at(self.release)
        if current is None:
            raise FeatureGateError(f"unrecognized feature gate in release {self.release}: {name}")
        if current.locked and state != current.default:
            raise FeatureGateError(f"cannot set feature gate {name} to {str(state).lower()}, it is locked")


@cache
def _everything_on() -> FeatureGates:
    return FeatureGates(frozenset(GATES))


def _override(entry: str) -> tuple[str, bool]:
    name, equals, value = entry.partition("=")
    if not equals:
        raise FeatureGateError(f"missing bool value for {name}: write {name}=true or {name}=false")
    state = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}.get(value.strip().lower())
    if state is None:
        raise FeatureGateError(f"invalid value of {name}={value}: write true or false")
    return name.strip(), state
