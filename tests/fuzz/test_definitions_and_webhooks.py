"""Definitions, their objects and webhook configurations with parts replaced at random: refused in words, never a failure of the server."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apiserver.conftest import Client, server  # noqa: F401
from tests.apiserver.test_custom_resources import DEFINITIONS, FULL, TABS, a_definition, a_tab, define, with_rules
from tests.apiserver.webhook_server import a_configuration, a_webhook, configurations_path
from tests.fuzz.test_files import fuzzed

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
            target[last] = copy.deepcopy(chance.choice(values_for(target[last], chance)))
    return made


def values_for(old: Any, chance: random.Random) -> list[Any]:
    """Often of the same type as before: a wrong type is refused before anything looks at the value."""
    alike = [each for each in VALUES if type(each) is type(old)]
    return alike if alike and chance.random() < 0.7 else VALUES


TAB = a_tab(spec={"replicas": 2, "ports": [{"name": "a", "port": 1}], "labels": {"a": "b"}, "raw": {"x": {}}})
HOOK = a_webhook({"url": "https://127.0.0.1/"}, matchConditions=[{"name": "a", "expression": "true"}])
CREATED = [
    (a_definition(FULL), DEFINITIONS),
    (with_rules({"rule": "self.least <= self.most", "fieldPath": ".least"}), DEFINITIONS),
    (TAB, TABS),
    (a_configuration(HOOK), configurations_path()),
    (a_configuration(HOOK, mutating=True), configurations_path(mutating=True)),
]


@pytest.fixture
async def with_a_tab(server: Client) -> Client:  # noqa: F811
    await define(server, a_definition(FULL))
    assert (await server.post(TABS, TAB)).status == 201
    return server


@fuzzed
@given(chance=st.randoms(use_true_random=False), what=st.sampled_from(CREATED))
async def test_nothing_that_is_created_makes_the_server_fail(
    with_a_tab: Client, chance: random.Random, what: tuple[Any, str]
) -> None:
    body, path = what
    sent = spoiled(body, chance)
    answer = await with_a_tab.post(f"{path}?dryRun=All", sent)
    assert answer.status < 500, sent


@fuzzed
@given(
    chance=st.randoms(use_true_random=False),
    how=st.sampled_from([("merge", ""), ("apply", "&fieldManager=f&force=true")]),
)
async def test_no_patch_makes_the_server_fail(with_a_tab: Client, chance: random.Random, how: tuple[str, str]) -> None:
    kind, query = how
    sent = spoiled(TAB, chance)
    answer = await with_a_tab.patch(f"{TABS}/t?dryRun=All{query}", sent, kind)
    assert answer.status < 500, sent
