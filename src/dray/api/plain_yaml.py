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
# A text of several lines after `key: |`.
_BLOCK = re.compile(r": \|([-+]?)\n").search
# A key at the beginning of its line, with what stands before it.
_HEAD = re.compile(r"( *(?:- )?)[A-Za-z0-9_./][-A-Za-z0-9_./:]*").fullmatch
_BLOCK_MARK = "\x01"
# A list below its key. Items of a long list that have the same fields, such as devices, are read by one pattern.
_LIST = re.compile(r":\n( *)- ").search
_LIST_MARK = "\x02"
_VALUE_MARK = re.compile(r'"\\u0003"')
_LONG_LIST = 8
# Shorter texts have no long lists that are worth a pattern.
_WORTH_A_PATTERN = 4000
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


class _JsonTexts(dict[str, str]):
    """Scalars as JSON."""

    def __missing__(self, text: str) -> str:
        written = msgspec.json.encode({} if text == "{}" else [] if text == "[]" else _scalar(text)).decode()
        if len(self) < _MOST_REMEMBERED:
            self[text] = written
        return written


_json_texts = _JsonTexts()
_remembered: dict[str, Any] = {}
_keys: dict[str, str] = {}


class _PlainReader:
    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.lists: list[Any] = []

    def read(self, text: str) -> Any:
        if not text.endswith("\n"):
            text += "\n"
        text = self._without_blocks(text)
        if len(text) > _WORTH_A_PATTERN:
            text = self._without_long_lists(text)
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
        if text.startswith(_LIST_MARK):
            return self.lists[int(text[1:])]
        value = _scalar(text)
        if len(_remembered) < _MOST_REMEMBERED and len(text) < 100:
            _remembered[text] = value
        return value

    def _without_long_lists(self, text: str) -> str:
        """The text with a mark in place of each long list of items that are alike."""
        parts: list[str] = []
        at = 0
        while found := _LIST(text, at):
            start = found.start(1)
            indent = len(found[1])
            head = _HEAD(text, text.rfind("\n", 0, found.start()) + 1, found.start())
            rest = re.compile(rf"\n(?! {{{indent}}}[ -])").search(text, start)
            end = rest.end() if rest else len(text)
            items = None
            if head and indent >= len(head[1]):
                items = self._items_alike(text[start:end], f"\n{found[1]}- ")
            if items is None:
                parts.append(text[at:start])
                at = start
                continue
            self.lists.append(items)
            parts.append(f"{text[at : start - 1]} {_LIST_MARK}{len(self.lists) - 1}\n")
            at = end
        return "".join([*parts, text[at:]])

    def _items_alike(self, text: str, separator: str) -> list[Any] | None:
        """The items of a list of which each has the fields of the first, in the same lines; None for other lists."""
        count = text.count(separator) + 1
        if count < _LONG_LIST or _BLOCK_MARK in text or not text.endswith("\n"):
            return None
        first = text[: text.index(separator) + 1]
        lines = first.count("\n")
        if lines * count != text.count("\n"):
            return None
        pattern, marked, values = "", "", 0
        for indentation, dash, key, value, other in _ROWS(first):
            name = f"{indentation}{dash}{key}:" if key else f"{indentation}{dash}"
            if value or other:
                name += " " if key else ""
                values += 1
            pattern += re.escape(name) + ("([^\n]+)\n" if value or other else "\n")
            marked += name + ("\x03\n" if value or other else "\n")
        (item,) = self._build(_ROWS(f"items:\n{marked}"))["items"]
        template = _VALUE_MARK.sub("%s", msgspec.json.encode(item).decode().replace("%", "%%"))
        found = re.compile(f"^{pattern}", re.M).findall(text)
        if len(found) != count or not values:
            return None
        rows = found if values > 1 else [(each,) for each in found]
        texts = _json_texts
        decoded: list[Any] = msgspec.json.decode(
            f"[{','.join([template % tuple([texts[each] for each in row]) for row in rows])}]"
        )
        return decoded

    def _without_blocks(self, text: str) -> str:
        """The text with a mark in place of each text of several lines."""
        parts: list[str] = []
        at = 0
        while found := _BLOCK(text, at):
            head = _HEAD(text, text.rfind("\n", 0, found.start()) + 1, found.start())
            if head is None:
                raise _NotPlain
            lines = re.compile(rf"(?: {{{len(head[1]) + 1},}}[^\n]*\n|\n)*").match(text, found.end())
            assert lines is not None
            self.blocks.append(_block_text(lines[0], found[1]))
            parts.append(f"{text[at : found.start()]}: {_BLOCK_MARK}{len(self.blocks) - 1}\n")
            at = lines.end()
        return "".join([*parts, text[at:]])


def _block_text(written: str, chomping: str) -> str:
    lines = written.split("\n")[:-1]
    if not lines or not lines[0].strip():
        raise _NotPlain
    indent = len(lines[0]) - len(lines[0].lstrip(" "))
    if any(line and not line.startswith(" " * indent) for line in lines):
        raise _NotPlain
    content = "\n".join(line[indent:] for line in lines) + "\n"
    return content if chomping == "+" else content.rstrip("\n") + ("" if chomping == "-" else "\n")


def _scalar(text: str) -> Any:
    if quoted := _SINGLE_QUOTED(text):
        return quoted[1].replace("''", "'")
    if _DOUBLE_QUOTED(text):
        return msgspec.json.decode(text)
    if not _SCALAR(text):
        raise _NotPlain
    return plain_scalar(text, 0)
