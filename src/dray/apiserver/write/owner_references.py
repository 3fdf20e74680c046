"""An owner named twice counts once; who sends it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Document = dict[str, Any]

WARNING = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
)


def keep_each_once(metadata: Document, warn: Callable[[str], None]) -> None:
    sent = metadata.get("ownerReferences")
    if not sent or len(sent) < 2:
        return
    kept: list[Document] = []
    again: list[str] = []
    for reference in sent:
        if reference in kept:
            again.append(reference.get("uid") or "")
        else:
            kept.append(reference)
    if again:
        metadata["ownerReferences"] = kept
        warn(WARNING + ", ".join(again))
