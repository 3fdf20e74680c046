"""Regular expressions with RE2's meaning, and the `find` and `findAll` functions."""

from __future__ import annotations

from functools import cache
from typing import Any

from dray.api.caching import RememberedTexts
from dray.cel.errors import CelError
from dray.cel.functions import Library
from dray.cel.library import costs
from dray.cel.types import INT, STRING, list_of

library = Library("regex")


@cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 16 << 20
    # Nobody asks for the groups of a match, and finding them takes a hundred times as long.
    options.never_capture = True
    return options


def _compiled(pattern: str) -> Any:
    # Loaded with the first pattern: it takes more memory than the rest of the room, and most expressions have no pattern.
    import re2

    try:
        return re2.compile(pattern, _options())
    except re2.error as problem:
        detail = problem.args[0] if problem.args else ""
        text = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise CelError(f"error parsing regexp: {text}: `{pattern[:80]}`") from None
    finally:
        re2.purge()  # the module's own memory would keep another 128


# Each may take as much as `max_mem`, so there are few.
compiled = RememberedTexts(_compiled, entries=32, long_characters=64 * 1024)


def program_size(pattern: str) -> int:
    """How much there is of the pattern when its repetitions are written out."""
    size: int = compiled(pattern).programsize
    return size


def search(text: str, pattern: str) -> bool:
    return compiled(pattern).search(text) is not None


def find(text: str, pattern: str) -> str:
    found = compiled(pattern).search(text)
    return found.group() if found else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    out = []
    for found in compiled(pattern).finditer(text):
        out.append(found.group())
        if len(out) == limit:
            break
    return out


def _declare() -> None:
    two = (STRING, STRING)
    rule: dict[str, Any] = {
        "member": True,
        "cost": costs.regex,
        "cost_by_name": True,
        "estimate": costs.estimate_regex,
    }
    library.add("find", "string_find_string", two, STRING, find, **rule)
    library.add("findAll", "string_find_all_string", two, list_of(STRING), find_all, **rule)
    library.add("findAll", "string_find_all_string_int", (*two, INT), list_of(STRING), find_all, **rule)


_declare()
