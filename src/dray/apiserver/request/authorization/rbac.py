"""RBAC: what a rule allows, and the index of roles and bindings that says which rules a user has.

The index follows the store: bindings by subject, roles by name. An authorization looks only at the bindings of the user and its groups. Rules only allow;
nothing forbids."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec

from dray.api.projections import RbacBinding, RbacRole, RbacSubject
from dray.apiserver.read.selectors import selects
from dray.apiserver.request.request_info import Attributes, Decision, User
from dray.apiserver.watch.kind_cache import StoreFollower
from dray.apiserver.watch.stored_object import resource_prefix

ALL = "*"


class PolicyRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
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
        texts = [f"{name}:[{', '.join(_quoted_text(value) for value in values)}]" for name, values in parts if values]
        return f"{{{', '.join(texts)}}}"


def _quoted_text(text: str) -> str:
    return f'"{text}"'


def url_matches(pattern: str, path: str) -> bool:
    if pattern in (ALL, path):
        return True
    return pattern.endswith("*") and path.startswith(pattern[:-1])


def permission_count(rules: Iterable[PolicyRule]) -> int:
    """How many single permissions the rules spell out."""
    return sum(
        len(rule.verbs)
        * (len(rule.api_groups) * len(rule.resources) * max(1, len(rule.resource_names)) + len(rule.non_resource_urls))
        for rule in rules
    )


def uncovered(wanted: Iterable[PolicyRule], held: Iterable[PolicyRule]) -> list[PolicyRule]:
    """The single permissions of `wanted` that nobody who holds `held` could use."""
    owned = list(held)
    return [
        part
        for rule in wanted
        for part in _single_permissions(rule)
        if not any(_covers(rule_, part) for rule_ in owned)
    ]


def _single_permissions(rule: PolicyRule) -> Iterator[PolicyRule]:
    """A rule as single permissions: one verb on one resource (and name), or on one URL."""
    for verb in rule.verbs:
        for group, resource in product(rule.api_groups, rule.resources):
            for name in rule.resource_names or ("",):
                yield PolicyRule((verb,), (group,), (resource,), (name,) if name else ())
        for url in rule.non_resource_urls:
            yield PolicyRule((verb,), non_resource_urls=(url,))


def _covers(owner: PolicyRule, part: PolicyRule) -> bool:
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


def _covers_resource(owner: PolicyRule, wanted: str) -> bool:
    if ALL in owner.resources or wanted in owner.resources:
        return True
    _, slash, subresource = wanted.partition("/")
    return bool(slash) and f"*/{subresource}" in owner.resources


def compact(parts: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Single permissions put together again where only the verbs differ, for people to read."""
    verbs_by_target: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for part in parts:
        target = (part.api_groups, part.resources, part.resource_names, part.non_resource_urls)
        verbs = verbs_by_target.setdefault(target, [])
        if part.verbs[0] not in verbs:
            verbs.append(part.verbs[0])
    return [PolicyRule(tuple(verbs), *target) for target, verbs in verbs_by_target.items()]


GROUP = "rbac.authorization.k8s.io"
PLURALS = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")

# ("User", name), ("Group", name) or ("ServiceAccount", "namespace:name").
SubjectKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RoleEntry:
    rules: tuple[PolicyRule, ...]
    labels: dict[str, str]
    # Selectors over other cluster roles whose rules this one has as well.
    aggregates: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class RoleBindingEntry:
    kind: str  # "RoleBinding" or "ClusterRoleBinding"
    namespace: str
    name: str
    role_kind: str
    role_name: str
    subjects: tuple[SubjectKey, ...]

    @property
    def described(self) -> str:
        """The reason of an allowed access, as Kubernetes words it."""
        name = f"{self.name}/{self.namespace}" if self.namespace else self.name
        return f'{self.kind} "{name}" of {self.role_kind} "{self.role_name}"'


_roles = msgspec.json.Decoder(RbacRole)
_bindings = msgspec.json.Decoder(RbacBinding)
_rules = msgspec.json.Decoder(list[PolicyRule] | None)


