"""How big the parts of a device can be: what validation lets through, so what an estimate may count on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dray.cel.ranges import Range

MAX_DOMAIN, MAX_ID, MAX_DRIVER, MAX_VALUE, MAX_ENTRIES = 63, 32, 63, 64, 32


@dataclass(frozen=True, slots=True)
class Size:
    """The most characters, elements or entries of a value, and the sizes of what it holds."""

    most: int
    fields: Mapping[str, Size] = field(default_factory=dict)
    key: Size | None = None
    value: Size | None = None
    named_values: bool = False  # a name below it stands for one of its values


ATTRIBUTE = Size(MAX_VALUE)
_DOMAIN, _ID = Size(MAX_DOMAIN), Size(MAX_ID)
_ATTRIBUTES = Size(MAX_ENTRIES, key=_ID, value=ATTRIBUTE, named_values=True)
_CAPACITIES = Size(MAX_ENTRIES, key=_ID, value=Size(0))
DEVICE = Size(
    0,
    {
        "driver": Size(MAX_DRIVER),
        "attributes": Size(MAX_ENTRIES, key=_DOMAIN, value=_ATTRIBUTES),
        "capacity": Size(MAX_ENTRIES, key=_DOMAIN, value=_CAPACITIES),
        "allowMultipleAllocations": Size(1),
    },
)


def size_at(size: Size, path: tuple[str, ...]) -> Range | None:
    for name in path:
        if name == "@items" or name == "@values":
            below = size.value
        elif name == "@keys":
            below = size.key
        else:
            below = size.fields.get(name)
            if below is None and size.named_values:
                below = size.value
        if below is None:
            return None
        size = below
    return Range(0, size.most)
