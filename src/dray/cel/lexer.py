"""Text to tokens: one regular expression, and the escapes inside string and bytes literals."""

from __future__ import annotations

import re
from typing import NamedTuple

from dray.cel.errors import Issue, Refused

RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)


class Token(NamedTuple):
    kind: str  # "ident" "int" "uint" "float" "string" "bytes" "op" "quoted" "end"
    text: str
    offset: int


_QUOTED = r'"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|"(?:[^"\\\n\r]|\\.)*"|\'(?:[^\'\\\n\r]|\\.)*\''
_RAW = r'"""(?:.)*?"""|\'\'\'(?:.)*?\'\'\'|"[^"\n\r]*"|\'[^\'\n\r]*\''
_TOKEN = re.compile(
    rf"""
    (?P<space>[ \t\n\r\f]+|//[^\n]*)
  | (?P<raw>(?:[rR][bB]?|[bB][rR])(?:{_RAW}))
  | (?P<bytes>[bB](?:{_QUOTED}))
  | (?P<string>{_QUOTED})
  | (?P<float>[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]+|[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<uint>(?:0[xX][0-9a-fA-F]+|[0-9]+)[uU])
  | (?P<int>0[xX][0-9a-fA-F]+|[0-9]+)
  | (?P<ident>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<quoted>`[A-Za-z0-9_.\-/ ]+`)
  | (?P<op>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{{}}])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.|$))",
    re.DOTALL,
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def tokenize(text: str) -> list[Token]:
    if not text.isascii():
        _refuse_surrogates(text)
    tokens: list[Token] = []
    at, end = 0, len(text)
    match = _TOKEN.match
    while at < end:
        found = match(text, at)
        if found is None:
            raise Refused([Issue(at, f"Syntax error: token recognition error at: '{text[at : at + 20]}'")])
        kind = found.lastgroup or ""
        if kind != "space":
            word = found.group()
            if kind == "raw":
                kind = "bytes" if word[1] in "bB" or word[0] in "bB" else "string"
            tokens.append(Token(kind, word, at))
        at = found.end()
    tokens.append(Token("end", "", end))
    return tokens


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise Refused([Issue(-1, f"not valid UTF-8 at character {problem.start}")]) from None


def string_value(token: Token) -> str:
    raw, body = _body(token.text)
    if raw:
        return _lines(body)
    if "\\" not in body:
        return _lines(body)

    def replaced(found: re.Match[str]) -> str:
        simple, hexadecimal, short, long, octal, bad = found.groups()
        if simple is not None:
            return _SIMPLE.get(simple, simple)
        if bad is not None:
            raise _bad_escape(token, found)
        code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise _bad_escape(token, found)
        return chr(code)

    return _ESCAPE.sub(replaced, _lines(body))


def bytes_value(token: Token) -> bytes:
    raw, body = _body(token.text)
    if raw or "\\" not in body:
        return _lines(body).encode()
    out = bytearray()
    at = 0
    body = _lines(body)
    for found in _ESCAPE.finditer(body):
        out += body[at : found.start()].encode()
        at = found.end()
        simple, hexadecimal, short, long, octal, bad = found.groups()
        if simple is not None:
            out += _SIMPLE.get(simple, simple).encode()
        elif bad is not None or short or long:
            raise _bad_escape(token, found)
        else:
            out.append(int(octal, 8) if octal else int(hexadecimal, 16))
    out += body[at:].encode()
    return bytes(out)


def _body(word: str) -> tuple[bool, str]:
    start = 0
    raw = False
    while word[start] in "rRbB":
        raw = raw or word[start] in "rR"
        start += 1
    quotes = 3 if word[start : start + 3] in ('"""', "'''") and len(word) >= start + 6 else 1
    return raw, word[start + quotes : -quotes]


def _lines(body: str) -> str:
    return body.replace("\r\n", "\n").replace("\r", "\n") if "\r" in body else body


def _bad_escape(token: Token, found: re.Match[str]) -> Refused:
    return Refused([Issue(token.offset, f"Syntax error: invalid escape sequence {found.group()!r}")])
