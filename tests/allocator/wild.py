"""Random questions that mix every feature: the worlds of `tight` with more drivers, reach, taints, conditions, groups and errors."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

from tests.allocator import tight

Json = dict[str, Any]

ALWAYS = ["adminAccess", "prioritizedList", "partitionableDevices", "deviceTaints", "consumableCapacity"]
USUALLY = ["fractionalCapacityRange", "bindingConditions", "deviceStatus", "listTypeAttributes"]
SOMETIMES = ["optionalNodeOperations", "derivedAttributes", "compatibilityGroups"]
DRIVERS = [tight.DRIVER, "a.example.com", "z.example.com"]
QUESTIONS_PER_WORLD = 4
ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
OTHER_ZONE = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}


def scenarios(seed: int, number: int) -> Iterator[Json]:
    chance = random.Random(f"wild/{seed}/{number}")
    made = Making(chance)
    slices = made.slices()
    held = made.held()
    node: Json = {"metadata": {"name": "node-1", "labels": {"zone": chance.choice("ab")}}}
    if made.maybe(0.3):
        node["status"] = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
    expressions = ["true", f'device.driver == "{made.drivers[0]}"', "device.allowMultipleAllocations"]
    classes = [
        {"metadata": {"name": "any"}, "spec": {}},
        {"metadata": {"name": "some"}, "spec": {"selectors": [{"cel": {"expression": chance.choice(expressions)}}]}},
    ]
    for question in range(QUESTIONS_PER_WORLD):
        yield {
            "name": f"wild-{seed}/{number}/{question}",
            "features": dict.fromkeys(made.features, True),
            "node": node,
            "slices": slices,
            "classes": classes,
            "allocatedClaims": held,
            "claims": made.claims(),
        }


class Making(tight.Making):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.features = [*ALWAYS, *[name for name in USUALLY if self.maybe(0.9)]]
        self.features += [name for name in SOMETIMES if self.maybe(0.4)]
        if self.maybe(0.05):
            self.features.remove(chance.choice(ALWAYS))
        self.drivers = chance.sample(DRIVERS, chance.choice([1, 1, 2]))
        self.taints = self.maybe(0.3)
        self.binds = self.maybe(0.2)
        self.groups = self.maybe(0.6) and "compatibilityGroups" in self.features
        self.is_broken = self.maybe(0.1)
        self.reach = chance.choice(["node", "node", "mixed", "device"])

    def slices(self) -> list[Json]:
        made = super().slices()
        for document in made:
            spec = document["spec"]
            spec["driver"] = self.chance.choice(self.drivers) if not self.counters else self.drivers[0]
            if self.reach == "mixed":
                del spec["nodeName"]
                spec |= self.chance.choice([{"nodeName": "node-1"}, {"allNodes": True}, self.selector()])
            elif self.reach == "device" and "devices" in spec:
                del spec["nodeName"]
                spec["perDeviceNodeSelection"] = True
                for device in spec["devices"]:
                    ways = [{"nodeName": "node-1"}, {"nodeName": "node-2"}, {"allNodes": True}, self.selector()]
                    device |= self.chance.choice(ways)
            if "optionalNodeOperations" in self.features and self.maybe(0.2) and "devices" in spec:
                spec["skipNodeOperations"] = ["*"]
            if self.is_broken and self.maybe(0.3):
                spec["pool"] = spec["pool"] | {"generation": 2}
        if self.is_broken and self.maybe(0.2):
            for document in made:
                document["spec"]["pool"]["resourceSliceCount"] = 3
        self.chance.shuffle(made)
        return made

    def selector(self) -> Json:
        return {"nodeSelector": {"nodeSelectorTerms": [self.chance.choice([ZONE, OTHER_ZONE])]}}

    def device(self, index: int) -> Json:
        made = super().device(index)
        if self.taints and self.maybe(0.4):
            effect = self.chance.choice(["NoSchedule", "NoExecute", "None"])
            made["taints"] = [
                {"key": key, "effect": effect, "timeAdded": "2026-03-01T08:00:00Z"}
                for key in self.chance.choice([["sick"], ["old"], ["sick", "old"]])
            ]
        if self.binds and self.maybe(0.3):
            made |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
            if self.maybe(0.5):
                made["bindsToNode"] = True
        if self.groups:
            for consumed in made.get("consumesCounters", []):
                if self.maybe(0.7):
                    consumed["compatibilityGroups"] = self.chance.sample(["g1", "g2", "g3"], self.chance.randint(1, 2))
        return made

    def option(self) -> Json:
        made = super().option()
        if self.maybe(0.3):
            made["deviceClassName"] = "some"
        if self.maybe(0.02):
            made["deviceClassName"] = "missing"
        if self.maybe(0.1):
            made["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVERS[0]}"].slot == 1'}}]
        if "derivedAttributes" in self.features and self.maybe(0.3):
            expressions = [
                "1",
                "2",
                f'device.attributes["{DRIVERS[0]}"].index % 2',
                f'device.attributes["{DRIVERS[0]}"].slot',
            ]
            made["derivedAttributes"] = [{"name": f"{DRIVERS[0]}/root", "expression": self.chance.choice(expressions)}]
        return made


def main() -> None:
    """Prints scenarios: wild.py SEED WORLDS."""
    for number in range(int(sys.argv[2])):
        for document in scenarios(int(sys.argv[1]), number):
            print(json.dumps(document, separators=(",", ":")))


if __name__ == "__main__":
    main()
