"""JSON texts: to documents, with a position for what is wrong in them, and the names of fields given twice; and values quoted."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from dray.api.errors import DecodeError

# Far above any request the server takes; files may hold whole clusters.
MAX_BYTES = 256 * 1024 * 1024

_BYTE_OFFSET = re.compile(r" \(byte (\d+)\)")
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def read_json(data: bytes, *, max_bytes: int = MAX_BYTES) -> Any:
    """The value of one JSON text; of keys given twice the last counts."""
    if len(data) > max_bytes:
        raise DecodeError(f"{len(data)} bytes are too large: the limit is {max_bytes}")
    try:
        return _decoder.decode(data)
    except RecursionError:
        raise DecodeError("the JSON is nested too deeply") from None
    except msgspec.MsgspecError as error:
        raise _json_error(data, str(error)) from None
    except UnicodeDecodeError as error:
        raise _json_error(data, f"not UTF-8 (byte {error.start})") from None


def go_json(value: Any) -> str:
    """A value in the words of an error message: compact JSON."""
    return msgspec.json.encode(value).decode()


def go_map(value: Any) -> str:
    """A JSON value the way Go prints its maps: `map[a:1 b:[x y]]`."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_map(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_map, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _json_error(data: bytes, message: str) -> DecodeError:
    found = _BYTE_OFFSET.search(message)
    text = _BYTE_OFFSET.sub("", message).partition(" - at ")[0]
    text = text.replace("JSON is malformed: ", "")
    if found is None:
        return DecodeError(f"invalid JSON: {text}")
    before = data[: int(found[1])]
    return DecodeError(f"invalid JSON: {text}", line=before.count(b"\n") + 1, column=len(before) - before.rfind(b"\n"))


class _Pairs(dict[str, Any]):
    """An object that remembers which of its keys came more than once."""

    twice: tuple[str, ...] = ()


def _pairs(pairs: list[tuple[str, Any]]) -> _Pairs:
    made = _Pairs(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        made.twice = tuple(dict.fromkeys(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return made


def duplicate_fields(data: bytes, value: Any) -> tuple[str, ...]:
    """The paths of fields that the text gives more than once; `value` is what `read_json` made of it.

    Programs send compact JSON, which is what the value looks like when it is written again. For other texts, counting colons
    in the text and in the value tells the common case, no duplicates, without a second reading.
    """
    again = msgspec.json.encode(value)
    if again == data or _most_colons(data) == again.count(b":"):
        return ()
    try:
        careful = json.loads(data, object_pairs_hook=_pairs)
    except (ValueError, RecursionError):
        return ()
    found: list[str] = []
    _collect(careful, "", found, 0)
    return tuple(found)


def _most_colons(data: bytes) -> int:
    """At least as many as the text means: it has one after each key, and in strings also such as are written as `\\u003a`."""
    return data.count(b":") + data.count(b"\\u003a") + data.count(b"\\u003A")


def _collect(value: Any, path: str, found: list[str], depth: int) -> None:
    if depth > 200 or len(found) >= 100:
        return
    if isinstance(value, _Pairs):
        for key, inner in value.items():
            here = f"{path}.{key}" if path else key
            if key in value.twice:
                found.append(here)
            _collect(inner, here, found, depth + 1)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            _collect(inner, f"{path}[{i}]", found, depth + 1)
