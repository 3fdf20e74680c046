"""ResourceSlices from JSON, where nodes of one kind publish the same devices: equal lists are read once and shared.

A slice is read in two steps: everything but its long lists, then each list as a text that may be known already. A list of devices whose
text is known is not even searched for its end: `split` finds it by its beginning, and the rest of the slice is short.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import msgspec

from dray.api.base import struct_like
from dray.api.caching import LruSet, SharedDecoder, digest_of, digest_of_text
from dray.api.meta import ObjectMeta
from dray.api.quantity import decoding_hook
from dray.api.resource import API_VERSION, CounterSet, Device, ResourceSlice, ResourceSliceSpec

# Enough for a hundred different slices, which as values take ten times as much; what is forgotten is only read again.
MOST_BYTES = 4 * 1024 * 1024
_NOTHING = msgspec.Raw(b"[]")
# What a list of devices follows in compact JSON. No text within JSON contains it: there, quotes have a backslash before them.
_KEY = b'"devices":['
_STAND_IN = b'"a list of devices"'
_SHORT = 1024
_BEGINNING = 96
_LONG_LISTS = ("devices", "shared_counters")


class SplitSlice(NamedTuple):
    """The JSON of a slice, or of an event with one, around its list of devices. Equal lists are one object."""

    before: bytes
    devices: bytes
    after: bytes

    def short(self) -> bytes:
        """JSON with a text in place of the list."""
        return self.before + _STAND_IN + self.after


def is_stand_in(devices: msgspec.Raw) -> bool:
    """Whether this was read from a short text, whose list of devices was cut out in the right place."""
    return bytes(devices) == _STAND_IN


class _DevicesText(msgspec.Struct):
    devices: msgspec.Raw = _NOTHING


class _SpecDevices(msgspec.Struct):
    spec: _DevicesText | None = None


_devices_text = msgspec.json.Decoder(_SpecDevices).decode


class DeviceTexts:
    """The texts of long lists of devices that were met last, up to `most_bytes`. Several threads may use it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._texts: OrderedDict[bytes, None] = OrderedDict()
        # Made anew with each text, of which there are few.
        self._by_beginning: dict[bytes, list[bytes]] = {}

    def known(self, data: bytes, at: int) -> bytes | None:
        """The known text that stands in `data` at this place."""
        for text in self._by_beginning.get(data[at : at + _BEGINNING], ()):
            if data.startswith(text, at):
                return text
        return None

    def remember(self, text: bytes) -> bytes:
        """The text, or the equal one that is known."""
        if len(text) < _SHORT:
            return text
        known = self.known(text, 0)
        if known is not None:
            return known
        self._texts[text] = None
        while sum(map(len, list(self._texts))) > self._most_bytes:
            self._texts.popitem(last=False)
        found: dict[bytes, list[bytes]] = {}
        for each in list(self._texts):
            found.setdefault(each[:_BEGINNING], []).append(each)
        self._by_beginning = found
        return text


device_texts = DeviceTexts(MOST_BYTES)


def split(data: bytes) -> SplitSlice | None:
    """Cuts a known list of devices out of the JSON; None if there is none. The parts together are always the whole text."""
    at = data.find(_KEY) + len(_KEY) - 1
    if at < len(_KEY) - 1 or len(data) - at < _SHORT:
        return None
    devices = device_texts.known(data, at)
    return None if devices is None else SplitSlice(data[:at], devices, data[at + len(devices) :])


def cut_all(data: bytes) -> tuple[bytes, list[bytes]]:
    """The JSON of many slices with a text in place of each known list of devices, and these lists in their order."""
    parts: list[bytes] = []
    texts: list[bytes] = []
    begin = at = 0
    while (found := data.find(_KEY, at)) >= 0:
        at = found + len(_KEY) - 1
        text = device_texts.known(data, at)
        if text is not None:
            parts += (data[begin:at], _STAND_IN)
            texts.append(text)
            begin = at = at + len(text)
    return b"".join((*parts, data[begin:])), texts


def learn(data: bytes) -> SplitSlice | None:
    """As `split`, for the JSON of a slice; a list that was not known is known from now on."""
    found = split(data)
    if found is not None or len(data) < _SHORT:
        return found
    try:
        spec = _devices_text(data).spec
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if spec is not None:
        device_texts.remember(bytes(spec.devices))
    return split(data)


def _read_tree(text: bytes) -> list[Any] | None:
    """None for a text that is not what our encoder writes: it may name a field twice."""
    tree = msgspec.json.decode(text)
    return tree if msgspec.json.encode(tree) == text else None


class KnownDevices(NamedTuple):
    """A list of devices as a JSON tree, which nobody changes, its text, and a digest of the text, as `digest_of` makes it of the tree."""

    tree: list[Any]
    text: bytes
    digest: bytes


