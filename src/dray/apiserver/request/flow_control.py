"""Flow control as the objects in the store say: reads FlowSchemas and PriorityLevelConfigurations, keeps the mandatory ones in force, and counts.

What happens to requests is in `fairness.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dray.api.safe_get import mapping, mappings, name_of, part, strings, text, uid_of
from dray.apiserver.request.fairness import SEATS, Flow, LevelConfig, Levels
from dray.apiserver.request.request_info import RequestInfo, User
from dray.apiserver.security.default_flow_control import CATCH_ALL, GROUP, LEVELS, SCHEMAS, mandatory_flow_control
from dray.apiserver.watch.kind_cache import StoreFollower
from dray.apiserver.watch.stored_object import resource_prefix
from dray.telemetry import Registry, Sample

Document = dict[str, Any]
EVERY = "*"
SERVICE_ACCOUNT = "system:serviceaccount:"


def level_config(document: Document) -> LevelConfig:
    """Missing or misshapen fields read as Kubernetes' defaults."""
    spec = mapping(document, "spec")
    limited = mapping(spec, "limited")
    response = mapping(limited, "limitResponse")
    queuing = mapping(response, "queuing")
    borrowing = limited.get("borrowingLimitPercent")
    return LevelConfig(
        name=name_of(document),
        uid=uid_of(document),
        is_exempt=text(spec, "type") == "Exempt",
        shares=_number(limited, "nominalConcurrencyShares", 30),
        lendable_percent=min(100, _number(limited, "lendablePercent", 0)),
        borrowing_percent=borrowing if isinstance(borrowing, int) and borrowing >= 0 else None,
        queues=_number(queuing, "queues", 64) if text(response, "type") == "Queue" else 0,
        hand_size=max(1, _number(queuing, "handSize", 8)),
        queue_length=_number(queuing, "queueLengthLimit", 50),
    )


def _number(document: Document, field: str, default: int) -> int:
    found = part(document, field)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else default


@dataclass(frozen=True, slots=True)
class FlowSchemaRule:
    """Requests of these subjects with these verbs on these resources or paths."""

    users: frozenset[str]
    groups: frozenset[str]
    service_accounts: frozenset[tuple[str, str]]
    resource_rules: tuple[Document, ...]
    path_rules: tuple[Document, ...]

    def matches(self, user: User, info: RequestInfo) -> bool:
        if not self._is_about(user):
            return False
        if info.is_resource:
            return any(_matches_resource(rule, info) for rule in self.resource_rules)
        return any(_matches_path(rule, info) for rule in self.path_rules)

    def _is_about(self, user: User) -> bool:
        if user.name in self.users or EVERY in self.users or EVERY in self.groups:
            return True
        if not self.groups.isdisjoint(user.groups):
            return True
        if not self.service_accounts or not user.name.startswith(SERVICE_ACCOUNT):
            return False
        namespace, _, name = user.name.removeprefix(SERVICE_ACCOUNT).partition(":")
        return (namespace, name) in self.service_accounts or (namespace, EVERY) in self.service_accounts


def _policy_rule(document: Document) -> FlowSchemaRule:
    subjects = mappings(document, "subjects")
    accounts = [mapping(each, "serviceAccount") for each in subjects if text(each, "kind") == "ServiceAccount"]
    return FlowSchemaRule(
        frozenset(text(each, "user", "name") for each in subjects if text(each, "kind") == "User"),
        frozenset(text(each, "group", "name") for each in subjects if text(each, "kind") == "Group"),
        frozenset((text(each, "namespace"), text(each, "name")) for each in accounts),
        tuple(mappings(document, "resourceRules")),
        tuple(mappings(document, "nonResourceRules")),
    )


def _names(rule: Document, field: str, *wanted: str) -> bool:
    named = strings(rule, field)
    return EVERY in named or any(each in named for each in wanted)


def _matches_resource(rule: Document, info: RequestInfo) -> bool:
    full = f"{info.plural}/{info.subresource}" if info.subresource else info.plural
    if not (_names(rule, "verbs", info.verb) and _names(rule, "apiGroups", info.group)):
        return False
    if not _names(rule, "resources", full):
        return False
    if not info.namespace:
        return rule.get("clusterScope") is True
    return _names(rule, "namespaces", info.namespace)


def _matches_path(rule: Document, info: RequestInfo) -> bool:
    if not _names(rule, "verbs", info.verb):
        return False
    return any(
        path == EVERY or path == info.path or (path.endswith("/*") and info.path.startswith(path[:-1]))
        for path in strings(rule, "nonResourceURLs")
    )


@dataclass(frozen=True, slots=True)
class FlowSchema:
    name: str
    uid: str
    level: str
    precedence: int
    distinguisher: str
    rules: tuple[FlowSchemaRule, ...]

    def matches(self, user: User, info: RequestInfo) -> bool:
        return any(rule.matches(user, info) for rule in self.rules)

    @property
    def uses_namespaces(self) -> bool:
        """Whether some rule is about certain namespaces only."""
        named = (strings(rule, "namespaces") for each in self.rules for rule in each.resource_rules)
        return any(names not in ([], [EVERY]) for names in named)

    def flow_name(self, user: User, info: RequestInfo) -> str:
        """Requests with the same name share queues."""
        if self.distinguisher == "ByUser":
            return user.name
        return info.namespace if self.distinguisher == "ByNamespace" else ""


