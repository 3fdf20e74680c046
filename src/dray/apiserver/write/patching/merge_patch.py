"""RFC 7386 JSON merge patch."""

from __future__ import annotations

from typing import Any


def apply(document: Any, patch: Any) -> Any:
    """The document with the patch merged in: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply(result.get(key), value)
    return result
