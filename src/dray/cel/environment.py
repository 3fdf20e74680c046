"""The environment of an expression: variables, types and functions, and how big the variables' parts can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from dray.cel.cost_ranges import Range
from dray.cel.functions import Library, Overload
from dray.cel.library import (
    formats,
    kubernetes,
    lists,
    network,
    operators,
    optionals,
    regex,
    standard,
    strings,
    times,
    urls,
)
from dray.cel.types import ANY, BOOL, DYN, QUANTITY, STRING, Type, map_of
from dray.cel.values import TypeValue

COST_LIMIT = 1_000_000
MAX_EXPRESSION_LENGTH = 10_240

BASE_LIBRARIES = (
    operators.library,
    standard.library,
    times.library,
    strings.library,
    lists.library,
    regex.library,
    optionals.library,
    kubernetes.library,
    network.library,
    urls.library,
    formats.library,
)

_TYPE_NAMES = {
    name: TypeValue(name)
    for name in [
        "bool",
        "bytes",
        "double",
        "int",
        "list",
        "map",
        "null_type",
        "string",
        "type",
        "uint",
        "optional_type",
        "google.protobuf.Timestamp",
        "google.protobuf.Duration",
        "net.IP",
        "net.CIDR",
    ]
}
DEVICE_TYPE = Type("struct", "kubernetes.DRADevice")

# --- how big the parts of a device can be: validation lets no more through, so an estimate may count on it ---------------

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


# The fields of a type that expressions can make values of, by its name; None for other types.
Constructible = Callable[[str], Mapping[str, Type] | None]


def _nothing_constructible(name: str) -> None:
    return None


class Environment:
    """Compared by identity: ask `devices` and `of` for it, they give the same one again."""

    def __init__(
        self,
        variables: Mapping[str, Type],
        fields: Mapping[str, Mapping[str, Type]] = MappingProxyType({}),
        libraries: tuple[Library, ...] = BASE_LIBRARIES,
        sizes: Mapping[str, Size] = MappingProxyType({}),
        dynamic_result: Type = DYN,
        cost_limit: int = COST_LIMIT,
        mixed_literals: bool = False,
        quoted_fields: bool = False,
        constructible: Constructible = _nothing_constructible,
    ) -> None:
        self.variables = dict(variables)
        self.fields = fields
        self.sizes = sizes
        self.dynamic_result = dynamic_result  # stands for every type in a result
        self.cost_limit = cost_limit
        self.mixed_literals = mixed_literals
        self.quoted_fields = quoted_fields
        self.constructible = constructible
        self.functions: dict[str, list[Overload]] = {}
        for library in libraries:
            for name, overloads in library.overloads.items():
                self.functions.setdefault(name, []).extend(overloads)

    @staticmethod
    def devices(stored: bool = False, list_attributes: bool = True, consumable_capacity: bool = True) -> Environment:
        """For device selectors. What is stored already may use everything, whatever the gates say now."""
        if stored:
            list_attributes = consumable_capacity = True
        return _devices(list_attributes, consumable_capacity)

    @staticmethod
    def of(
        variables: Mapping[str, Type], cost_limit: int = COST_LIMIT, libraries: tuple[Library, ...] = ()
    ) -> Environment:
        """Other variables with the same libraries and more, e.g. `{"object": DYN}` for admission policies."""
        key = (tuple(sorted(variables.items(), key=lambda item: item[0])), cost_limit, tuple(map(id, libraries)))
        found = _others.get(key)
        if found is None:
            every = (*BASE_LIBRARIES, lists.includes_library, *libraries)
            found = _others[key] = Environment(variables, libraries=every, cost_limit=cost_limit)
        return found

    def lookup(self, name: str) -> Type | TypeValue | None:
        found = self.variables.get(name) or _TYPE_NAMES.get(name)
        return TypeValue(name) if found is None and name in self.fields else found

    def size_of(self, path: tuple[str, ...]) -> Range | None:
        """The largest size of the part of a variable at `path`; None if nothing is known."""
        root = self.sizes.get(path[0])
        return None if root is None else size_at(root, path[1:])


@lru_cache(maxsize=8)
def _devices(list_attributes: bool, consumable_capacity: bool) -> Environment:
    attribute = DYN if list_attributes else ANY
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, attribute)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    if consumable_capacity:
        fields["allowMultipleAllocations"] = BOOL
    libraries = (*BASE_LIBRARIES, lists.includes_library) if list_attributes else BASE_LIBRARIES
    return Environment(
        {"device": DEVICE_TYPE},
        {DEVICE_TYPE.name: fields},
        libraries,
        {"device": DEVICE},
        dynamic_result=attribute,
    )


_others: dict[object, Environment] = {}
