"""Random questions about small worlds where the last device decides: counters, shares and constraints with little to spare.

Everything comes from a seed and a number, so that a difference can be asked again. A world is asked several questions, because
claims are cheaper to make than worlds. `scenario` gives one question in the form that `dray allocate` reads.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.allocator.plain_search import SELECTORS

Json = dict[str, Any]

DRIVER = "gpu.example.com"
FEATURES = [
    "adminAccess",
    "prioritizedList",
    "partitionableDevices",
    "deviceTaints",
    "consumableCapacity",
    "fractionalCapacityRange",
    "bindingConditions",
    "deviceStatus",
    "listTypeAttributes",
]
QUESTIONS_PER_WORLD = 40
# Numbers of devices; small worlds are asked faster.
SIZES = [2, 3, 3, 4, 4, 5, 5, 6, 7, 8]
SMALL_SIZES = [2, 3, 3, 4]
SAFE_SELECTORS = [expression for expression in SELECTORS if ".model ==" not in expression]
POLICIES: list[Json] = [
    {"default": "1"},
    {"default": "2", "validValues": ["1", "2", "4"]},
    {"default": "1", "validRange": {"min": "1", "step": "1"}},
    {"default": "2", "validRange": {"min": "2", "max": "4", "step": "2"}},
]


@dataclass(frozen=True)
class World:
    name: str
    slices: list[Json]
    held: list[Json]
    questions: list[list[Json]]


def world(seed: int, number: int, sizes: Sequence[int] = SIZES) -> World:
    made = Making(random.Random(f"tight/{seed}/{number}"), sizes)
    slices = made.slices()
    questions = [made.claims() for _ in range(QUESTIONS_PER_WORLD)]
    return World(f"tight-{seed}/{number}", slices, made.held(), questions)


def scenario(asked: World, question: int) -> Json:
    return {
        "name": f"{asked.name}/{question}",
        "features": dict.fromkeys(FEATURES, True),
        "node": {"metadata": {"name": "node-1"}},
        "slices": asked.slices,
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "allocatedClaims": asked.held,
        "claims": asked.questions[question],
    }


class Making:
    """One world in the making: what it has at all is drawn first, so that worlds differ in more than numbers."""

    def __init__(self, chance: random.Random, sizes: Sequence[int] = SIZES) -> None:
        self.chance = chance
        self.sizes = sizes
        self.counters = chance.choice([0, 0, 1, 1, 2, 3])
        self.shares = self.maybe(0.4)
        self.lists = self.maybe(0.15)
        self.taints = self.maybe(0.15)
        self.is_complementary = self.maybe(0.4)
        # Few values make many devices equal.
        self.values = chance.choice([1, 2, 3])
        self.missing = chance.choice([0, 0, 0.2, 0.6])
        self.pools: dict[str, list[Json]] = {}

    def maybe(self, probability: float) -> bool:
        return self.chance.random() < probability

    # --- devices -----------------------------------------------------------------------------------------------------

    def slices(self) -> list[Json]:
        number = self.chance.choice(self.sizes)
        names = ["p"] if self.maybe(0.6) else ["p", "q"]
        for index in range(number):
            self.pools.setdefault(self.chance.choice(names), []).append(self.device(index))
        made = []
        for name, devices in self.pools.items():
            carried: list[Json] = [{"devices": devices}]
            if self.counters:
                carried.append({"sharedCounters": self.counter_sets()})
            pool = {"name": name, "generation": 1, "resourceSliceCount": len(carried)}
            for part, content in enumerate(carried):
                spec = {"driver": DRIVER, "pool": pool, "nodeName": "node-1", **content}
                made.append({"metadata": {"name": f"{name}-{part}"}, "spec": spec})
        return made

    def counter_sets(self) -> list[Json]:
        sets: dict[str, Json] = {}
        for index in range(self.counters):
            amount = {"value": str(self.chance.randint(2, 12 if self.is_complementary else 6))}
            sets.setdefault(self.counter_set(index), {})[f"c{index}"] = amount
        return [{"name": name, "counters": counters} for name, counters in sets.items()]

    @staticmethod
    def counter_set(index: int) -> str:
        return "second" if index == 2 else "first"

    def device(self, index: int) -> Json:
        attributes: Json = {"index": {"int": index}, "root": self.value()}
        for name in ("model", "slot"):
            if not self.maybe(self.missing):
                attributes[name] = {"string": self.chance.choice("ab")} if name == "model" else self.value()
        made: Json = {"name": f"d{index}", "attributes": attributes}
        if self.shares and self.maybe(0.7):
            made["allowMultipleAllocations"] = True
        if self.shares and self.maybe(0.85):
            made["capacity"] = {"memory": self.capacity("allowMultipleAllocations" in made)}
            if self.maybe(0.2):
                made["capacity"]["bandwidth"] = {"value": str(self.chance.randint(1, 4))}
        if self.counters and self.maybe(0.9):
            made["consumesCounters"] = self.drawn()
        if self.taints and self.maybe(0.3):
            made["taints"] = [{"key": "sick", "effect": "NoSchedule", "timeAdded": "2026-03-01T08:00:00Z"}]
        return made

    def value(self) -> Json:
        if self.lists and self.maybe(0.4):
            return {"ints": self.chance.sample(range(3), self.chance.randint(1, 2))}
        return {"int": self.chance.randint(0, self.values)}

    def capacity(self, is_shared: bool) -> Json:
        value = self.chance.randint(2, 6)
        if is_shared and value >= 4 and self.maybe(0.3):
            return {"value": str(value), "requestPolicy": self.chance.choice(POLICIES)}
        return {"value": str(value)}

    def drawn(self) -> list[Json]:
        if self.counters == 2 and self.is_complementary:
            weight = self.chance.randint(0, 4)
            amounts = [weight, 4 - weight]
        else:
            amounts = [self.chance.randint(0 if self.maybe(0.1) else 1, 3) for _ in range(self.counters)]
        sets: dict[str, Json] = {}
        for index, amount in enumerate(amounts):
            if self.is_complementary or index == 0 or self.maybe(0.7):
                sets.setdefault(self.counter_set(index), {})[f"c{index}"] = {"value": str(amount)}
        return [{"counterSet": name, "counters": counters} for name, counters in sets.items()]

    def held(self) -> list[Json]:
        made: list[Json] = []
        for pool, devices in self.pools.items():
            for device in devices:
                if self.maybe(0.1):
                    result: Json = {"request": "r", "driver": DRIVER, "pool": pool, "device": device["name"]}
                    if "allowMultipleAllocations" in device:
                        result["shareID"] = f"00000000-0000-4000-8000-{len(made):012d}"
                        if "capacity" in device:
                            result["consumedCapacity"] = dict.fromkeys(device["capacity"], "1")
                    made.append(
                        {
                            "metadata": {"namespace": "others", "name": f"holder-{len(made)}"},
                            "status": {"allocation": {"devices": {"results": [result]}}},
                        }
                    )
        return made

    # --- claims ------------------------------------------------------------------------------------------------------

    def claims(self) -> list[Json]:
        """Often equal requests and equal claims, sometimes none alike."""
        number = self.chance.choice([1, 1, 1, 2, 3])
        alike = self.maybe(0.4)
        first = self.devices_of_claim(number)
        made = [first] + [first if alike else self.devices_of_claim(number) for _ in range(number - 1)]
        return [
            {"metadata": {"namespace": "default", "name": f"claim-{index}"}, "spec": {"devices": devices}}
            for index, devices in enumerate(made)
        ]

    def devices_of_claim(self, claims: int) -> Json:
        most = min(5, max(self.sizes)) if claims == 1 else 3
        number = self.chance.choice([1, 2, 2, 3, 3, 4, 5][: most + 2])
        alike = self.maybe(0.4)
        alternatives = self.maybe(0.35)
        requests: list[Json] = []
        for index in range(number):
            if alike and requests:
                requests.append(requests[0] | {"name": f"r{index}"})
            elif alternatives and self.maybe(0.6):
                listed = [{"name": f"s{i}", **self.option()} for i in range(self.chance.randint(1, 4))]
                requests.append({"name": f"r{index}", "firstAvailable": listed})
            else:
                admin = {"adminAccess": True} if self.maybe(0.04) else {}
                requests.append({"name": f"r{index}", "exactly": self.option() | admin})
        devices: Json = {"requests": requests}
        if self.maybe(0.35):
            devices["constraints"] = [self.constraint(requests) for _ in range(self.chance.choice([1, 1, 2]))]
        return devices

    def option(self) -> Json:
        made: Json = {
            "deviceClassName": "any",
            "allocationMode": "ExactCount",
            "count": self.chance.choice([1, 1, 1, 1, 2, 3]),
        }
        if self.maybe(0.06):
            made |= {"allocationMode": "All"}
            del made["count"]
        if self.maybe(0.4):
            listed = SAFE_SELECTORS if self.maybe(0.95) else list(SELECTORS)
            made["selectors"] = [{"cel": {"expression": self.chance.choice(listed)}}]
        if self.shares and self.maybe(0.7):
            made["capacity"] = {"requests": {"memory": str(self.chance.randint(0, 4))}}
        if self.taints and self.maybe(0.5):
            made["tolerations"] = [{"key": "sick", "operator": "Exists"}]
        return made

    def constraint(self, requests: list[Json]) -> Json:
        names = [request["name"] for request in requests]
        names += [
            f"{request['name']}/{each['name']}" for request in requests for each in request.get("firstAvailable", [])
        ]
        kind = self.chance.choice(["matchAttribute", "distinctAttribute"])
        made: Json = {kind: f"{DRIVER}/{self.chance.choice(['root', 'slot'])}"}
        if self.maybe(0.5):
            made["requests"] = self.chance.sample(names, self.chance.randint(1, min(3, len(names))))
        return made


def main() -> None:
    """Prints scenarios: tight.py SEED WORLDS."""
    for number in range(int(sys.argv[2])):
        asked = world(int(sys.argv[1]), number)
        for question in range(len(asked.questions)):
            print(json.dumps(scenario(asked, question), separators=(",", ":")))


if __name__ == "__main__":
    main()
