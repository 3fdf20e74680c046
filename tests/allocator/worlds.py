"""Small random worlds: a few devices of every sort, and claims that fight over them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from dray.api import codec
from dray.api.resource import ResourceClaim, ResourceSlice
from tests.allocator.builders import DRIVER, an_option, claim_object, holder_object, slice_object
from tests.allocator.plain_search import SELECTORS
from tests.builders.manifests import a_device

MODELS = ["a", "a", "b", None]


@st.composite
def devices(draw: st.DrawFn, index: int, counters: bool) -> dict[str, Any]:
    attributes: dict[str, Any] = {"index": index, "root": draw(st.sampled_from(["x", "y"]))}
    model = draw(st.sampled_from(MODELS))
    if model is not None:
        attributes["model"] = model
    if draw(st.booleans()):
        attributes["slot"] = draw(st.integers(0, 2))
    fields: dict[str, Any] = {"attributes": attributes}
    if is_shared := draw(st.integers(0, 3)) == 0:
        fields["allowMultipleAllocations"] = True
    if draw(st.booleans()):
        fields["capacity"] = {"memory": draw(published_amounts(["1", "2", "3", "4"], is_shared))}
    if counters and draw(st.booleans()):
        drawn = {"slots": {"value": str(draw(st.integers(1, 3)))}}
        fields["consumesCounters"] = [{"counterSet": "card", "counters": drawn}]
    if draw(st.integers(0, 5)) == 0:
        fields["taints"] = [{"key": "sick", "effect": "NoSchedule"}]
    return a_device(f"d{index}", **fields)


@st.composite
def slices(draw: st.DrawFn, most: int = 5) -> list[ResourceSlice]:
    published = []
    index = 0
    for pool in draw(st.sampled_from([("p",), ("p", "q")])):
        counters = draw(st.booleans())
        listed = []
        for _ in range(draw(st.integers(1, most if pool == "p" else 2))):
            listed.append(draw(devices(index, counters)))
            index += 1
        count = 2 if counters else 1
        published.append(slice_object(listed, name=f"{pool}-1", pool=pool, count=count))
        if counters:
            total = {"slots": {"value": str(draw(st.integers(1, 5)))}}
            sets = [{"name": "card", "counters": total}]
            published.append(slice_object([], name=f"{pool}-2", pool=pool, count=count, sharedCounters=sets))
    return published


@st.composite
def options(draw: st.DrawFn, admin: bool = True) -> dict[str, Any]:
    count = draw(st.sampled_from([1, 1, 1, 2, 3, 0]))
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        fields["selectors"] = [draw(st.sampled_from(list(SELECTORS)))]
    if draw(st.integers(0, 3)) == 0:
        fields["capacity"] = {"memory": str(draw(st.integers(0, 3)))}
    if draw(st.integers(0, 2)) == 0:
        fields["tolerations"] = [{"key": "sick", "operator": "Exists"}]
    if admin and draw(st.integers(0, 7)) == 0:
        fields["adminAccess"] = True
    return an_option(count, **fields)


@st.composite
def requests(draw: st.DrawFn, name: str) -> dict[str, Any]:
    if draw(st.integers(0, 3)) == 0:
        alternatives = [{"name": f"s{i}", **draw(options(admin=False))} for i in range(draw(st.integers(1, 3)))]
        return {"name": name, "firstAvailable": alternatives}
    return {"name": name, "exactly": draw(options())}


@st.composite
def constraints(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    kind = draw(st.sampled_from(["matchAttribute", "distinctAttribute"]))
    covered = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    return {"requests": covered, kind: f"{DRIVER}/{draw(st.sampled_from(['root', 'slot']))}"}


@st.composite
def claims(draw: st.DrawFn) -> list[ResourceClaim]:
    made = []
    for index in range(draw(st.integers(1, 2))):
        names = [f"r{i}" for i in range(draw(st.integers(1, 3)))]
        asked = [draw(requests(name)) for name in names]
        limits = [draw(constraints(names)) for _ in range(draw(st.integers(0, 2)))]
        made.append(claim_object(*asked, name=f"claim-{index}", constraints=limits))
    return made


@st.composite
def holders(draw: st.DrawFn, published: list[ResourceSlice]) -> list[ResourceClaim]:
    made = []
    for one in published:
        for device in one.spec.devices:
            if draw(st.integers(0, 4)) == 0:
                held: dict[str, Any] = {"device": device.name}
                if device.allow_multiple_allocations or draw(st.integers(0, 5)) == 0:
                    held["shareID"] = f"00000000-0000-4000-8000-{len(made):012d}"
                    if device.capacity:
                        held["consumedCapacity"] = {"memory": str(draw(st.integers(0, 2)))}
                made.append(holder_object(held, name=f"holder-{len(made)}", pool=one.spec.pool.name))
    return made


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[ResourceSlice], list[ResourceClaim], list[ResourceClaim]]:
    """Slices, claims that hold devices, claims that want some."""
    published = draw(slices())
    return published, draw(holders(published)), draw(claims())


def as_text(*objects: Any) -> bytes:
    return b"\n".join(codec.encode(one) for group in objects for one in group)


@st.composite
def crowded_worlds(draw: st.DrawFn) -> tuple[list[ResourceSlice], list[ResourceClaim], list[ResourceClaim]]:
    """Many devices of few kinds, and claims that cannot all have them: what interchanging equal devices is for."""
    sharing, counters, capacity = draw(st.integers(0, 2)), draw(st.booleans()), draw(st.booleans())
    listed = []
    for index in range(draw(st.integers(3, 6))):
        fields: dict[str, Any] = {
            "attributes": {
                "index": draw(st.sampled_from([index, 1, 1])),
                "root": draw(st.sampled_from("xy")),
                "model": draw(st.sampled_from("ab")),
            }
        }
        if is_shared := sharing == 2 or (sharing == 1 and draw(st.booleans())):
            fields["allowMultipleAllocations"] = True
        if capacity:
            fields["capacity"] = {"memory": draw(published_amounts(["2", "2", "4"], is_shared))}
        if counters:
            drawn = {"slots": {"value": draw(st.sampled_from("112"))}}
            fields["consumesCounters"] = [{"counterSet": "card", "counters": drawn}]
        listed.append(a_device(f"d{index}", **fields))
    count = 2 if counters else 1
    published = [slice_object(listed, name="p-1", pool="p", count=count)]
    if counters:
        sets = [{"name": "card", "counters": {"slots": {"value": draw(st.sampled_from("23456"))}}}]
        published.append(slice_object([], name="p-2", pool="p", count=count, sharedCounters=sets))
    names = [f"r{i}" for i in range(draw(st.integers(1, 4)))]
    asked = [{"name": name, "exactly": draw(crowded_options(capacity))} for name in names]
    limits = [draw(constraints(names)) for _ in range(draw(st.integers(0, 1)))]
    return published, [], [claim_object(*asked, name="claim-0", constraints=limits)]


@st.composite
def published_amounts(draw: st.DrawFn, amounts: list[str], is_shared: bool) -> dict[str, Any]:
    """An amount; of a device that is shared now and then one that claims either all ask for, or none."""
    published: dict[str, Any] = {"value": draw(st.sampled_from(amounts))}
    if is_shared and draw(st.integers(0, 3)) == 0:
        published["requestPolicy"] = {"strategy": "ConsumedOrNever"}
    return published


@st.composite
def crowded_options(draw: st.DrawFn, capacity: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        fields["selectors"] = [draw(st.sampled_from(list(SELECTORS)))]
    if capacity and draw(st.booleans()):
        fields["capacity"] = {"memory": draw(st.sampled_from("012"))}
    return an_option(draw(st.sampled_from([1, 1, 2, 3])), **fields)
