"""JSON out: objects as the server stores and sends them."""

from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()
encode = _encoder.encode
decode = msgspec.json.Decoder().decode


def ordered(document: dict[str, Any]) -> dict[str, Any]:
    """kind, apiVersion and metadata first: the stored form, whose head has one fixed length per kind."""
    head = {"kind": document.get("kind"), "apiVersion": document.get("apiVersion"), "metadata": document["metadata"]}
    head.update((key, value) for key, value in document.items() if key not in head)
    return head
