"""Asks another server to change the protocol of a connection, and gives the connection if it does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dray.http.tunnel import StreamPair

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
MAX_HEAD = 64 * 1024
# Of the text with which a server refuses.
MAX_REFUSAL = 4096


@dataclass(frozen=True, slots=True)
class UpgradeRequest:
    """`target` is path and query, encoded. With `tls`, the certificate has to be one for `server_name`."""

    host: str
    port: int
    target: str
    headers: tuple[tuple[str, str], ...]
    method: str = "GET"
    tls: ssl.SSLContext | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class UpgradeAnswer:
    """`connection` is there if `status` is 101; else `text` says why not. Header names are lower-case."""

    status: int
    headers: tuple[tuple[str, str], ...]
    text: bytes = b""
    connection: StreamPair | None = None


def is_asked_for(headers: Mapping[str, str]) -> bool:
    """Whether a request wants another protocol. Only then does its connection become a tunnel."""
    return "upgrade" in tokens(headers.get("connection", "")) and bool(headers.get("upgrade"))


def tokens(value: str) -> set[str]:
    """The words of a header that is a list, lower-case."""
    return {each.strip().lower() for each in value.split(",")}


async def request_upgrade(asked: UpgradeRequest) -> UpgradeAnswer:
    """OSError, ssl.CertificateError, TimeoutError or ValueError where no answer comes that can be read. Redirects are not followed."""
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(
            asked.host, asked.port, ssl=asked.tls, server_hostname=asked.server_name if asked.tls else None
        )
    pair = StreamPair(reader, writer)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await pair.write(_head(asked))
            status, headers = parsed_head(await reader.readuntil(b"\r\n\r\n"))
            if status == 101:
                return UpgradeAnswer(status, headers, connection=pair)
            answer = UpgradeAnswer(status, headers, await _text(reader, headers))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as problem:
        pair.abort()
        raise ValueError(f"the answer is not HTTP, or too long: {problem}") from problem
    except BaseException:
        pair.abort()
        raise
    pair.abort()
    return answer


def _head(asked: UpgradeRequest) -> bytes:
    host = f"[{asked.host}]" if ":" in asked.host else asked.host
    lines = [f"{asked.method} {asked.target} HTTP/1.1", f"Host: {host}:{asked.port}", *_lines(asked.headers)]
    if asked.method != "GET":
        lines.append("Content-Length: 0")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def _lines(headers: Iterable[tuple[str, str]]) -> Iterable[str]:
    return (f"{name}: {value}" for name, value in headers if "\r" not in value and "\n" not in value)


def parsed_head(head: bytes) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Status and headers of an answer; ValueError if it is none."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise ValueError(f"the answer is not HTTP: {first[:100]!r}")
    headers = [line.partition(":") for line in lines if ":" in line]
    return int(rest[:3]), tuple((name.strip().lower(), value.strip()) for name, _, value in headers)


async def _text(reader: asyncio.StreamReader, headers: tuple[tuple[str, str], ...]) -> bytes:
    length = dict(headers).get("content-length", "")
    size = min(int(length), MAX_REFUSAL) if length.isdigit() else MAX_REFUSAL
    text = b""
    while len(text) < size and (more := await reader.read(size - len(text))):
        text += more
    return text
