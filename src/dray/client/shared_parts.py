"""Parts that many objects have alike, in memory once."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import force_setattr

from dray.api import codec
from dray.api.caching import digest_of_text

PARTS = 4096
# An encoding that is shorter than its digest stands for itself.
SHORT_ENCODING = 20
_PLAIN = (int, float, bool, type(None))


class SharedParts:
    """Replaces parts of an object by equal parts of objects that were seen before.

    Pods of one template have the same tolerations, token sources, images and paths, and each decodes to its own copy. An object
    means the same before and after, so that it does not matter who else holds it.

    A part that no other object has is forgotten again: there are two generations of parts, and a full one replaces the older one.
    """

    def __init__(self, parts: int = PARTS) -> None:
        self._limit = parts
        self._recent: dict[Any, Any] = {}
        self._older: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def share(self, struct: msgspec.Struct) -> None:
        for name in struct.__struct_fields__:
            part = getattr(struct, name)
            if isinstance(part, _PLAIN):
                continue
            shared = self._shared(part)
            if shared is not part:
                force_setattr(struct, name, shared)

    def _shared(self, part: Any) -> Any:
        identity = part if type(part) is str else (type(part), _short(codec.encode(part)))
        known = self._recent.get(identity)
        if known is None:
            known = self._older.get(identity)
            self._remember(identity, part if known is None else known)
        if known is not None:
            return known
        if isinstance(part, msgspec.Struct):
            self.share(part)
        elif type(part) is tuple:
            for each in part:
                if isinstance(each, msgspec.Struct):
                    self.share(each)
        return part

    def _remember(self, identity: Any, part: Any) -> None:
        if len(self._recent) >= self._limit:
            self._older, self._recent = self._recent, {}
        self._recent[identity] = part


def _short(encoding: bytes) -> bytes:
    return encoding if len(encoding) <= SHORT_ENCODING else digest_of_text(encoding)
