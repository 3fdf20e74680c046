"""Turns the CEL project's conformance cases (protobuf text format) into tests/cel/data/cel_spec.ndjson.

    convert_cel_spec.py DIRECTORY_WITH_TEXTPROTO_FILES > tests/cel/data/cel_spec.ndjson

One case per line: file, section, name, expr, and `value`, `error` or `type`; variables as `types` and `bindings`. Values are
tagged, as in {"int": "5"}, since JSON knows neither uint nor NaN.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<word>[\w.+\-/@]+)|(?P<mark>[{}:<>\[\],;])"""
)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SIMPLE = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}

Message = dict[str, list[Any]]


def tokens(source: str) -> list[tuple[str, str]]:
    out, at = [], 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            raise SystemExit(f"unexpected text at {source[at : at + 40]!r}")
        if found.lastgroup:
            out.append((found.lastgroup, found.group()))
        at = found.end()
    return out


def unquoted(word: str) -> bytes:
    def replaced(found: re.Match[bytes]) -> bytes:
        hexadecimal, octal, short, long, simple = found.groups()
        if hexadecimal:
            return bytes([int(hexadecimal, 16)])
        if octal:
            return bytes([int(octal, 8)])
        if short or long:
            return chr(int(short or long, 16)).encode()
        return _SIMPLE.get(simple, simple)

    return _ESCAPE.sub(replaced, word[1:-1].encode())


class Reader:
    def __init__(self, source: str) -> None:
        self.tokens = [*tokens(source), ("end", "")]
        self.at = 0

    def next(self) -> tuple[str, str]:
        self.at += 1
        return self.tokens[self.at - 1]

    def takes(self, mark: str) -> bool:
        if self.tokens[self.at] == ("mark", mark):
            self.at += 1
            return True
        return False

    def message(self, closing: str) -> Message:
        out: Message = {}
        while not (closing and self.takes(closing)) and self.tokens[self.at][0] != "end":
            name = self.name()
            self.takes(":")
            out.setdefault(name, []).extend(self.values())
            self.takes(",") or self.takes(";")
        return out

    def name(self) -> str:
        if self.takes("["):
            name = self.next()[1]
            self.takes("]")
            return f"[{name}]"
        return self.next()[1]

    def values(self) -> list[Any]:
        if self.takes("["):
            out = []
            while not self.takes("]"):
                out.append(self.value())
                self.takes(",")
            return out
        return [self.value()]

    def value(self) -> Any:
        for opening, closing in (("{", "}"), ("<", ">")):
            if self.takes(opening):
                return self.message(closing)
        kind, word = self.next()
        if kind != "text":
            return word
        data = unquoted(word)
        while self.tokens[self.at][0] == "text":
            data += unquoted(self.next()[1])
        return data


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def tagged(value: Message) -> Any:
    """A cel.expr.Value as tagged JSON; None if it holds a protobuf message."""
    (kind, (held,)) = next(iter(value.items())) if value else ("null_value", [""])
    simple = {"int64_value": "int", "uint64_value": "uint", "double_value": "double"}
    if kind in simple:
        return {simple[kind]: held}
    if kind == "bool_value":
        return {"bool": held == "true"}
    if kind == "string_value":
        return {"string": held.decode()}
    if kind == "bytes_value":
        return {"bytes": held.hex()}
    if kind == "null_value":
        return {"null": True}
    if kind == "type_value":
        return {"type": text(held)}
    if kind == "list_value":
        items = [tagged(item) for item in held.get("values", [])]
        return None if None in items else {"list": items}
    if kind == "map_value":
        entries = [(tagged(e["key"][0]), tagged(e["value"][0])) for e in held.get("entries", [])]
        return None if any(None in entry for entry in entries) else {"map": entries}
    if kind == "object_value" and "[type.googleapis.com/google.protobuf.Duration]" in held:
        return {"duration": moment(held["[type.googleapis.com/google.protobuf.Duration]"][0])}
    if kind == "object_value" and "[type.googleapis.com/google.protobuf.Timestamp]" in held:
        return {"timestamp": moment(held["[type.googleapis.com/google.protobuf.Timestamp]"][0])}
    return None


def moment(message: Message) -> str:
    return str(int(message.get("seconds", ["0"])[0]) * 10**9 + int(message.get("nanos", ["0"])[0]))


def type_text(message: Message) -> str | None:
    (kind, (held,)) = next(iter(message.items()))
    if kind == "primitive":
        return {"INT64": "int", "UINT64": "uint"}.get(held, held.lower())
    if kind == "well_known":
        return {"ANY": "any"}.get(held, held.lower())
    if kind == "null":
        return "null_type"
    if kind == "dyn":
        return "dyn"
    if kind == "list_type":
        inner = type_text(held["elem_type"][0])
        return inner and f"list({inner})"
    if kind == "map_type":
        key, value = type_text(held["key_type"][0]), type_text(held["value_type"][0])
        return f"map({key}, {value})" if key and value else None
    if kind == "type":
        return "type"
    if kind == "abstract_type":
        parameters = [type_text(p) for p in held.get("parameter_types", [])]
        return f"{text(held['name'][0])}({', '.join(map(str, parameters))})" if all(parameters) else None
    return None


def converted(file: str, section: str, test: Message) -> dict[str, Any]:
    row: dict[str, Any] = {
        "file": file,
        "section": section,
        "name": text(test["name"][0]),
        "expr": text(test["expr"][0]),
    }
    for flag in ("disable_check", "disable_macros", "check_only"):
        if test.get(flag) == ["true"]:
            row[flag] = True
    if "container" in test:
        row["container"] = text(test["container"][0])
    for declared in test.get("type_env", []):
        kind = type_text(declared["ident"][0]["type"][0]) if "ident" in declared else None
        row.setdefault("types", {})[text(declared["name"][0])] = kind
    for binding in test.get("bindings", []):
        value = binding["value"][0].get("value", [None])[0]
        row.setdefault("bindings", {})[text(binding["key"][0])] = tagged(value) if value is not None else None
    if "eval_error" in test or "any_eval_errors" in test:
        row["error"] = True
    elif "typed_result" in test:
        result = test["typed_result"][0]
        if "result" in result:
            row["value"] = tagged(result["result"][0])
        row["type"] = type_text(result["deduced_type"][0])
    elif "unknown" in test or "any_unknowns" in test:
        row["unknown"] = True
    else:
        row["value"] = tagged(test["value"][0]) if "value" in test else {"bool": True}
    return row


def main() -> None:
    for path in sorted(Path(sys.argv[1]).glob("*.textproto")):
        for section in Reader(path.read_text()).message("").get("section", []):
            for test in section.get("test", []):
                row = converted(path.stem, text(section["name"][0]), test)
                sys.stdout.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