def flow_schema(document: Document) -> FlowSchema:
    spec = mapping(document, "spec")
    return FlowSchema(
        name_of(document),
        uid_of(document),
        text(spec, "priorityLevelConfiguration", "name"),
        _number(spec, "matchingPrecedence", 1000),
        text(spec, "distinguisherMethod", "type"),
        tuple(map(_policy_rule, mappings(spec, "rules"))),
    )


def in_order(schemas: Iterable[FlowSchema], levels: Collection[str]) -> list[FlowSchema]:
    """The schemas whose level exists, in the order in which they are tried; `catch-all` last, since it takes the rest."""
    usable = (schema for schema in schemas if schema.level in levels)
    return sorted(usable, key=lambda schema: (schema.name == CATCH_ALL, schema.precedence, schema.name))


_MANDATORY = list(mandatory_flow_control())
_SCHEMA_PREFIX, _LEVEL_PREFIX = resource_prefix(GROUP, SCHEMAS), resource_prefix(GROUP, LEVELS)


class FlowControl:
    def __init__(self, seats: int = SEATS) -> None:
        self.levels = Levels(seats)
        self._level_configs: dict[str, LevelConfig] = {}
        self._schemas: dict[str, FlowSchema] = {}
        self._configure()

    @classmethod
    def following(cls, follower: StoreFollower, seats: int = SEATS) -> FlowControl:
        control = cls(seats)
        follower.subscribe_index((_SCHEMA_PREFIX, _LEVEL_PREFIX), control.apply)
        return control

    def apply(self, key: str, value: bytes | None) -> None:
        found: dict[str, Any] = self._schemas if key.startswith(_SCHEMA_PREFIX) else self._level_configs
        found.pop(key, None)
        if value is not None:
            read = flow_schema if key.startswith(_SCHEMA_PREFIX) else level_config
            found[key] = read(msgspec.json.decode(value))
        self._configure()

    def _configure(self) -> None:
        """The mandatory objects count as Kubernetes defines them; of stored ones with their names only the UID does."""
        levels = {config.name: config for config in self._level_configs.values()}
        schemas = {schema.name: schema for schema in self._schemas.values()}
        for document in _MANDATORY:
            if document["kind"] == "FlowSchema":
                schema = flow_schema(document)
                uid = schemas[schema.name].uid if schema.name in schemas else ""
                schemas[schema.name] = replace(schema, uid=uid)
            else:
                level = level_config(document)
                uid = levels[level.name].uid if level.name in levels else ""
                levels[level.name] = replace(level, uid=uid)
        self.levels.configure(levels.values(), in_order(schemas.values(), levels))

    # --- metrics

    def register(self, registry: Registry) -> None:
        registry.computed_gauge(
            "apiserver_flowcontrol_current_executing_requests",
            "Requests in progress that are not exempt.",
            self._by_flow(lambda flow: flow.executing),
        )
        registry.computed_gauge(
            "apiserver_flowcontrol_current_inqueue_requests",
            "Requests that wait in a queue.",
            self._by_flow(lambda flow: flow.waiting),
        )
        registry.computed_counter(
            "apiserver_flowcontrol_dispatched_requests_total",
            "Requests that were let through.",
            self._by_flow(lambda flow: flow.dispatched),
        )
        registry.computed_counter(
            "apiserver_flowcontrol_rejected_requests_total", "Requests that got 429.", self._rejected
        )
        registry.computed_counter(
            "apiserver_flowcontrol_request_wait_seconds_total",
            "Time that requests waited in queues.",
            self._by_flow(lambda flow: flow.waited_s),
        )
        registry.computed_gauge(
            "apiserver_flowcontrol_nominal_limit_seats", "Seats of a priority level.", self._nominal
        )
        registry.computed_gauge(
            "apiserver_flowcontrol_current_executing_seats", "Seats in use by priority level.", self._seats_in_use
        )

    def _by_flow(self, count: Callable[[Flow], float]) -> Callable[[], Iterable[Sample]]:
        return lambda: [(_labels(flow), count(flow)) for flow in self.levels.flows]

    def _rejected(self) -> Iterable[Sample]:
        return [
            ({**_labels(flow), "reason": reason}, count)
            for flow in self.levels.flows
            for reason, count in flow.rejected.items()
        ]

    def _nominal(self) -> Iterable[Sample]:
        return [({"priority_level": level.config.name}, level.nominal) for level in self.levels.limited]

    def _seats_in_use(self) -> Iterable[Sample]:
        return [({"priority_level": level.config.name}, level.executing) for level in self.levels.limited]


def _labels(flow: Flow) -> dict[str, str]:
    return {"priority_level": flow.schema.level, "flow_schema": flow.schema.name}
