"""Asks the rules of a level about pods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from dray.api.safe_get import Document, mappings, name_of, text
from dray.validation.pod_security.checks import CHECKS, CheckedPod, CheckPod, ForbiddenSetting
from dray.validation.pod_security.levels import NEWEST, PRIVILEGED, RESTRICTED, LevelVersion


@dataclass(frozen=True, slots=True)
class Violations:
    """All that a pod may not do; none is falsy."""

    found: tuple[ForbiddenSetting, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.found)

    @property
    def reasons(self) -> str:
        return ", ".join(each.reason for each in self.found)

    @property
    def details(self) -> str:
        return ", ".join(f"{each.reason} ({each.detail})" for each in self.found)


def violations(pod: Document, asked: LevelVersion, newest: int = NEWEST) -> Violations:
    """`pod` is a pod or the template of one; releases after `newest` have its rules."""
    if asked.level == PRIVILEGED:
        return Violations()
    minor = newest if asked.minor is None else min(asked.minor, newest)
    checked = CheckedPod.of(pod)
    return Violations(tuple(found for check in _checks_of(asked.level, minor) if (found := check(checked))))


@lru_cache(maxsize=2 * (NEWEST + 1))
def _checks_of(level: str, minor: int) -> tuple[CheckPod, ...]:
    asked = [(check, form) for check in CHECKS if level in (RESTRICTED, check.level) and (form := check.at(minor))]
    replaced = {check.replaces for check, _ in asked}
    return tuple(form for check, form in asked if check.name not in replaced)


# --- pods that are there already --------------------------------------------------------------------------------------

MOST_CHECKED = 3000


def warnings_about_pods(
    pods: Iterable[Document], total: int, namespace: str, asked: LevelVersion, newest: int
) -> list[str]:
    """What whoever tightens a namespace should know: pods that would be refused now. They stay. Of `total` pods `pods` were read."""
    chosen = _one_of_each_controller_first(pods)[:MOST_CHECKED]
    names: dict[str, list[str]] = defaultdict(list)
    for pod in chosen:
        found = violations(pod, asked, newest)
        if found:
            names[found.reasons].append(name_of(pod))
    warnings = []
    if len(chosen) < total:
        checked = f"the first {len(chosen)} of {total} existing pods"
        warnings.append(f"new PodSecurity enforce level only checked against {checked}")
    if names:
        warnings.append(f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{asked}"')
    return warnings + sorted(f"{_first_of(those)}: {reasons}" for reasons, those in names.items())


def _first_of(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other {'pod' if others == 1 else 'pods'})"


def _one_of_each_controller_first(pods: Iterable[Document]) -> list[Document]:
    """Pods of one controller are mostly alike: the others of each come last."""
    seen: set[str] = set()
    first: list[Document] = []
    others: list[Document] = []
    for pod in pods:
        controllers = (
            text(owner, "uid") for owner in mappings(pod, "metadata", "ownerReferences") if owner.get("controller")
        )
        uid = next(controllers, "")
        (others if uid and uid in seen else first).append(pod)
        seen.add(uid)
    return first + others
