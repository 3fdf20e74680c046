"""How many objects a part holds, by type: what is reachable from it without going through the API server."""

from __future__ import annotations

import gc
import types
from collections import Counter
from typing import Any

_NOT_STATE = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType)
_NOT_OURS = ("dray.apiserver.", "dray.store.", "dray.telemetry", "asyncio.", "uvloop.", "logging", "_pytest.", "re.")


def held_by(*roots: Any) -> Counter[str]:
    """Counted by type. Classes, modules and code are shared by everybody; so are small values without a dict."""
    gc.collect()
    found: Counter[str] = Counter()
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        each = waiting.pop()
        if id(each) in seen or not _counts(each):
            continue
        seen.add(id(each))
        found[_name(type(each))] += 1
        waiting += _held_directly(each)
    return found


def growth(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    return {name: count - before[name] for name, count in after.items() if count > before[name]}


def _counts(each: Any) -> bool:
    if isinstance(each, _NOT_STATE):
        return False
    if isinstance(each, dict) and "__builtins__" in each:
        return False  # The names of a module.
    return not _name(type(each)).startswith(_NOT_OURS)


def _held_directly(each: Any) -> list[Any]:
    if isinstance(each, types.FunctionType):
        return [*(each.__closure__ or ()), *(each.__defaults__ or ())]
    return gc.get_referents(each)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
