"""Lists: Kubernetes' own functions, the list extension and sets."""

from __future__ import annotations

import itertools
from typing import Any

from dray.cel.cost_ranges import (
    LIMIT,
    STRING_FACTOR,
    Range,
    fixed,
)
from dray.cel.errors import CelError
from dray.cel.functions import Estimate, Library, Sizing
from dray.cel.library import costs
from dray.cel.library.operators import MAX_LIST, add
from dray.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    param,
)
from dray.cel.values import Duration, UInt, compare, is_list, same, size, to_key

library = Library("lists")
includes_library = Library("includes")

MAX_RANGE = 1_000_000
T = param("T")
_ORDERED = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)


def is_sorted(items: Any) -> bool:
    if any(item is None for item in items):
        raise CelError("no such overload")
    return all(compare(a, b) <= 0 for a, b in itertools.pairwise(items))


def sum_of_any(items: Any) -> Any:
    """The sum of a list whose element type is only known now."""
    if not items:
        return 0
    result = items[0]
    if type(result) not in (int, UInt, float, Duration):
        raise CelError("no such overload")
    for item in items[1:]:
        result = add(result, item)
    return result


def smallest(items: Any) -> Any:
    return _extreme(items, "min", -1)


def largest(items: Any) -> Any:
    return _extreme(items, "max", 1)


def _extreme(items: Any, name: str, sign: int) -> Any:
    if not items:
        raise CelError(f"{name} called on empty list")
    best = items[0]
    compare(best, best)
    for item in items[1:]:
        if compare(item, best) == sign:
            best = item
    return best


def index_of(items: Any, element: Any) -> int:
    return next((at for at, item in enumerate(items) if same(item, element)), -1)


def last_index_of(items: Any, element: Any) -> int:
    return next((at for at in range(len(items) - 1, -1, -1) if same(items[at], element)), -1)


def includes(target: Any, element: Any) -> bool:
    """Membership in a list, equality with anything else; for attributes that turn from scalar to list."""
    if is_list(target):
        return any(same(item, element) for item in target)
    return same(target, element)