class RbacIndex:
    """Roles and bindings in memory. `apply` takes what the store has below the RBAC group."""

    def __init__(self) -> None:
        self._prefix = resource_prefix(GROUP, "")[:-1]
        self._roles: dict[tuple[str, str], RoleEntry] = {}
        self._bindings: dict[str, RoleBindingEntry] = {}
        self._keys_by_subject: dict[SubjectKey, dict[str, None]] = {}

    @classmethod
    def following(cls, follower: StoreFollower) -> "RbacIndex":
        index = cls()
        follower.subscribe_index([resource_prefix(GROUP, plural) for plural in PLURALS], index.apply)
        return index

    def apply(self, key: str, value: bytes | None) -> None:
        plural, _, rest = key.removeprefix(self._prefix).partition("/")
        if plural in ("roles", "clusterroles"):
            self._apply_role(rest, value)
        elif plural in ("rolebindings", "clusterrolebindings"):
            self._apply_binding(key, plural, value)

    def _apply_role(self, path: str, value: bytes | None) -> None:
        namespace, _, name = path.rpartition("/")
        if value is None:
            self._roles.pop((namespace, name), None)
            return
        read = _roles.decode(value)
        selectors = read.aggregation_rule.cluster_role_selectors if read.aggregation_rule else None
        rules = _rules.decode(read.rules) or ()
        self._roles[namespace, name] = RoleEntry(tuple(rules), read.metadata.labels or {}, tuple(selectors or ()))

    def _apply_binding(self, key: str, plural: str, value: bytes | None) -> None:
        old = self._bindings.pop(key, None)
        if old:
            for subject in old.subjects:
                self._keys_by_subject[subject].pop(key, None)
        if value is None:
            return
        read = _bindings.decode(value)
        is_cluster = plural == "clusterrolebindings"
        binding = RoleBindingEntry(
            kind="ClusterRoleBinding" if is_cluster else "RoleBinding",
            namespace="" if is_cluster else read.metadata.namespace,
            name=read.metadata.name,
            role_kind=read.role_ref.kind,
            role_name=read.role_ref.name,
            subjects=tuple(_subject_key(subject) for subject in read.subjects or ()),
        )
        self._bindings[key] = binding
        for subject in binding.subjects:
            self._keys_by_subject.setdefault(subject, {})[key] = None

    # --- asking ------------------------------------------------------------------------------------------------------

    def bindings_of(self, user: User, namespace: str) -> Iterator[RoleBindingEntry]:
        """Cluster-wide bindings of the user, and those of the namespace if one is given."""
        for subject in _subjects_of(user):
            for key in self._keys_by_subject.get(subject, ()):
                binding = self._bindings[key]
                if not binding.namespace or binding.namespace == namespace:
                    yield binding

    def rules_of(self, binding: RoleBindingEntry) -> tuple[PolicyRule, ...] | None:
        """None if the role does not exist. A ClusterRoleBinding can only refer to a ClusterRole."""
        if binding.role_kind == "ClusterRole":
            return self.role_rules("", binding.role_name)
        if binding.role_kind == "Role" and binding.namespace:
            return self.role_rules(binding.namespace, binding.role_name)
        return None

    def role_rules(self, namespace: str, name: str) -> tuple[PolicyRule, ...] | None:
        role = self._roles.get((namespace, name))
        if role is None:
            return None
        if not role.aggregates:
            return role.rules
        gathered = dict.fromkeys(role.rules)
        for (other_namespace, other_name), other in self._roles.items():
            if not other_namespace and other_name != name and _is_selected(role, other):
                gathered.update(dict.fromkeys(other.rules))
        return tuple(gathered)

    def rules_for(self, user: User, namespace: str) -> list[PolicyRule]:
        """Everything the user holds in a namespace, or (empty) cluster-wide."""
        return [rule for binding in self.bindings_of(user, namespace) for rule in self.rules_of(binding) or ()]

    def decide(self, attributes: Attributes) -> Decision:
        missing = ""
        for binding in self.bindings_of(attributes.user, attributes.namespace):
            rules = self.rules_of(binding)
            if rules is None:
                missing = missing or _missing(binding)
                continue
            if any(rule.allows(attributes) for rule in rules):
                return Decision(True, f"RBAC: allowed by {binding.described} to {_subject_text(binding, attributes)}")
        return Decision(False, f"RBAC: {missing}" if missing else "")


def _subject_key(subject: RbacSubject) -> SubjectKey:
    if subject.kind == "ServiceAccount":
        return "ServiceAccount", f"{subject.namespace}:{subject.name}"
    return subject.kind, subject.name


def _subjects_of(user: User) -> Iterator[SubjectKey]:
    yield "User", user.name
    for group in user.groups:
        yield "Group", group
    if account := user.service_account:
        yield "ServiceAccount", f"{account[0]}:{account[1]}"


def _subject_text(binding: RoleBindingEntry, attributes: Attributes) -> str:
    held = set(_subjects_of(attributes.user))
    kind, name = next(subject for subject in binding.subjects if subject in held)
    if kind == "ServiceAccount":
        namespace, _, account = name.partition(":")
        name = f"{account}/{namespace}"
    return f'{kind} "{name}"'


def _missing(binding: RoleBindingEntry) -> str:
    plural = "clusterrole" if binding.role_kind == "ClusterRole" else "role"
    return f'{plural}.{GROUP} "{binding.role_name}" not found'


def _is_selected(role: RoleEntry, other: RoleEntry) -> bool:
    return any(selects(selector, other.labels) for selector in role.aggregates)
