"""Reads the plain YAML that kubectl and most programs print, several times faster than a parser of all of YAML.

One field or list item on each line, indented by spaces, values on the same line. A text that has anything else is not read:
the answer is `NOT_PLAIN`, and `yamltext` reads it. Where both read a text, they read the same (`tests/api/test_plain_yaml.py`).
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from dray.api.errors import DecodeError
from dray.api.yamltext import key_text, plain_scalar

NOT_PLAIN: Final = object()

# Indentation; the dash of a list item; a key with the rest of its line; or a line without key.
_ROWS = re.compile(r"^( *)(- +|)(?:([A-Za-z0-9_./][-A-Za-z0-9_./:]*):(?: +([^\n]*)|(?=\n))|([^\n]*))\n", re.M).findall
_UNUSUAL = re.compile(rb"[^\x20-\x7e\n]").search
# A plain scalar starts with no indicator, and has no comment and no key inside.
_SCALAR = re.compile(r"(?![-?:](?:\s|$))[^\s\[\]{},#&*!|>'\"%@`](?:(?!: | #)[^\n])*(?<!:)").fullmatch
_SINGLE_QUOTED = re.compile(r"'((?:[^']|'')*)'").fullmatch
_DOUBLE_QUOTED = re.compile(r'"(?:[^"\\]|\\["\\/bfnrt])*"').fullmatch
# A text of several lines after `key: |`, with the lines that are indented deeper than the key.
_BLOCK = re.compile(r"^(( *)(- )?[A-Za-z0-9_./][-A-Za-z0-9_./:]*:) +\|([-+]?)\n((?:\2(?(3)  ) +[^\n]*\n|\n)*)", re.M)
_BLOCK_MARK = "\x01"
# Values that were read before; most values of a dump come again and again.
_MOST_REMEMBERED = 65536


class _NotPlain(Exception):
    pass


def read_plain_yaml(data: bytes) -> Any:
    """The mapping in a text that holds one document, or `NOT_PLAIN`."""
    if _UNUSUAL(data):
        return NOT_PLAIN
    try:
        return _PlainReader().read(data.decode("ascii"))
    except (_NotPlain, DecodeError):
        return NOT_PLAIN


_remembered: dict[str, Any] = {}
_keys: dict[str, str] = {}


class _PlainReader:
    def __init__(self) -> None:
        self.blocks: list[str] = []

    def read(self, text: str) -> Any:
        if "|" in text:
            text = _BLOCK.sub(self._take_block, text)
        if not text.endswith("\n"):
            text += "\n"
        found = self._build(_ROWS(text))
        if not found:
            raise _NotPlain
        return found

    def _build(self, rows: list[tuple[str, str, str, str, str]]) -> dict[str, Any]:
        """Builds the values row by row; the lists and maps that are open are on a stack with the column of their entries."""
        root: dict[str, Any] = {}
        # The innermost list or map, the column of its entries, and those around it.
        here: Any = root
        column = 0
        around: list[tuple[Any, int]] = []
        # The map and key whose value is still to come, if the last row ended with its colon.
        holder: Any = None
        last = ""
        keys, remembered = _keys, _remembered
        for spaces, dash, key, value, other in rows:
            at = len(spaces)
            if dash:
                if holder is not None and at >= column:
                    around.append((here, column))
                    here = holder[last] = []
                    column = at
                else:
                    while column > at or (column == at and type(here) is not list):
                        if not around:
                            raise _NotPlain
                        here, column = around.pop()
                    if column != at:
                        raise _NotPlain
                holder = None
                if not key:
                    here.append(self._value(other))
                    continue
                around.append((here, column))
                item: dict[str, Any] = {}
                here.append(item)
                here = item
                column = at + len(dash)
            elif key:
                if at != column or type(here) is list:
                    if holder is not None and at > column:
                        around.append((here, column))
                        here = holder[last] = {}
                        column = at
                    else:
                        while column > at or type(here) is list:
                            if not around:
                                raise _NotPlain
                            here, column = around.pop()
                        if column != at:
                            raise _NotPlain
            elif other or spaces:
                raise _NotPlain
            else:
                continue
            name = keys.get(key)
            if name is None:
                name = self._key(key)
            if name in here:
                raise _NotPlain
            if value:
                found = remembered.get(value, NOT_PLAIN)
                here[name] = self._value(value) if found is NOT_PLAIN else found
                holder = None
            else:
                here[name] = None
                holder = here
                last = name
        return root

    def _key(self, text: str) -> str:
        if not _SCALAR(text) or len(_keys) > _MOST_REMEMBERED:
            raise _NotPlain
        name = _keys[text] = key_text(plain_scalar(text, 0), 0)
        return name

    def _value(self, text: str) -> Any:
        text = text.rstrip(" ")
        if text == "{}":
            return {}
        if text == "[]":
            return []
        if text.startswith(_BLOCK_MARK):
            return self.blocks[int(text[1:])]
        value = _scalar(text)
        if len(_remembered) < _MOST_REMEMBERED and len(text) < 100:
            _remembered[text] = value
        return value

    def _take_block(self, found: re.Match[str]) -> str:
        head, spaces, dash, chomping, text = found.groups()
        lines = text.split("\n")[:-1]
        indent = len(lines[0]) - len(lines[0].lstrip(" ")) if lines else 0
        if indent <= len(spaces) + len(dash or "") or not lines[0].strip():
            raise _NotPlain
        if any(line and not line.startswith(" " * indent) for line in lines):
            raise _NotPlain
        content = "\n".join(line[indent:] for line in lines) + "\n"
        kept = content if chomping == "+" else content.rstrip("\n") + ("" if chomping == "-" else "\n")
        self.blocks.append(kept)
        return f"{head} {_BLOCK_MARK}{len(self.blocks) - 1}\n"


def _scalar(text: str) -> Any:
    if quoted := _SINGLE_QUOTED(text):
        return quoted[1].replace("''", "'")
    if _DOUBLE_QUOTED(text):
        return msgspec.json.decode(text)
    if not _SCALAR(text):
        raise _NotPlain
    return plain_scalar(text, 0)