def slice_(items: Any, start: int, end: int) -> Any:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(items):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def flatten(items: Any, depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    for _ in range(depth):
        if not any(map(is_list, items)):
            break
        if sum(len(item) if is_list(item) else 1 for item in items) > MAX_LIST:
            raise CelError(f"list of more than {MAX_LIST} elements")
        items = [inner for item in items for inner in (item if is_list(item) else (item,))]
    return list(items)


def lists_range(count: int) -> list[int]:
    if count < 0:
        raise CelError(f"lists.range: size must be non-negative, got {count}")
    if count > MAX_RANGE:
        raise CelError(f"lists.range: size {count} exceeds maximum allowed ({MAX_RANGE})")
    return list(range(count))


def distinct(items: Any) -> list[Any]:
    out: list[Any] = []
    for item in items:
        if not any(same(item, seen) for seen in out):
            out.append(item)
    return out


def sort(items: Any) -> Any:
    return sort_by(items, items)


def sort_by(items: Any, keys: Any) -> Any:
    from functools import cmp_to_key

    if len(items) != len(keys):
        raise CelError("@sortByAssociatedKeys() expected a list of the same size as the associated keys list")
    if not items:
        return items
    compare(keys[0], keys[0])
    if any(type(key) is not type(keys[0]) for key in keys):
        raise CelError("list elements must have the same type")
    order = sorted(range(len(items)), key=cmp_to_key(lambda a, b: compare(keys[a], keys[b])))
    return [items[at] for at in order]


def contains(items: Any, wanted: Any) -> bool:
    return all(any(same(w, item) for item in items) for w in wanted)


def equivalent(a: Any, b: Any) -> bool:
    return contains(a, b) and contains(b, a)


def intersects(a: Any, b: Any) -> bool:
    return any(any(same(x, y) for y in b) for x in a)


def insert_pair(mapping: Any, key: Any, value: Any) -> Any:
    slot = to_key(key)
    if slot in mapping:
        raise CelError(f"insert failed: key {key} already exists")
    return {**mapping, slot: value}


def insert_entries(mapping: Any, entries: Any) -> Any:
    for slot in entries:
        if slot in mapping:
            raise CelError(f"insert failed: key {slot} already exists")
    return {**mapping, **entries}


# --- costs -----------------------------------------------------------------------------------------------------------


def _slice_cost(items: Any, start: Any, end: Any) -> int:
    valid = is_list(items) and type(start) is int and type(end) is int and 0 <= start <= end <= len(items)
    return costs.building_list(1, end - start if valid else 1)


def _range_cost(count: Any) -> int:
    return costs.building_list(1, count if type(count) is int and 0 <= count <= MAX_RANGE else 1)


def _copy_cost(items: Any) -> int:
    return costs.building_list(1, size(items))


def _flatten_cost(items: Any, depth: Any = 1) -> int:
    return costs.building_list(depth if type(depth) is int and depth >= 0 else 1, size(items))


def _self_compare_cost(items: Any, *_: Any) -> int:
    if not is_list(items) or not items:
        return costs.building_list(2.0, size(items) ** 2 if not is_list(items) else 0)
    factor = 2.0 + (STRING_FACTOR if type(items[0]) in (str, bytes) else 0.0)
    return costs.building_list(factor, len(items) ** 2)


def _sort_by_cost(_: Any, keys: Any) -> int:
    return _self_compare_cost(keys)


def _literal(call: Sizing, at: int, default: int) -> int:
    return costs.literal_size(getattr(call.args[at], "value", None), default)


def _estimate_slice(call: Sizing) -> Estimate:
    assert call.target is not None
    start = _literal(call, 0, 0)
    end = _literal(call, 1, call.size(call.target).high)
    return costs.estimate_list(1, fixed((end - start) & LIMIT))


def _estimate_range(call: Sizing) -> Estimate:
    return costs.estimate_list(1, fixed(_literal(call, 0, LIMIT)))


def _estimate_copy(call: Sizing) -> Estimate:
    return costs.estimate_list(1, costs.subject(call))


def _estimate_flatten(call: Sizing) -> Estimate:
    depth = _literal(call, 0, LIMIT) if call.args else 1
    return costs.estimate_list(float(depth), costs.subject(call))


def _estimate_distinct(call: Sizing) -> Estimate:
    length = costs.subject(call)
    return costs.estimate_list(2.0, length.times(length))


def _estimate_sort(element: Type) -> Any:
    factor = 2.0 + (STRING_FACTOR if element in (STRING, BYTES) else 0.0)

    def estimated(call: Sizing) -> Estimate:
        length = call.size(call.args[0]) if call.args else costs.subject(call)
        return costs.estimate_list(factor, length.times(length))

    return estimated


def _set_cost(rounds: int) -> Any:
    return lambda a, b: size(a) * size(b) * rounds + 1


def _estimate_set(rounds: int) -> Any:
    def estimated(call: Sizing) -> Estimate:
        product = call.size(call.args[0]).times(call.size(call.args[1]))
        return Estimate(product.scaled(float(rounds)).plus(Range(1, 1)))

    return estimated


# --- declarations ----------------------------------------------------------------------------------------------------


def _declare_kubernetes() -> None:
    rule: dict[str, Any] = {
        "member": True,
        "cost": costs.walking_first,
        "cost_by_name": True,
        "estimate": costs.estimate_walking,
    }
    for t in _ORDERED:
        items = list_of(t)
        library.add("isSorted", f"list_{t.kind}_is_sorted", (items,), BOOL, is_sorted, **rule)
        library.add("min", f"list_{t.kind}_min", (items,), t, smallest, **rule)
        library.add("max", f"list_{t.kind}_max", (items,), t, largest, **rule)
    for t, zero in ((INT, 0), (UINT, UInt(0)), (DOUBLE, 0.0), (DURATION, Duration(0))):
        library.add("sum", f"list_{t.kind}_sum", (list_of(t),), t, _sum_with(zero), **rule)
    library.add("indexOf", "list_a_index_of_int", (list_of(T), T), INT, index_of, **rule)
    library.add("lastIndexOf", "list_a_last_index_of_int", (list_of(T), T), INT, last_index_of, **rule)
    including = rule | {"estimate": costs.estimate_including}
    includes_library.add("includes", "includes", (DYN, DYN), BOOL, includes, **including)


def _sum_with(zero: Any) -> Any:
    return lambda items: sum_of_any(items) if items else zero


def _declare_extension() -> None:
    lists = list_of(T)
    add_ = library.add
    add_(
        "slice", "list_slice", (lists, INT, INT), lists, slice_, member=True, cost=_slice_cost, estimate=_estimate_slice
    )
    flat: dict[str, Any] = {"member": True, "cost": _flatten_cost, "estimate": _estimate_flatten}
    add_("flatten", "list_flatten", (list_of(lists),), lists, flatten, **flat)
    add_("flatten", "list_flatten_int", (list_of(DYN), INT), list_of(DYN), flatten, **flat)
    add_("lists.range", "lists_range", (INT,), list_of(INT), lists_range, cost=_range_cost, estimate=_estimate_range)
    add_(
        "reverse",
        "list_reverse",
        (lists,),
        lists,
        lambda items: items[::-1],
        member=True,
        cost=_copy_cost,
        estimate=_estimate_copy,
    )
    add_(
        "distinct",
        "list_distinct",
        (lists,),
        lists,
        distinct,
        member=True,
        cost=_self_compare_cost,
        estimate=_estimate_distinct,
    )
    for t in _ORDERED:
        keys = list_of(t)
        estimate = _estimate_sort(t)
        add_(
            "sort", f"list_{t.kind}_sort", (keys,), keys, sort, member=True, cost=_self_compare_cost, estimate=estimate
        )
        add_(
            "@sortByAssociatedKeys",
            f"list_{t.kind}_sort_by",
            (lists, keys),
            lists,
            sort_by,
            member=True,
            cost=_sort_by_cost,
            estimate=estimate,
        )


def _declare_sets() -> None:
    lists = list_of(T)
    rows = {"contains": (contains, 1), "equivalent": (equivalent, 2), "intersects": (intersects, 1)}
    for name, (function, rounds) in rows.items():
        library.add(
            f"sets.{name}",
            f"sets_{name}",
            (lists, lists),
            BOOL,
            function,
            cost=_set_cost(rounds),
            estimate=_estimate_set(rounds),
        )


def _declare_map_inserts() -> None:
    k, v = param("K"), param("V")
    pairs = map_of(k, v)
    library.add("cel.@mapInsert", "map_insert_pair", (pairs, k, v), pairs, insert_pair)
    library.add("cel.@mapInsert", "map_insert_entries", (pairs, pairs), pairs, insert_entries)


_declare_kubernetes()
_declare_extension()
_declare_sets()
_declare_map_inserts()
