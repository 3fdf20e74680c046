"""What Go's JSON decoder says about a broken text; run only once we know that it is broken."""

from __future__ import annotations

LITERALS = {"t": "true", "f": "false", "n": "null"}
BLANKS = " \t\r\n"


class _Broken(Exception):
    pass


def complaint(data: bytes) -> str:
    """The first thing wrong with the text, in Go's words."""
    text = data.decode("utf-8", "replace")
    try:
        end = _value(text, _skip(text, 0), 0)
        end = _skip(text, end)
        if end < len(text):
            raise _Broken(_unexpected(text[end], "after top-level value"))
    except _Broken as broken:
        return str(broken)
    except RecursionError:
        return "exceeded max depth"
    return "invalid JSON"


def _unexpected(char: str, where: str) -> str:
    return f"invalid character {_quoted(char)} {where}"


def _quoted(char: str) -> str:
    if char == "'":
        return r"'\''"
    if char == '"':
        return "'\"'"
    escaped = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", "\0": r"\x00"}.get(char)
    if escaped is None and ord(char) < 0x20:
        escaped = f"\\x{ord(char):02x}"
    return f"'{escaped or char}'"


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in BLANKS:
        at += 1
    return at


def _peek(text: str, at: int) -> str:
    if at >= len(text):
        raise _Broken("unexpected end of JSON input")
    return text[at]


def _value(text: str, at: int, depth: int) -> int:
    char = _peek(text, at)
    if char == "{":
        return _object(text, at + 1, depth + 1)
    if char == "[":
        return _array(text, at + 1, depth + 1)
    if char == '"':
        return _string(text, at + 1)
    if char in LITERALS:
        return _literal(text, at, LITERALS[char])
    if char == "-" or char.isdigit():
        return _number(text, at)
    raise _Broken(_unexpected(char, "looking for beginning of value"))


def _object(text: str, at: int, depth: int) -> int:
    at = _skip(text, at)
    if _peek(text, at) == "}":
        return at + 1
    while True:
        if _peek(text, at) != '"':
            raise _Broken(_unexpected(text[at], "looking for beginning of object key string"))
        at = _skip(text, _string(text, at + 1))
        if _peek(text, at) != ":":
            raise _Broken(_unexpected(text[at], "after object key"))
        at = _skip(text, _value(text, _skip(text, at + 1), depth))
        char = _peek(text, at)
        if char == "}":
            return at + 1
        if char != ",":
            raise _Broken(_unexpected(char, "after object key:value pair"))
        at = _skip(text, at + 1)


def _array(text: str, at: int, depth: int) -> int:
    at = _skip(text, at)
    if _peek(text, at) == "]":
        return at + 1
    while True:
        at = _skip(text, _value(text, at, depth))
        char = _peek(text, at)
        if char == "]":
            return at + 1
        if char != ",":
            raise _Broken(_unexpected(char, "after array element"))
        at = _skip(text, at + 1)


def _string(text: str, at: int) -> int:
    while True:
        char = _peek(text, at)
        if char == '"':
            return at + 1
        if char == "\\":
            escaped = _peek(text, at + 1)
            if escaped not in 'bfnrt\\/"u':
                raise _Broken(_unexpected(escaped, "in string escape code"))
            at += 1
        elif ord(char) < 0x20:
            raise _Broken(_unexpected(char, "in string literal"))
        at += 1


def _literal(text: str, at: int, word: str) -> int:
    for offset, expected in enumerate(word):
        if _peek(text, at + offset) != expected:
            where = f"in literal {word} (expecting {_quoted(expected)})"
            raise _Broken(_unexpected(text[at + offset], where))
    return at + len(word)


def _number(text: str, at: int) -> int:
    if text[at] == "-":
        at += 1
        if not _peek(text, at).isdigit():
            raise _Broken(_unexpected(text[at], "in numeric literal"))
    while at < len(text) and text[at] in "0123456789.eE+-":
        at += 1
    return at
