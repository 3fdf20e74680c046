"""Hard questions of any size: sums of counters and shares that do not work out, although each device alone would do.

A plain search tries exponentially many combinations of them. `SHAPES` has each shape with the sizes that benchmarks and tests
ask, and with the outcome that every size has.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from allocator_worlds import CLASS, DRIVER, FEATURES

Json = dict[str, Any]


def complementary_counters(size: int) -> Json:
    """Each device draws w from one counter and S - w from the other; half of the devices must draw both sums exactly.

    All w are even and the first sum is odd, so no half does.
    """
    return _question([_claim("claim", [_exactly("r", size // 2)])], *_complementary(size))


def complementary_counters_as_claims(size: int) -> Json:
    """The same with one claim per device."""
    claims = [_claim(f"claim-{n}", [_exactly("r", 1)]) for n in range(size // 2)]
    return _question(claims, *_complementary(size))


def _complementary(size: int) -> tuple[list[Json], Json]:
    chance = random.Random(size)
    weights = [2 * chance.randint(1, 2 * size) for _ in range(size)]
    half, together = size // 2, 4 * size + 2
    first = sum(sorted(weights)[size // 4 : size // 4 + half]) | 1
    devices = [_drawing(f"dev-{i}", **_two_parts(weight, together)) for i, weight in enumerate(weights)]
    return devices, _two_parts(first, half * together)


def shares_one_unit_too_many(size: int) -> Json:
    """Shares that would fill all devices to the brim, and one unit more."""
    amounts = [n % 9 + 1 for n in range(size)]
    wanted = amounts + [10 - amount for amount in amounts]
    wanted[0] += 1
    requests = [_exactly(f"r{n}", 1, memory=amount) for n, amount in enumerate(wanted[:32])]
    more = [_exactly(f"r{n}", 1, memory=amount) for n, amount in enumerate(wanted[32:])]
    claims = [_claim("claim", requests)] + ([_claim("more", more)] if more else [])
    return _question(claims, [_shared(f"dev-{i}", 10) for i in range(size)])


def shares_to_the_brim(size: int) -> Json:
    """Three shares for each device, in random order, that fill all devices and leave nothing."""
    chance = random.Random(size)
    amounts = []
    for _ in range(size):
        low, high = sorted(chance.sample(range(1, 20), 2))
        amounts += [low, high - low, 20 - high]
    chance.shuffle(amounts)
    return _question(_claims_of(amounts), [_shared(f"dev-{i}", 20) for i in range(size)])


def shares_of_unlike_devices(size: int) -> Json:
    """Even shares in devices of odd capacity, each request with another model that it does not want: every device has sums of its own."""
    chance = random.Random(size)
    amounts = [2 * chance.randint(100_000, 200_000) for _ in range(4 * size)]
    capacity = sum(amounts) // size // 2 * 2 + 1
    devices = [_shared(f"dev-{i}", capacity) | {"attributes": {"tier": {"int": i}}} for i in range(size)]
    claims = _claims_of(amounts)
    for n, request in enumerate(request for claim in claims for request in claim["spec"]["devices"]["requests"]):
        unwanted = f'device.attributes["{DRIVER}"].tier != {n % size}'
        request["exactly"]["selectors"] = [{"cel": {"expression": unwanted}}]
    return _question(claims, devices)


def partition_of_two(size: int) -> Json:
    """Even shares that would have to fill two devices of odd capacity to the brim."""
    chance = random.Random(size)
    amounts = [2 * chance.randint(5_000, 20_000) for _ in range(size)]
    half = sum(amounts) // 2
    capacity = half if half % 2 else half + 1
    amounts[0] += 2 * capacity - sum(amounts)
    return _question(_claims_of(amounts), [_shared(f"dev-{i}", capacity) for i in range(2)])


def _claims_of(amounts: list[int]) -> list[Json]:
    """One share in each request, as many requests in each claim as it may have."""
    requests = [_exactly(f"r{n}", 1, memory=amount) for n, amount in enumerate(amounts)]
    return [_claim(f"claim-{first}", requests[first : first + 32]) for first in range(0, len(requests), 32)]


def eight_alternatives(size: int) -> Json:
    """Every request has eight kinds of partition to choose from; together they would have to draw two sums exactly."""
    return _alternatives(size, 8)


def alternatives_for_eight(size: int) -> Json:
    """The same with eight requests and so many alternatives."""
    return _alternatives(8, size)


def _alternatives(requests: int, kinds: int) -> Json:
    chance = random.Random(requests)
    together = 100
    devices = [
        _drawing(f"dev-{tier}-{n}", **_two_parts(2 * chance.randint(1, 40), together))
        | {"attributes": {"tier": {"int": tier}}}
        for tier in range(kinds)
        for n in range(requests)
    ]
    alternatives = [{"name": f"s{tier}", **_tier(tier)} for tier in range(kinds)]
    wanted = [{"name": f"r{n}", "firstAvailable": alternatives} for n in range(requests)]
    return _question([_claim("claim", wanted)], devices, _two_parts(requests * 40 | 1, requests * together))


def half_and_then_all(size: int) -> Json:
    """Half of the partitions, any of them, and then all other devices, which draw what is left but for one unit."""
    chance = random.Random(size)
    weights = [2 * chance.randint(1, size) for _ in range(2 * size)]
    together = 2 * size + 2
    first = sum(sorted(weights)[size // 2 : size // 2 + size]) | 1
    devices = [
        _drawing(f"dev-{i}", **_two_parts(weight, together)) | {"attributes": {"tier": {"int": 0}}}
        for i, weight in enumerate(weights)
    ]
    devices += [_drawing(f"rest-{i}", x=2, y=2) | {"attributes": {"tier": {"int": 1}}} for i in range(4)]
    requests = [
        {"name": "half", "exactly": _tier(0) | {"count": size}},
        {"name": "rest", "exactly": _tier(1) | {"allocationMode": "All"}},
    ]
    return _question([_claim("claim", requests)], devices, _two_parts(first + 8, size * together + 16))


@dataclass(frozen=True)
class Shape:
    """`sizes` from smaller to larger; `most_steps` holds for all of them."""

    name: str
    scenario: Callable[[int], Json]
    sizes: tuple[int, ...]
    most_steps: int
    outcome: str = "unallocatable"

    def line(self, size: int) -> bytes:
        return json.dumps(self.scenario(size), separators=(",", ":")).encode()


SHAPES = (
    Shape("two complementary counters", complementary_counters, (24, 48, 64), 150),
    Shape("two complementary counters, as claims", complementary_counters_as_claims, (16, 32, 64), 150),
    Shape("shares, one unit too many", shares_one_unit_too_many, (7, 14, 28), 700),
    Shape("shares to the brim", shares_to_the_brim, (7, 14, 28), 2500, "allocated"),
    Shape("shares of unlike devices", shares_of_unlike_devices, (4, 8, 12), 500),
    Shape("partition into two", partition_of_two, (22, 44, 60), 100),
    Shape("eight alternatives with counters", eight_alternatives, (6, 12, 32), 600),
    Shape("alternatives for eight, with counters", alternatives_for_eight, (6, 12, 24), 600),
    Shape("half and then all, with counters", half_and_then_all, (10, 20, 28), 100),
)


def _question(claims: list[Json], devices: list[Json], counters: Json | None = None) -> Json:
    carried: list[Json] = [{"devices": devices}]
    if counters is not None:
        amounts = {name: {"value": str(value)} for name, value in counters.items()}
        carried.append({"sharedCounters": [{"name": "card", "counters": amounts}]})
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": len(carried)}
    slices = [
        {"metadata": {"name": f"slice-{n}"}, "spec": {"driver": DRIVER, "pool": pool, "nodeName": "node-0", **content}}
        for n, content in enumerate(carried)
    ]
    return {
        "name": "shape",
        "features": dict.fromkeys(FEATURES, True),
        "node": {"metadata": {"name": "node-0"}},
        "slices": slices,
        "classes": [CLASS],
        "allocatedClaims": [],
        "claims": claims,
    }


def _two_parts(x: int, together: int) -> dict[str, int]:
    return {"x": x, "y": together - x}


def _claim(name: str, requests: list[Json]) -> Json:
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"devices": {"requests": requests}}}


def _exactly(name: str, count: int, **capacity: int) -> Json:
    asked: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if capacity:
        asked["capacity"] = {"requests": {key: str(value) for key, value in capacity.items()}}
    return {"name": name, "exactly": asked}


def _tier(tier: int) -> Json:
    expression = f'device.attributes["{DRIVER}"].tier == {tier}'
    return {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": expression}}],
    }


def _drawing(name: str, **drawn: int) -> Json:
    counters = {key: {"value": str(value)} for key, value in drawn.items()}
    return {"name": name, "consumesCounters": [{"counterSet": "card", "counters": counters}]}


def _shared(name: str, memory: int) -> Json:
    return {"name": name, "capacity": {"memory": {"value": str(memory)}}, "allowMultipleAllocations": True}
