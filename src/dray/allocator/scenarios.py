"""Recorded questions: one JSON object in, one out. The world is in the scenario, nothing is kept between two."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec

from dray.allocator.allocator import Allocator, Question
from dray.allocator.inventory import Inventory
from dray.allocator.ledger import Ledger
from dray.allocator.results import Allocation, Answer
from dray.allocator.types import Deadline, Failure, Features, ShareIDs
from dray.api import codec
from dray.api.base import ApiStruct
from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice


class Scenario(ApiStruct, frozen=True):
    """A node or several, the published devices, the classes, what is allocated, and the claims that want devices."""

    name: str = ""
    features: dict[str, bool] = {}
    node: Node | None = None
    nodes: tuple[Node, ...] | None = None
    slices: tuple[ResourceSlice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    allocated_claims: tuple[ResourceClaim, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()

    @property
    def asked(self) -> tuple[Node, ...]:
        return self.nodes if self.nodes is not None else (self.node or Node(),)


def read_scenario(line: bytes) -> Scenario:
    return codec.decode(Scenario, line)


class World:
    """A scenario with its inventory compiled and its ledger built."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        features = Features.from_names(scenario.features)
        inventory = Inventory(features)
        for published in scenario.slices:
            inventory.apply_slice(published)
        ledger = Ledger(features, scenario.allocated_claims)
        self.allocator = Allocator(inventory, ledger, scenario.classes)

    def question(self) -> Question:
        return self.allocator.fresh_question(self.scenario.claims)

    def forget_selectors(self) -> None:
        """As if no claim had ever asked: answers of selectors and amounts go, the compiled inventory stays."""
        self.allocator.inventory.kinds.forget_answers()


Reply = tuple[Answer, tuple[Any, ...]]
"""An answer with the AllocationResults it came to."""


def ask(question: Question, scenario: Scenario, deadline: Deadline | None = None) -> list[Reply]:
    """The answer of each node, results assembled. A search that passes the deadline ends in a failure."""
    replies: list[Reply] = []
    share_ids = numbered_shares()
    for _, answer in question.on_nodes(scenario.asked, deadline):
        replies.append((answer, answer.results(share_ids) if isinstance(answer, Allocation) else ()))
    return replies


def numbered_shares() -> ShareIDs:
    """Share IDs for one scenario: fixed, so that the same question gives the same text."""
    numbers: Iterator[int] = count(1)

    def fresh() -> str:
        return f"00000000-0000-4000-8000-{next(numbers):012d}"

    return fresh


def reply_document(reply: Reply, explain: bool = False) -> dict[str, Any]:
    answer, results = reply
    if isinstance(answer, Allocation):
        return {"outcome": "allocated", "allocations": [msgspec.Raw(codec.encode(result)) for result in results]}
    if isinstance(answer, Failure):
        return {"outcome": "error", "error": answer.message}
    document: dict[str, Any] = {"outcome": "unallocatable"}
    if explain:
        document["reasons"] = [str(reason) for reason in answer.reasons]
    return document


def scenario_document(scenario: Scenario, replies: list[Reply], explain: bool = False) -> dict[str, Any]:
    document: dict[str, Any] = {"name": scenario.name}
    if scenario.nodes is None:
        return document | reply_document(replies[0], explain)
    document["nodes"] = [
        {"node": node.metadata.name, **reply_document(reply, explain)}
        for node, reply in zip(scenario.asked, replies, strict=True)
    ]
    return document


def steps_of(replies: list[Reply]) -> int:
    return sum(answer.steps for answer, _ in replies)