class DeviceTrees:
    """Lists of devices that were read last, up to `most_bytes` of text, by their text and by the identity of the tree."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._by_text: OrderedDict[bytes, KnownDevices] = OrderedDict()
        # With the tree itself: as long as it is here, no other list has its identity.
        self._by_identity: dict[int, KnownDevices] = {}

    def read(self, text: bytes) -> list[Any] | None:
        known = self._by_text.get(text)
        if known is not None:
            return known.tree
        tree = _read_tree(text)
        if tree is None:
            return None
        known = self._by_text.setdefault(text, KnownDevices(tree, text, digest_of_text(text)))
        while sum(map(len, list(self._by_text))) > self._most_bytes:
            self._by_text.popitem(last=False)
        self._by_identity = {id(each.tree): each for each in list(self._by_text.values())}
        return known.tree

    def text_of(self, devices: Any) -> bytes | None:
        """The text of a list that `read` returned; None for any other value."""
        found = self._by_identity.get(id(devices))
        return None if found is None else found.text

    def digest_of(self, devices: Any) -> bytes | None:
        """A short name of the list for sets that remember it: its text may be long, and sets keep many."""
        found = self._by_identity.get(id(devices))
        return digest_of(devices) if found is None else found.digest

    def digest_of_known(self, text: bytes) -> bytes | None:
        """As `digest_of` for a list that is known by its text; None for one that is not."""
        found = self._by_text.get(text)
        return None if found is None else found.digest


device_trees = DeviceTrees(MOST_BYTES)


class QuietLists:
    """Lists of devices, known by their texts, in which a check has found nothing."""

    def __init__(self) -> None:
        self._digests = LruSet(256)

    def __contains__(self, devices: Any) -> bool:
        return self._is_known(devices) and device_trees.digest_of(devices) in self._digests

    def add(self, devices: Any) -> None:
        if self._is_known(devices):
            self._digests.add(device_trees.digest_of(devices))

    def has_text(self, text: bytes) -> bool:
        digest = device_trees.digest_of_known(text)
        return digest is not None and digest in self._digests

    def _is_known(self, devices: Any) -> bool:
        return device_trees.text_of(devices) is not None


def read_tree(split_slice: SplitSlice) -> Any:
    """The slice as a tree that shares its list of devices with equal slices, beside the short text it was read from; None: read it whole."""
    if _STAND_IN in split_slice.before or _STAND_IN in split_slice.after:
        return None
    devices = device_trees.read(split_slice.devices)
    if devices is None:
        return None
    try:
        tree = msgspec.json.decode(split_slice.short())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    spec = tree.get("spec") if isinstance(tree, dict) else None
    if not isinstance(spec, dict) or spec.get("devices") != _STAND_IN[1:-1].decode():
        return None
    again = msgspec.json.encode(tree)
    if again != split_slice.short():
        return None
    spec["devices"] = devices
    return tree


def with_devices_text(document: dict[str, Any]) -> dict[str, Any]:
    """The document to encode: a list of devices that is known by its text need not be written again."""
    spec = document.get("spec")
    text = device_trees.text_of(spec.get("devices")) if isinstance(spec, dict) else None
    return document if text is None or spec is None else {**document, "spec": {**spec, "devices": msgspec.Raw(text)}}


read_devices = SharedDecoder(msgspec.json.Decoder(tuple[Device, ...], dec_hook=decoding_hook).decode, MOST_BYTES)
read_counter_sets = SharedDecoder(
    msgspec.json.Decoder(tuple[CounterSet, ...], dec_hook=decoding_hook).decode, MOST_BYTES
)


_SpecText: Any = struct_like(ResourceSliceSpec, "SpecText", dict.fromkeys(_LONG_LISTS, (msgspec.Raw, _NOTHING)))
_OTHER_FIELDS = tuple(name for name in ResourceSliceSpec.__struct_fields__ if name not in _LONG_LISTS)


class SliceText(msgspec.Struct, frozen=True, rename="camel", tag_field="kind", tag="ResourceSlice"):
    """A ResourceSlice whose long lists are still text. Decode to this, then ask for `whole()`."""

    api_version: str = API_VERSION
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _SpecText = msgspec.field(default_factory=_SpecText)

    def whole(self, devices: bytes | None = None) -> ResourceSlice:
        """`devices` is the text of the list that was cut out."""
        spec = self.spec
        others = {name: getattr(spec, name) for name in _OTHER_FIELDS}
        return ResourceSlice(
            api_version=self.api_version,
            metadata=self.metadata,
            spec=ResourceSliceSpec(
                devices=read_devices(device_texts.remember(bytes(spec.devices)) if devices is None else devices),
                shared_counters=read_counter_sets(bytes(spec.shared_counters)),
                **others,
            ),
        )
