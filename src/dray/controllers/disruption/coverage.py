"""Which budgets cover a pod, and what each budget counts of its pods. Pure.

A change of a pod is entered into the sums of its own budgets: no budget looks at all of its pods again, and no pod at all budgets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from dray.api.core import Pod
from dray.api.matching import matches_labels
from dray.api.meta import LabelSelector, OwnerReference

Labels = Mapping[str, str]
Entry = tuple[str, tuple[str, ...], tuple[str, ...]]  # namespace, label keys, their values


class SelectorIndex:
    """Finds the selectors that match labels.

    Selectors whose `matchLabels` have the same keys are found with one look, however many they are. What else a selector
    asks for is checked for those found.
    """

    def __init__(self) -> None:
        self._selectors: dict[str, LabelSelector] = {}
        self._entries: dict[str, tuple[Entry, ...]] = {}
        self._keys: dict[Entry, dict[str, None]] = {}
        self._shapes: dict[str, Counter[tuple[str, ...]]] = {}
        self.compared = 0

    def __bool__(self) -> bool:
        return bool(self._selectors)

    def get(self, key: str) -> LabelSelector | None:
        return self._selectors.get(key)

    def put(self, key: str, namespace: str, selector: LabelSelector) -> None:
        self.remove(key)
        self._selectors[key] = selector
        self._entries[key] = tuple(_entries(namespace, selector))
        for entry in self._entries[key]:
            self._keys.setdefault(entry, {})[key] = None
            self._shapes.setdefault(namespace, Counter())[entry[1]] += 1

    def remove(self, key: str) -> None:
        self._selectors.pop(key, None)
        for entry in self._entries.pop(key, ()):
            namespace, shape, _ = entry
            keys, shapes = self._keys[entry], self._shapes[namespace]
            del keys[key]
            shapes[shape] -= 1
            if not keys:
                del self._keys[entry]
            if not shapes[shape]:
                del shapes[shape]

    def matching(self, namespace: str, labels: Labels) -> Iterator[str]:
        for shape in self._shapes.get(namespace, ()):
            # Up to the first key that the labels lack: a selector may have very many.
            values = tuple(map(labels.__getitem__, takewhile(labels.__contains__, shape)))
            for key in self._keys.get((namespace, shape, values), ()):
                self.compared += 1
                if matches_labels(self._selectors[key], labels):
                    yield key


def _entries(namespace: str, selector: LabelSelector) -> Iterator[Entry]:
    if selector.match_labels:
        pairs = sorted(selector.match_labels.items())
        yield namespace, tuple(key for key, _ in pairs), tuple(value for _, value in pairs)
        return
    listed = next((each for each in selector.match_expressions if each.operator == "In"), None)
    if listed is None:
        yield namespace, (), ()
        return
    for value in dict.fromkeys(listed.values):
        yield namespace, (listed.key,), (value,)


@dataclass(frozen=True, slots=True)
class CoveredPod:
    """`is_ready` counts pods that stay; `owner` is the controller that would replace the pod."""

    is_ready: bool
    is_leaving: bool
    owner: OwnerReference | None


@dataclass(slots=True)
class PodsOfBudget:
    """The pods of one budget by name, and their sums."""

    pods: dict[str, CoveredPod] = field(default_factory=dict)
    ready: int = 0
    by_owner: Counter[str] = field(default_factory=Counter)
    owners: dict[str, OwnerReference] = field(default_factory=dict)

    @property
    def unmanaged(self) -> int:
        return len(self.pods) - self.by_owner.total()

    def put(self, name: str, pod: CoveredPod) -> bool:
        """Returns whether anything is different now."""
        if self.pods.get(name) == pod:
            return False
        self.remove(name)
        self.pods[name] = pod
        self.ready += pod.is_ready
        if pod.owner is not None:
            self.by_owner[pod.owner.uid] += 1
            self.owners[pod.owner.uid] = pod.owner
        return True

    def remove(self, name: str) -> bool:
        pod = self.pods.pop(name, None)
        if pod is None:
            return False
        self.ready -= pod.is_ready
        if pod.owner is not None:
            uid = pod.owner.uid
            self.by_owner[uid] -= 1
            if not self.by_owner[uid]:
                del self.by_owner[uid], self.owners[uid]
        return True


def covered(pod: Pod) -> CoveredPod:
    is_leaving = pod.metadata.deletion_timestamp is not None
    is_ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
    owner = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
    return CoveredPod(is_ready and not is_leaving, is_leaving, owner)


class CoveredPods:
    def __init__(self) -> None:
        self.selectors = SelectorIndex()
        self._coverage: dict[str, PodsOfBudget] = {}
        self._budgets_of: dict[str, tuple[str, ...]] = {}

    def of(self, budget: str) -> PodsOfBudget:
        return self._coverage.get(budget) or PodsOfBudget()

    def budgets_of(self, pod: Pod) -> tuple[str, ...]:
        return self._of(pod.metadata.namespace, pod.metadata.name)

    def put_budget(self, key: str, namespace: str, selector: LabelSelector | None, pods: Iterable[Pod]) -> None:
        """`pods` are those of the namespace; they are looked at only if the selector is a new one."""
        if selector is None:
            self.remove_budget(key)
            return
        if self.selectors.get(key) == selector:
            return
        self.remove_budget(key)
        self.selectors.put(key, namespace, selector)
        coverage = self._coverage[key] = PodsOfBudget()
        for pod in pods:
            if matches_labels(selector, pod.metadata.labels):
                name = pod.metadata.name
                coverage.put(name, covered(pod))
                known = self._budgets_of.get(f"{namespace}/{name}", ())
                self._budgets_of[f"{namespace}/{name}"] = (*known, key)

    def remove_budget(self, key: str) -> None:
        self.selectors.remove(key)
        coverage = self._coverage.pop(key, None)
        namespace = key.partition("/")[0]
        for name in coverage.pods if coverage else ():
            self._set_budgets(f"{namespace}/{name}", tuple(each for each in self._of(namespace, name) if each != key))

    def put_pod(self, pod: Pod) -> list[str]:
        """The budgets for which something is different now."""
        namespace, name = pod.metadata.namespace, pod.metadata.name
        before = self._of(namespace, name)
        if not self.selectors and not before:
            return []
        budgets = tuple(self.selectors.matching(namespace, pod.metadata.labels))
        self._set_budgets(f"{namespace}/{name}", budgets)
        changed = [key for key in before if key not in budgets and self._coverage[key].remove(name)]
        if budgets:
            facts = covered(pod)
            changed += [key for key in budgets if self._coverage[key].put(name, facts)]
        return changed

    def remove_pod(self, pod: Pod) -> list[str]:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        budgets = self._budgets_of.pop(f"{namespace}/{name}", ())
        return [key for key in budgets if self._coverage[key].remove(name)]

    def _of(self, namespace: str, name: str) -> tuple[str, ...]:
        return self._budgets_of.get(f"{namespace}/{name}", ())

    def _set_budgets(self, pod: str, budgets: tuple[str, ...]) -> None:
        if budgets:
            self._budgets_of[pod] = budgets
        else:
            self._budgets_of.pop(pod, None)
