"""Why not: one value from the rule that refuses to the person or program that reads the refusal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PlainValue = str | int | bool | None | tuple[str, ...]
"""What a fact may hold; each goes into JSON as it is."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for a refusal.

    `code` is stable: programs may rely on it, and `dray.explain.reason_codes` has its meaning and remedy. `text` is what people
    read, as it stands, in conditions, events and reports. `facts` are plain values behind the text, such as the claim, the
    request, the device or the amounts, by a name in snake case.
    """

    code: str
    text: str
    facts: Mapping[str, PlainValue] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.text

    def document(self) -> dict[str, Any]:
        """As JSON holds it; without facts the field is left out."""
        document: dict[str, Any] = {"code": self.code, "text": self.text}
        if self.facts:
            document["facts"] = {
                name: list(value) if isinstance(value, tuple) else value for name, value in self.facts.items()
            }
        return document


def texts(reasons: Iterable[Reason]) -> tuple[str, ...]:
    """The texts for people, in order, each once."""
    return tuple(dict.fromkeys(reason.text for reason in reasons))
