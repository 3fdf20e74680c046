"""Schemas of custom kinds that make small objects expensive: in time, in memory, or in what the server remembers of them."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from dray.apiserver.custom_resources.schema_nodes import read_schema
from dray.apiserver.custom_resources.value_formats import FORMATS
from dray.apiserver.custom_resources.value_validation import MAX_PROBLEMS, value_problems
from tests.apiserver.conftest import Answer, Client, server
from tests.apiserver.test_custom_resources import DEFINITIONS, TABS, a_definition, a_tab, a_version
from tests.security.loop_stalls import loop_stalls
from tests.security.test_loop_stalls import LONGEST_S
from tests.waiting import eventually

__all__ = ["server"]

Document = dict[str, Any]
ALTERNATIVES = {"type": "integer", "anyOf": [{"minimum": n, "maximum": n} for n in range(200)]}
VALUES = {"type": "string", "enum": [f"value-{n}" for n in range(4000)]}
# More than are remembered, and slow to compile.
PATTERNS = {"type": "string", "anyOf": [{"pattern": f"^a{n}([a-z]{{100}}){{5}}$"} for n in range(40)]}

MOST_STEPS = 20_000


def a_list_of(items: Document) -> Document:
    return {"type": "object", "properties": {"raw": {"type": "array", "items": items}}}


async def with_definition(server: Client, spec: Document) -> None:
    assert (await server.post(DEFINITIONS, a_definition(a_version(spec=spec)))).status == 201

    async def is_served() -> bool:
        return (await server.get(TABS)).status == 200

    await eventually(is_served, "the kind to be served")


async def sent(server: Client, entry: object, count: int) -> tuple[Answer, float]:
    with loop_stalls() as stalls:
        answer = await asyncio.create_task(server.post(TABS, a_tab(spec={"raw": [entry] * count})))
    return answer, stalls.longest_s


@pytest.mark.parametrize(
    ("items", "entry", "count"),
    [(ALTERNATIVES, 777, 2500), (VALUES, "x", 2500), (PATTERNS, "x", 300)],
    ids=["alternatives", "values", "patterns"],
)
async def test_a_small_object_does_not_stop_the_loop(
    server: Client, items: Document, entry: object, count: int
) -> None:
    """It is as small as requests that are answered without a thread."""
    await with_definition(server, a_list_of(items))
    await sent(server, entry, 1)  # loads what loads once
    answer, stall_s = await sent(server, entry, count)
    assert answer.status == 422
    assert stall_s < LONGEST_S


@pytest.mark.parametrize(
    ("items", "entry", "count"),
    [
        (ALTERNATIVES, 199, 200),
        (VALUES, "value-3999", 200),
        (PATTERNS, "a39" + "b" * 500, 100),
        ({"type": "string", "allOf": [{"pattern": f"(a{n})?.*b"} for n in range(40)]}, "b" * 1_000, 40),
    ],
    ids=["alternatives", "values", "patterns", "long texts"],
)
def test_work_on_an_object_is_counted(items: Document, entry: object, count: int) -> None:
    """Each entry is right, so that no problem ends the search before its time."""
    node = read_schema(a_list_of(items))
    assert not value_problems({"raw": [entry] * 5}, node, most_steps=MOST_STEPS)
    found = value_problems({"raw": [entry] * count}, node, most_steps=MOST_STEPS)
    assert [problem.body for problem in found] == [
        f'Invalid value: "": the object has too many parts for its schema: more than {MOST_STEPS} checks'
    ]


def test_a_pattern_with_counts_is_cheap_enough_for_long_lists() -> None:
    node = read_schema(a_list_of({"type": "string", "pattern": r"^[a-z]{1,63}(\.[a-z]{1,63}){0,3}$"}))
    assert not value_problems({"raw": ["example.com"] * 20_000}, node)


def peak_of(work: Callable[[], object]) -> int:
    """The most memory in bytes that was in use for it at a time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_problems_that_nobody_is_told_are_not_collected() -> None:
    """Each names all values that would be right: those of a long list were gigabytes."""
    node = read_schema(a_list_of(VALUES))
    found: list[Any] = []
    assert peak_of(lambda: found.extend(value_problems({"raw": ["x"] * 2_000}, node))) < 30_000_000
    assert found[0].field == "raw[0]"
    assert len(found) < MAX_PROBLEMS
    plain = value_problems({"raw": ["x"] * 200}, read_schema(a_list_of({"type": "integer"})))
    assert [problem.field for problem in plain] == [f"raw[{at}]" for at in range(MAX_PROBLEMS)]


async def test_defaults_do_not_multiply_an_object(server: Client) -> None:
    """The defaults of a list's entries are filled in for each of them: twenty kilobytes became eight megabytes, and three would become gigabytes."""
    default = {f"k{n}": "v" * 10 for n in range(100)}
    filled = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": default}
    await with_definition(server, a_list_of({"type": "object", "properties": {"d": filled}}))
    refused = await server.post(TABS, a_tab(spec={"raw": [{}] * 5000}))
    assert (refused.status, refused.body["reason"]) == (413, "RequestEntityTooLarge")
    made = await server.post(TABS, a_tab(spec={"raw": [{}] * 5}))
    assert [entry["d"] for entry in made.body["spec"]["raw"]] == [default] * 5


def test_long_texts_of_a_format_are_not_remembered() -> None:
    """`urlsplit` keeps the texts that it was asked last."""

    def ask() -> None:
        for number in range(50):
            assert FORMATS["uri"](f"https://{number}/" + "x" * 100_000)

    assert peak_of(ask) < 1_000_000
