"""Single values of the wire form: checked against their type, and spelled as Kubernetes writes them back. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from dray.api.errors import ShapeError
from dray.api.jsontext import go_json
from dray.api.quantity import Quantity, QuantityError, rewritten, trimmed
from dray.api.times import micro_time_text, parse_time, time_text

QUANTITY_TEXT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_INT_RANGE = {"int32": range(-(2**31), 2**31), "int64": range(-(2**63), 2**63)}
_PLAIN_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII).fullmatch


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that its type does not have."""

    path: str
    name: str
    struct: str

    def __str__(self) -> str:
        return f'unknown field "{self.path}"'


class Shaping:
    """One run over a tree; `unknown` collects the fields that no type knows, in document order."""

    __slots__ = ("keeps_unknown", "unknown")

    def __init__(self, *, keeps_unknown: bool = False) -> None:
        self.unknown: list[UnknownField] = []
        self.keeps_unknown = keeps_unknown


class MapKey(str):
    """A key of a map in the place of a value: names of fields leave it out."""

    __slots__ = ()


# The place of a value: the place of its holder, and a field name, key or index. It becomes text only for a message.
Place = tuple[Any, str | int] | None
# Value, the Go type that holds it (messages name it), its place, the run.
Convert = Callable[[Any, str, Place, Shaping], Any]


def text_of(place: Place) -> str:
    """A place as messages show it: `spec.devices.requests[0].name`."""
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")


def _field_of(place: Place) -> str:
    """The names of the fields on the way to a place."""
    names: list[str] = []
    while place is not None:
        place, step = place
        if isinstance(step, str) and not isinstance(step, MapKey):
            names.append(step)
    return ".".join(reversed(names))


def mismatch(value: Any, go: str, place: Place, wanted: str, *, literal: bool = False) -> ShapeError:
    """A value of another type than `wanted`."""
    kind = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")
    if literal or (kind == "number" and wanted.startswith("int")):
        kind = f"number {go_json(value)}"
    path, field = text_of(place), _field_of(place)
    where = f"Go struct field {go}.{field}" if go and field else "Go value"
    return ShapeError(f"json: cannot unmarshal {kind} into {where} of type {wanted}", path=path)


def string(value: Any, go: str, place: Place, run: Shaping) -> Any:
    if type(value) is not str:
        raise mismatch(value, go, place, "string")
    return value


def _bytes(value: Any, go: str, place: Place, run: Shaping) -> Any:
    text = string(value, go, place, run)
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        raise ShapeError(f"illegal base64 data at input byte {_first_bad_byte(text)}", path=text_of(place)) from None
    return text


_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def _first_bad_byte(text: str) -> int:
    """Where reading stops: at a foreign character, at padding that is out of place, or at the group that is cut off."""
    group: list[int] = []
    for at, character in enumerate(text):
        if character in "\r\n":
            continue
        if character not in _BASE64:
            is_padding = character == "=" and len(group) >= 2
            return _end_of_padding(text, at, len(group)) if is_padding else at
        group.append(at)
        if len(group) == 4:
            group = []
    return len(text) - len(group) if group else len(text)


def _end_of_padding(text: str, at: int, in_group: int) -> int:
    """Padding fills its group of four and ends the text."""
    rest = [(where, character) for where, character in enumerate(text) if where >= at and character not in "\r\n"]
    needed = 4 - in_group
    for number, (where, character) in enumerate(rest):
        if number >= needed or character != "=":
            return where
    return len(text)


def _bool(value: Any, go: str, place: Place, run: Shaping) -> Any:
    if type(value) is not bool:
        raise mismatch(value, go, place, "bool")
    return value


def _integer(name: str) -> Convert:
    allowed = _INT_RANGE[name]

    def convert(value: Any, go: str, place: Place, run: Shaping) -> Any:
        if type(value) is not int:
            raise mismatch(value, go, place, name)
        if value not in allowed:
            raise mismatch(value, go, place, name, literal=True)
        return value

    return convert


_int32 = _integer("int32")


def _float(value: Any, go: str, place: Place, run: Shaping) -> Any:
    if type(value) not in (int, float):
        raise mismatch(value, go, place, "float64")
    return value


def quantity(value: Any, go: str, place: Place, run: Shaping) -> Any:
    try:
        if type(value) is str:
            return rewritten(trimmed(value))
        if type(value) in (int, float):
            return str(Quantity.parse(value))
    except QuantityError:
        pass
    raise ShapeError(QUANTITY_TEXT, path=text_of(place))


def valid_values(value: Any, go: str, place: Place, run: Shaping) -> list[str]:
    """Equal amounts keep their spelling: whether they count as duplicates depends on it."""
    if type(value) is not list:
        raise mismatch(value, go, place, "[]resource.Quantity")
    written = [quantity("0" if v is None else v, go, (place, at), run) for at, v in enumerate(value)]
    if len({Quantity.parse(text) for text in written}) == len(written):
        return written
    return [spelled if type(spelled) is str else text for spelled, text in zip(value, written, strict=True)]


def _int_or_string(value: Any, go: str, place: Place, run: Shaping) -> Any:
    return value if type(value) is str else _int32(value, go, place, run)


def _any(value: Any, go: str, place: Place, run: Shaping) -> Any:
    return value


def _moment(value: Any, go: str, place: Place) -> datetime:
    text = string(value, go, place, Shaping())
    try:
        return parse_time(text)
    except ValueError:
        quoted = go_json(text)
        raise ShapeError(
            f'parsing time {quoted} as "2006-01-02T15:04:05Z07:00": cannot parse {quoted} as "2006"',
            path=text_of(place),
        ) from None


def _time(value: Any, go: str, place: Place, run: Shaping) -> Any:
    if type(value) is str and len(value) == 20 and _is_written(value):
        return value
    return time_text(_moment(value, go, place))


@lru_cache(maxsize=4096)
def _is_written(text: str) -> bool:
    """Whether the text is a time exactly as the server writes times."""
    try:
        return _PLAIN_TIME(text) is not None and parse_time(text) is not None
    except ValueError:
        return False


def _micro_time(value: Any, go: str, place: Place, run: Shaping) -> Any:
    return micro_time_text(_moment(value, go, place))


# A value of this type passes its converter unchanged.
AS_IT_IS: dict[Convert, type] = {string: str, _bool: bool}

SCALARS: dict[str, Convert] = {
    "string": string,
    "bytes": _bytes,
    "bool": _bool,
    "int32": _int32,
    "int64": _integer("int64"),
    "float": _float,
    "quantity": quantity,
    "time": _time,
    "microTime": _micro_time,
    "intOrString": _int_or_string,
    "any": _any,
}
