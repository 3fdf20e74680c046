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

    There are `parts` of them at most: then all are forgotten, also those that only one object has, and it begins anew.
    """

    def __init__(self, parts: int = PARTS) -> None:
        self._limit = parts
        self._known: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._known)

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
        known = self._known.get(identity)
        if known is not None:
            return known
        if len(self._known) >= self._limit:
            self._known.clear()
        self._known[identity] = part
        if isinstance(part, msgspec.Struct):
            self.share(part)
        elif type(part) is tuple:
            for each in part:
                if isinstance(each, msgspec.Struct):
                    self.share(each)
        return part


def _short(encoding: bytes) -> bytes:
    return encoding if len(encoding) <= SHORT_ENCODING else digest_of_text(encoding)
