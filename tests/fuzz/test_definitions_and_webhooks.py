"""Definitions, their objects and webhook configurations with parts replaced at random: refused in words, never a failure of the server."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from tests.apiserver.conftest import Client, server  # noqa: F401
from tests.apiserver.test_custom_resources import DEFINITIONS, FULL, TABS, a_definition, a_tab, define, with_rules
from tests.apiserver.webhook_server import a_configuration, a_webhook, configurations_path

ROUNDS = 12
VALUES: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, "", "x", "*", "(", ".spec.x", "object", "array", [], [None], ["x"], {}, {"a": 1},
    {"type": "object"}, {"type": "array"}, {"properties": {"a": None}}, {"anyOf": [None]}, "\x00",
]  # fmt: skip
KEYS = (
    "type", "properties", "items", "default", "enum", "required", "pattern", "anyOf", "not", "x-kubernetes-validations",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string", "rule", "jsonPath", "metadata", "spec",
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def spoiled(value: Any, chance: random.Random) -> Any:
    made = copy.deepcopy(value)
    for _ in range(chance.randint(1, 3)):
        found = list(places(made))
        if not found:
            break
        *way, last = chance.choice(found)
        target = made
        for step in way:
            target = target[step]
        if isinstance(target[last], dict) and chance.random() < 0.4:
            target[last][chance.choice(KEYS)] = copy.deepcopy(chance.choice(VALUES))
        else:
            target[last] = copy.deepcopy(chance.choice(VALUES))
    return made


async def test_nothing_that_is_sent_makes_the_server_fail(server: Client) -> None:  # noqa: F811
    chance = random.Random(20)
    definition, rules = a_definition(FULL), with_rules({"rule": "self.least <= self.most", "fieldPath": ".least"})
    hook = a_webhook({"url": "https://127.0.0.1/"}, matchConditions=[{"name": "a", "expression": "true"}])
    await define(server, definition)
    tab = a_tab(spec={"replicas": 2, "ports": [{"name": "a", "port": 1}], "labels": {"a": "b"}, "raw": {"x": {}}})
    assert (await server.post(TABS, tab)).status == 201
    for _ in range(ROUNDS):
        for body, path in (
            (definition, DEFINITIONS), (rules, DEFINITIONS), (tab, TABS),
            (a_configuration(hook), configurations_path()),
            (a_configuration(hook, mutating=True), configurations_path(mutating=True)),
        ):  # fmt: skip
            sent = spoiled(body, chance)
            answer = await server.post(f"{path}?dryRun=All", sent)
            assert answer.status < 500, sent
        for kind, query in (("merge", ""), ("apply", "&fieldManager=f&force=true")):
            sent = spoiled(tab, chance)
            answer = await server.patch(f"{TABS}/t?dryRun=All{query}", sent, kind)
            assert answer.status < 500, sent
