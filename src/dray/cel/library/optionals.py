"""Optional values: `optional.of(x)`, `.?field`, `[?index]`, `orValue`."""

from __future__ import annotations

from typing import Any

from dray.cel.errors import CelError
from dray.cel.functions import Library
from dray.cel.types import BOOL, DYN, INT, STRING, list_of, map_of, optional_of, param
from dray.cel.values import NONE, Duration, Optional, Timestamp, is_list, is_map, no_overload

library = Library("optionals")
T, K, V = param("T"), param("K"), param("V")
_ANY_OPTIONAL = optional_of(V)


def value_of(optional: Any) -> Any:
    if optional is NONE:
        raise CelError("optional.none() dereference")
    return optional.value


def of_non_zero(value: Any) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _is_zero(value: Any) -> bool:
    if value is None:
        return True
    if type(value) in (Duration, Timestamp):
        return bool(value.nanos == 0)
    if is_list(value) or is_map(value) or isinstance(value, (bool, int, float, str, bytes)):
        return not value
    return False


def unwrap(optionals: Any) -> list[Any]:
    out = []
    for item in optionals:
        if type(item) is not Optional:
            raise no_overload()
        if item is not NONE:
            out.append(item.value)
    return out


def _declare() -> None:
    add = library.add
    add("optional.of", "optional_of", (V,), _ANY_OPTIONAL, Optional)
    add("optional.ofNonZeroValue", "optional_ofNonZeroValue", (V,), _ANY_OPTIONAL, of_non_zero)
    add("optional.none", "optional_none", (), _ANY_OPTIONAL, lambda: NONE)
    add("value", "optional_value", (_ANY_OPTIONAL,), V, value_of, member=True)
    add("hasValue", "optional_hasValue", (_ANY_OPTIONAL,), BOOL, lambda o: o is not NONE, member=True)
    add("or", "optional_or_optional", (_ANY_OPTIONAL, _ANY_OPTIONAL), _ANY_OPTIONAL, None, member=True)
    add("orValue", "optional_orValue_value", (_ANY_OPTIONAL, V), V, None, member=True)
    optionals = list_of(_ANY_OPTIONAL)
    add("optional.unwrap", "optional_unwrap", (optionals,), list_of(V), unwrap)
    add("unwrapOpt", "optional_unwrapOpt", (optionals,), list_of(V), unwrap, member=True)
    lists = list_of(V)
    add(
        "first", "list_first", (lists,), _ANY_OPTIONAL, lambda items: Optional(items[0]) if items else NONE, member=True
    )
    add("last", "list_last", (lists,), _ANY_OPTIONAL, lambda items: Optional(items[-1]) if items else NONE, member=True)
    maps = map_of(K, V)
    add("_?._", "select_optional_field", (DYN, STRING), _ANY_OPTIONAL, None)
    add("_[?_]", "list_optindex_optional_int", (lists, INT), _ANY_OPTIONAL, None)
    add("_[?_]", "optional_list_optindex_optional_int", (optional_of(lists), INT), _ANY_OPTIONAL, None)
    add("_[?_]", "map_optindex_optional_value", (maps, K), _ANY_OPTIONAL, None)
    add("_[?_]", "optional_map_optindex_optional_value", (optional_of(maps), K), _ANY_OPTIONAL, None)
    add("_[_]", "optional_list_index_int", (optional_of(lists), INT), _ANY_OPTIONAL, None)
    add("_[_]", "optional_map_index_value", (optional_of(maps), K), _ANY_OPTIONAL, None)


_declare()
