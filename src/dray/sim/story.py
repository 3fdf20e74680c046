"""A story: manifests, what must come of them, and the check that it did. Read from YAML."""

from collections.abc import Iterable
from importlib import resources
from typing import Any

import msgspec
import yaml


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"is_": "is"}):
    """What must become of one pod."""

    pod: str
    is_: str
    """Running, waiting or gone."""
    devices: tuple[str, ...] = ()
    request: str = ""
    beside: str = ""
    """Another pod that must be on the same node."""
    prints: str = ""
    because: str = ""
    claims: dict[str, str] = {}
    """What the pod's claims add to its demand, by resource."""
    consumes: dict[str, str] = {}
    """Capacity that every device of the pod was charged."""


class LedgerChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By how much a node's ledger must have grown since the step before."""

    node: str
    cpu: str = "0"
    memory: str = "0"


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    manifests: str
    expect: tuple[Expectation, ...] = ()
    ledger: LedgerChange | None = None


class Story(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    title: str
    from_: str
    text: str
    manifests: str
    expect: tuple[Expectation, ...] = ()
    ledger: LedgerChange | None = None
    then: tuple[Step, ...] = ()
    remove: tuple[str, ...] = ()
    """Objects without a namespace that must go when the story is over."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (Step(self.manifests, self.expect, self.ledger), *self.then)


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def load_stories() -> list[Story]:
    """The stories that come with Dray, in order."""
    folder = resources.files("dray.sim") / "stories"
    names = sorted(each.name for each in folder.iterdir() if each.name[:1].isdigit())
    return [msgspec.convert(yaml.safe_load((folder / name).read_text()), Story) for name in names]


def setup_documents() -> Iterable[dict[str, Any]]:
    return documents((resources.files("dray.sim") / "stories" / "setup.yaml").read_text())
