"""URLs, read as a web server reads the target of a request."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, unquote_plus

from dray.cel.errors import CelError
from dray.cel.functions import Library, guard_name
from dray.cel.library import costs
from dray.cel.types import BOOL, STRING, URL, list_of, map_of
from dray.cel.values import name_type, refuse_other_types

library = Library("urls")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII).match
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_HOST = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:%\[\]<>\"\x80-\U0010ffff]*").fullmatch
_PORT = re.compile(r":[0-9]*", re.ASCII).fullmatch
_UNESCAPED_PATH = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/%\[\]]*", re.ASCII).fullmatch


class Url:
    __slots__ = ("host", "opaque", "path", "query", "scheme", "text")

    def __init__(self, text: str, scheme: str, host: str, path: str, query: str, opaque: str) -> None:
        self.text, self.scheme, self.host = text, scheme, host
        self.path, self.query, self.opaque = path, query, opaque

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


guard_name(URL.name, Url)
name_type(Url, URL.name)
refuse_other_types(Url)


def parse_url(text: str) -> Url:
    def refused(why: str) -> CelError:
        return CelError(f"URL parse error during conversion from string: parse {text[:64]!r}: {why}")

    if not text:
        raise refused("empty url")
    if any(c < " " or c == "\x7f" for c in text):
        raise refused("invalid control character in URL")
    if text == "*":
        return Url(text, "", "", "*", "", "")
    found = _SCHEME(text)
    scheme, rest = (found[1].lower(), text[found.end() :]) if found else ("", text)
    if text[0] == ":":
        raise refused("missing protocol scheme")
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(text, scheme, "", "", query, rest)
        raise refused("invalid URI for request")
    host = ""
    if scheme and rest.startswith("//"):
        authority, slash, tail = rest[2:].partition("/")
        host, rest = authority.rpartition("@")[2], slash + tail
        _check_host(host, refused)
    if _BAD_ESCAPE(rest):
        raise refused("invalid URL escape")
    return Url(text, scheme, host, rest, query, "")


def _check_host(host: str, refused: Any) -> None:
    if not _HOST(host):
        raise refused("invalid character in host name")
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise refused("missing ']' in host")
        port = host[end + 1 :]
    else:
        colon = host.rfind(":")
        port = host[colon:] if colon >= 0 else ""
    if port and not _PORT(port):
        raise refused(f'invalid port "{port}" after host')


def is_url(text: str) -> bool:
    try:
        parse_url(text)
    except CelError:
        return False
    return True


def hostname(url: Url) -> str:
    host = _split_port(url.host)[0]
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def port(url: Url) -> str:
    return _split_port(url.host)[1]


def _split_port(host: str) -> tuple[str, str]:
    colon = host.rfind(":")
    if colon < 0 or colon < host.rfind("]"):
        return host, ""
    return host[:colon], host[colon + 1 :]


def escaped_path(url: Url) -> str:
    if _UNESCAPED_PATH(url.path):
        return url.path
    keep = "-._~!$&'()*+,;=:@/"
    plain = unquote(url.path)
    return "".join(c if c in keep or (c.isascii() and c.isalnum()) else _escaped(c) for c in plain)


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def query(url: Url) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for part in url.query.split("&"):
        if not part or ";" in part:
            continue
        key, _, value = part.partition("=")
        if _BAD_ESCAPE(key) or _BAD_ESCAPE(value):
            continue
        out.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return out


def _declare() -> None:
    add = library.add
    add(
        "url",
        "string_to_url",
        (STRING,),
        URL,
        parse_url,
        cost=costs.reading_first,
        cost_by_name=True,
        estimate=costs.estimate_reading_same_size,
    )
    add("isURL", "is_url", (STRING,), BOOL, is_url)
    parts = {
        "getScheme": lambda url: url.scheme,
        "getHost": lambda url: url.host,
        "getHostname": hostname,
        "getPort": port,
        "getEscapedPath": escaped_path,
    }
    for name, function in parts.items():
        add(name, f"url_{name}", (URL,), STRING, function, member=True)
    add("getQuery", "url_get_query", (URL,), map_of(STRING, list_of(STRING)), query, member=True)


_declare()
