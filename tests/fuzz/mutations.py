"""Documents that are almost right: a good one with a few places changed, and its text with a few bytes changed."""

from __future__ import annotations

import copy
from typing import Any

import yaml
from hypothesis import strategies as st

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        [
            "",
            ".",
            "..",
            "/",
            "\0",
            "a" * 300,
            "-1",
            "1e999",
            "😀",
            "\ud800".encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
        ]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a document."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


@st.composite
def almost(draw: st.DrawFn, document: Any, most: int = 3) -> Any:
    """The document with up to `most` places replaced, removed or repeated."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, most))):
        options = places(changed)
        if not options:
            break
        path = draw(st.sampled_from(options))
        holder = changed
        for step in path[:-1]:
            holder = holder[step]
        if draw(st.booleans()):
            holder[path[-1]] = draw(VALUES)
        else:
            del holder[path[-1]]
    return changed


@st.composite
def almost_text(draw: st.DrawFn, document: Any, *, as_json: bool = False) -> bytes:
    """The text of an almost right document, some bytes of it lost or changed."""
    import json

    changed = draw(almost(document))
    try:
        text = (json.dumps(changed) if as_json else yaml.safe_dump(changed)).encode("utf-8", "replace")
    except (yaml.YAMLError, ValueError, TypeError):
        text = b""
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.binary(max_size=6)) + text[at + draw(st.integers(0, 6)) :]
    return text


ANY_BYTES = st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
