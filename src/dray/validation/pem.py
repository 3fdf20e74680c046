"""Reads blocks of PEM text."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = re.compile(
    # A body ends at the next five dashes, whatever they begin, so that each byte is looked at once.
    rb"^-----BEGIN (?P<type>[^\n]*?)-----[ \t\r]*\n(?P<body>[^-]*(?:-(?!----)[^-]*)*)-----END (?P=type)-----[ \t\r]*$",
    re.MULTILINE,
)
_HEADER = re.compile(rb"^[^:\n]+:[^\n]*$")


@dataclass(frozen=True, slots=True)
class PemBlock:
    type: str
    has_headers: bool
    der: bytes


def pem_blocks(text: bytes) -> Iterator[PemBlock]:
    """The blocks whose content is base64; other text is passed over."""
    for found in _BLOCK.finditer(text):
        lines = found["body"].splitlines()
        headers = [line for line in lines if _HEADER.match(line)]
        encoded = b"".join(line for line in lines if not _HEADER.match(line))
        try:
            der = base64.b64decode(b"".join(encoded.split()), validate=True)
        except binascii.Error:
            continue
        yield PemBlock(found["type"].decode("utf-8", "replace"), bool(headers), der)
