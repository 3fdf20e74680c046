"""RBAC rules: what one rule allows, and whether a set of rules covers another."""

from collections.abc import Iterable, Iterator
from itertools import product

import msgspec

from dray.apiserver.request.request_info import Attributes

ALL = "*"


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`rules[]` of a Role or ClusterRole."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")

    def allows(self, attributes: Attributes) -> bool:
        if attributes.verb not in self.verbs and ALL not in self.verbs:
            return False
        if not attributes.is_resource:
            return any(url_matches(url, attributes.path) for url in self.non_resource_urls)
        return (
            (attributes.group in self.api_groups or ALL in self.api_groups)
            and self._has_resource(attributes.resource, attributes.subresource)
            and (not self.resource_names or (bool(attributes.name) and attributes.name in self.resource_names))
        )

    def _has_resource(self, resource: str, subresource: str) -> bool:
        wanted = f"{resource}/{subresource}" if subresource else resource
        return (
            ALL in self.resources
            or wanted in self.resources
            or (bool(subresource) and f"*/{subresource}" in self.resources)
        )

    def described(self) -> str:
        """As Kubernetes prints a rule that somebody wanted to hand out."""
        parts = [
            ("APIGroups", self.api_groups),
            ("Resources", self.resources),
            ("NonResourceURLs", self.non_resource_urls),
            ("ResourceNames", self.resource_names),
            ("Verbs", self.verbs),
        ]
        texts = [f"{name}:[{', '.join(_quoted(value) for value in values)}]" for name, values in parts if values]
        return f"{{{', '.join(texts)}}}"


def _quoted(text: str) -> str:
    return f'"{text}"'


def url_matches(pattern: str, path: str) -> bool:
    if pattern in (ALL, path):
        return True
    return pattern.endswith("*") and path.startswith(pattern[:-1])


def uncovered(wanted: Iterable[Rule], held: Iterable[Rule]) -> list[Rule]:
    """The single permissions of `wanted` that nobody who holds `held` could use."""
    owned = list(held)
    return [part for rule in wanted for part in _parts(rule) if not any(_covers(rule_, part) for rule_ in owned)]


def _parts(rule: Rule) -> Iterator[Rule]:
    """A rule as single permissions: one verb on one resource (and name), or on one URL."""
    for verb in rule.verbs:
        for group, resource in product(rule.api_groups, rule.resources):
            for name in rule.resource_names or ("",):
                yield Rule((verb,), (group,), (resource,), (name,) if name else ())
        for url in rule.non_resource_urls:
            yield Rule((verb,), non_resource_urls=(url,))


def _covers(owner: Rule, part: Rule) -> bool:
    if ALL not in owner.verbs and part.verbs[0] not in owner.verbs:
        return False
    if part.non_resource_urls:
        wanted = part.non_resource_urls[0]
        return any(url_matches(url, wanted) for url in owner.non_resource_urls)
    if ALL not in owner.api_groups and part.api_groups[0] not in owner.api_groups:
        return False
    if not _covers_resource(owner, part.resources[0]):
        return False
    return not owner.resource_names or (bool(part.resource_names) and part.resource_names[0] in owner.resource_names)


def _covers_resource(owner: Rule, wanted: str) -> bool:
    if ALL in owner.resources or wanted in owner.resources:
        return True
    _, slash, subresource = wanted.partition("/")
    return bool(slash) and f"*/{subresource}" in owner.resources


def compact(parts: Iterable[Rule]) -> list[Rule]:
    """Single permissions put together again where only the verbs differ, for people to read."""
    verbs_by_target: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for part in parts:
        target = (part.api_groups, part.resources, part.resource_names, part.non_resource_urls)
        verbs = verbs_by_target.setdefault(target, [])
        if part.verbs[0] not in verbs:
            verbs.append(part.verbs[0])
    return [Rule(tuple(verbs), *target) for target, verbs in verbs_by_target.items()]
