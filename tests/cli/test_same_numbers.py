"""`dray top`, `dray devices`, `dray simulate`, its report and the dashboard count the devices of one cluster alike."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.builders.manifests import a_claim, a_device, a_node, a_result, a_slice, a_taint_rule

from dray.allocator import Inventory, Ledger
from dray.api.codec import to_object
from dray.api.resource import DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.cli.devices import devices
from dray.cli.simulate import simulate
from dray.cli.top import top
from dray.dashboard.device_health import DeviceHealthReports
from dray.dashboard.device_rows import LETTERS, occupancy_of, pool_row

Document = dict[str, Any]
WORDS = re.compile(
    r"(\d+) devices?(?: \(\d+ with their partitions\))?: (\d+) used(?:, (\d+) partly used)?, (\d+) free"
    r"(?:, (\d+) blocked)?(?:, (\d+) tainted)?"
)
NAMES = ("all", "used", "partlyUsed", "free", "blocked", "tainted")


class RandomDevices:
    """Nodes with whole devices, devices with shares and cards that can be cut; claims hold some of each."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.documents: list[Document] = []
        self.results: list[Document] = []
        for number in range(self.chance.randint(1, 4)):
            node = f"node-{number}"
            self.documents.append(a_node(node, {"cpu": "8", "memory": "16Gi", "pods": "20"}))
            self._whole(node)
            self._shared(node)
            self._cards(node)
        for number, result in enumerate(self.results):
            self.documents.append(a_claim(f"claim-{number}", results=[result]))
        if self.chance.random() < 0.5:
            self.documents.append(a_taint_rule(pool="node-0", effect="NoSchedule"))

    def _publish(self, name: str, node: str, driver: str, made: list[Document], **fields: Any) -> None:
        self.documents.append(a_slice(name, *made, node=node, pool=node, driver=driver, **fields))

    def _whole(self, node: str) -> None:
        made = [a_device(f"d-{number}") for number in range(self.chance.randint(1, 5))]
        taint = {"key": "sick", "effect": "NoSchedule"}
        for device in made:
            if self.chance.random() < 0.2:
                device["taints"] = [taint]
            if self.chance.random() < 0.4:
                admin = {"adminAccess": True} if self.chance.random() < 0.2 else {}
                self.results.append(a_result(device["name"], driver="whole.example.com", pool=node, **admin))
        if self.chance.random() < 0.3:
            self.results.append(a_result("lost", driver="whole.example.com", pool=node))
        # A pool of which a slice is missing gives nothing away.
        self._publish(f"{node}-whole", node, "whole.example.com", made, slices=2 if self.chance.random() < 0.2 else 1)

    def _shared(self, node: str) -> None:
        made = []
        for number in range(self.chance.randint(1, 4)):
            capacity: Document = {"value": "40Gi"}
            if self.chance.random() < 0.5:
                capacity["requestPolicy"] = {"default": "12Gi", "validRange": {"min": "12Gi"}}
            made.append(a_device(f"s-{number}", allowMultipleAllocations=True, capacity={"memory": capacity}))
            for amount in self.chance.choice([[], ["12Gi"], ["20Gi", "12Gi"], ["28Gi", "12Gi"]]):
                self.results.append(self._share(f"s-{number}", "shared.example.com", node, amount))
        self._publish(f"{node}-shared", node, "shared.example.com", made)

    def _share(self, device: str, driver: str, node: str, amount: str) -> Document:
        share_id = f"00000000-0000-4000-8000-{len(self.results):012}"
        return a_result(device, driver=driver, pool=node, shareID=share_id, consumedCapacity={"memory": amount})

    def _cards(self, node: str) -> None:
        made: list[Document] = []
        sets: dict[str, dict[str, str]] = {}
        for number in range(self.chance.randint(1, 3)):
            card = f"card-{number}"
            sets[card] = {"slots": "4"}
            made += [_part(f"{card}-{size}-{copy}", card, size) for size in (4, 2, 1) for copy in range(4 // size)]
            made[-1] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
            cut = self.chance.choice([[], ["4-0"], ["2-0"], ["2-0", "2-1"], ["2-0", "1-0"], ["1-0", "1-1", "1-2"]])
            self.results += [a_result(f"{card}-{name}", driver="card.example.com", pool=node) for name in cut]
            if cut == ["2-0"] and self.chance.random() < 0.5:
                self.results.append(self._share(f"{card}-1-3", "card.example.com", node, "10Gi"))
        self._publish(f"{node}-cards", node, "card.example.com", made, slices=2)
        self._publish(f"{node}-sets", node, "card.example.com", [], slices=2, counters=sets)


def _part(name: str, card: str, slots: int) -> Document:
    drawn = {"counterSet": card, "counters": {"slots": {"value": str(slots)}}}
    return a_device(name, consumesCounters=[drawn])


def counted(words: str) -> dict[str, int]:
    found = WORDS.search(words)
    assert found is not None, words
    return dict(zip(NAMES, (int(number or 0) for number in found.groups()), strict=True))


def printed(command: Any, *arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def on_the_page(documents: list[Document]) -> dict[str, int]:
    """The sums over the rows that the dashboard sends to the page."""
    inventory, ledger = Inventory(), Ledger()
    for document in documents:
        match document["kind"]:
            case "ResourceSlice":
                inventory.apply_slice(to_object(document, ResourceSlice))
            case "DeviceTaintRule":
                inventory.apply_taint_rule(to_object(document, DeviceTaintRule))
            case "ResourceClaim":
                ledger.apply_claim(to_object(document, ResourceClaim))
    units: Counter[str] = Counter()
    for pool_id in inventory.pool_ids():
        view = inventory.whole_pool(pool_id)
        assert view is not None
        units.update(pool_row(view, occupancy_of(view, ledger), ledger, DeviceHealthReports(), "0")["units"])
    return {"all": units.total(), **dict(zip(NAMES[1:], (units[letter] for letter in LETTERS.values()), strict=True))}


@pytest.mark.parametrize("seed", range(25))
def test_five_tools_one_answer(seed: int, tmp_path: Path) -> None:
    documents = RandomDevices(seed).documents
    dump, report = tmp_path / "dump.json", tmp_path / "report.html"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": documents}))
    file = ("-f", str(dump))
    answers = {
        "top": counted(printed(top, *file)),
        "devices": counted(printed(devices, *file).splitlines()[-1]),
        "devices -o json": json.loads(printed(devices, *file, "-o", "json"))["summary"],
        "simulate": counted(printed(simulate, *file)),
        "simulate -o json": json.loads(printed(simulate, *file, "-o", "json", "--report", str(report)))["summary"][
            "devices"
        ],
        "dashboard": on_the_page(documents),
    }
    by_driver = [counted(words) for words in re.findall(r'class="value">([^<]*devices?:[^<]*)<', report.read_text())]
    answers["report"] = {name: sum(row[name] for row in by_driver) for name in NAMES}
    answers["devices -o json"].pop("gone", None)
    assert answers["top"]["all"] > 0
    assert {tool: numbers for tool, numbers in answers.items() if numbers != answers["top"]} == {}


def test_the_fullest_node_comes_first(tmp_path: Path) -> None:
    """By what is taken: a card that is cut into eight is not fuller than two whole cards in use."""
    sets = {f"card-{card}": {"slots": "8"} for card in range(2)}
    parts = [_part(f"card-{card}-1-{copy}", f"card-{card}", 1) for card in range(2) for copy in range(8)]
    cards = [_part(f"card-{card}", f"card-{card}", 8) for card in range(2)]
    documents: list[Document] = []
    for node in ("cut", "busy"):
        documents.append(a_node(node, {"cpu": "8", "memory": "16Gi", "pods": "20"}))
        documents.append(a_slice(f"{node}-sets", node=node, pool=node, slices=2, counters=sets))
        documents.append(a_slice(node, *cards, *parts, node=node, pool=node, slices=2))
    held_parts = [a_result(f"card-0-1-{copy}", pool="cut") for copy in range(7)]
    held_cards = [a_result(f"card-{card}", pool="busy") for card in range(2)]
    documents += [a_claim("parts", results=held_parts), a_claim("cards", results=held_cards)]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": documents}))
    lines = printed(top, "-f", str(dump)).splitlines()
    assert lines[0].endswith("4 devices: 2 used, 1 partly used, 1 free")
    nodes = [line.split()[0] for line in lines if line.startswith(("cut", "busy"))]
    assert nodes == ["busy", "cut"]
