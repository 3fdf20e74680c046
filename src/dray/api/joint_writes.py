"""Several writes that are stored in one commit, all of them or none: what a caller in the server's own program sends, and the answer.

Each write is a request by itself: it is authorized, admitted and validated as if it came alone, and sees what those before it changed.
"""

from __future__ import annotations

from typing import Any

import msgspec

# No path of Kubernetes; the server takes it from its own program only.
PATH = "/joint-writes"


class JointWrite(msgspec.Struct, frozen=True, array_like=True):
    """`body` is an object or a document where it is sent, and its JSON where it is received."""

    method: str
    # Escaped as in a URL.
    path: str
    body: Any


class ReceivedWrite(JointWrite, frozen=True, array_like=True):
    body: msgspec.Raw


class JointWrites(msgspec.Struct, frozen=True, array_like=True):
    writes: list[JointWrite]


class ReceivedWrites(msgspec.Struct, frozen=True, array_like=True):
    writes: list[ReceivedWrite]


class JointAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The objects as each write left them. All are stored at `revision`, whatever resourceVersion they show."""

    revision: int
    objects: list[msgspec.Raw]


encode_answer = msgspec.json.Encoder().encode
decode_writes = msgspec.json.Decoder(ReceivedWrites).decode
decode_answer = msgspec.json.Decoder(JointAnswer).decode
