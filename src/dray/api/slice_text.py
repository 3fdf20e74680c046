"""ResourceSlices from JSON, where nodes of one kind publish the same devices: equal lists are read once and shared.

A slice is read in two steps: everything but its long lists, then each list as a text that may be known already.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dray.api.caching import SharedDecoder
from dray.api.meta import ObjectMeta
from dray.api.quantity import decoding_hook
from dray.api.resource import API_VERSION, CounterSet, Device, ResourceSlice, ResourceSliceSpec

# Enough for a hundred different slices, which as values take ten times as much; what is forgotten is only read again.
MOST_BYTES = 4 * 1024 * 1024
_NOTHING = msgspec.Raw(b"[]")
_LONG_LISTS = ("devices", "shared_counters")


read_devices = SharedDecoder(msgspec.json.Decoder(tuple[Device, ...], dec_hook=decoding_hook).decode, MOST_BYTES)
read_counter_sets = SharedDecoder(
    msgspec.json.Decoder(tuple[CounterSet, ...], dec_hook=decoding_hook).decode, MOST_BYTES
)


def _with_raw_lists(spec: type[ResourceSliceSpec]) -> type[msgspec.Struct]:
    """The spec's fields, its long lists left as text."""
    fields: list[tuple[str, Any, Any]] = []
    for each in msgspec.structs.fields(spec):
        if each.name in _LONG_LISTS:
            fields.append((each.name, msgspec.Raw, _NOTHING))
        elif each.default_factory is not msgspec.NODEFAULT:
            fields.append((each.name, each.type, msgspec.field(default_factory=each.default_factory)))
        else:
            fields.append((each.name, each.type, each.default))
    return msgspec.defstruct("SpecText", fields, rename="camel", kw_only=True, frozen=True)


_SpecText: Any = _with_raw_lists(ResourceSliceSpec)
_OTHER_FIELDS = tuple(name for name in ResourceSliceSpec.__struct_fields__ if name not in _LONG_LISTS)


class SliceText(msgspec.Struct, frozen=True, rename="camel", tag_field="kind", tag="ResourceSlice"):
    """A ResourceSlice whose long lists are still text. Decode to this, then ask for `whole()`."""

    api_version: str = API_VERSION
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _SpecText = msgspec.field(default_factory=_SpecText)

    def whole(self) -> ResourceSlice:
        spec = self.spec
        others = {name: getattr(spec, name) for name in _OTHER_FIELDS}
        return ResourceSlice(
            api_version=self.api_version,
            metadata=self.metadata,
            spec=ResourceSliceSpec(
                devices=read_devices(bytes(spec.devices)),
                shared_counters=read_counter_sets(bytes(spec.shared_counters)),
                **others,
            ),
        )
