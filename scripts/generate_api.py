"""Writes the structs of `dray.api` from the description in `dray.api.schemas`. `--check` only compares.

    .venv/bin/python scripts/generate_api.py [--check]

`scripts/api_structs.toml` says which modules there are, which structs they hold, and which fields of the described types
each struct has. Types, defaults and wire names come from the description, so that none of them is written twice.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dray.api.schemas import FieldSchema, TypeRef, struct

ROOT = Path(__file__).parent.parent
STRUCTS = ROOT / "scripts" / "api_structs.toml"
API = ROOT / "src" / "dray" / "api"
HEADER = "# Made by scripts/generate_api.py from scripts/api_structs.toml: change that file instead of this one.\n"

SCALARS = {"string": "str", "bytes": "str", "bool": "bool", "int32": "int", "int64": "int", "float": "float"}
ZEROS = {"str": '""', "bool": "False", "int": "0", "float": "0.0", "Quantity": "Quantity.ZERO", "Any": "None"}
# Fields that a projection leaves undecoded.
OWN_TYPES = {"text": 'msgspec.Raw = msgspec.Raw(b"null")', "document": "Any = None"}
# Python words that cannot be, or should not be, names of fields.
RESERVED = {"continue", "int", "bool"}
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def main(arguments: list[str]) -> int:
    written = {API / f"{name}.py": module_text(name, entry) for name, entry in read_structs().items()}
    stale = [path for path, text in written.items() if not path.exists() or path.read_text() != text]
    if arguments != ["--check"]:
        for path in stale:
            path.write_text(written[path])
        return 0
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not current: run scripts/generate_api.py")
    return 1 if stale else 0


def read_structs() -> dict[str, Any]:
    return tomllib.loads(STRUCTS.read_text())


def module_text(name: str, entry: dict[str, Any]) -> str:
    parts = [entry, *({**entry, **reader} for reader in entry.get("readers", {}).values())]
    classes = "\n\n\n".join(text for part in parts for text in Module(part).classes())
    about, head = entry["about"].strip(), entry["head"].strip()
    text = f'{HEADER}"""{about}{chr(10) if chr(10) in about else ""}"""\n\n{head}\n\n{classes}\n'
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", f"{name}.py", "-"]
    formatted = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    return formatted.stdout


class Module:
    def __init__(self, entry: dict[str, Any]) -> None:
        self._rows: dict[str, dict[str, Any]] = entry.get("structs", {})
        self._base = entry.get("base", "ApiStruct, frozen=True")
        self._is_projection = bool(entry.get("projection"))
        # Which struct stands for a described type: this module's own, then those it imports.
        self._struct_names = {
            kind: known for known, kinds in entry.get("imported", {}).items() for kind in kinds.split()
        }
        for known, row in self._rows.items():
            self._struct_names |= dict.fromkeys(row["type"].split(), known)

    def classes(self) -> Iterator[str]:
        for name, row in self._rows.items():
            section = row.get("section")
            rule = f"# --- {section} {'-' * (112 - len(section))}\n\n\n" if section else ""
            yield rule + self._class(name, row)

    def _class(self, name: str, row: dict[str, Any]) -> str:
        tag = f', tag_field="kind", tag="{row["kind"]}"' if "kind" in row else ""
        lines = [f"class {name}({self._base}{tag}):"]
        if doc := row.get("doc"):
            lines += [f'    """{doc.strip()}"""' if "\n" not in doc.strip() else f'    """{doc.strip()}\n    """', ""]
        if version := row.get("apiVersion"):
            lines.append(f"    api_version: str = msgspec.field(default_factory=lambda: {version})")
        fields = row["fields"].split()
        lines += [f"    {self._field(row, field)}" for field in fields]
        return "\n".join(lines if fields or version else [*lines, "    pass"])

    def _field(self, row: dict[str, Any], wire: str) -> str:
        wire, _, own_type = wire.partition("=")
        is_optional, wire = wire.endswith("?"), wire.removesuffix("?")
        schema = next(found for kind in row["type"].split() if (found := struct(kind).fields.get(wire)))
        name = snake_case(wire)
        own = row.get("own", {}).get(wire) or OWN_TYPES.get(own_type)
        annotation, default = own.split(" = ") if own else self._annotation(schema)
        if is_optional:
            annotation, default = f"{self._type(schema.type)} | None", "None"
        if camel_case(name) == wire and not name.endswith("_"):
            return f"{name}: {annotation} = {default}"
        if default.startswith("msgspec.field("):
            return f'{name}: {annotation} = {default[:-1]}, name="{wire}")'
        return f'{name}: {annotation} = msgspec.field(default={default}, name="{wire}")'

    def _annotation(self, field: FieldSchema) -> tuple[str, str]:
        python = self._type(field.type)
        if python == "msgspec.Raw":
            return python, "msgspec.Raw()"
        if field.type.shape in ("list", "map") and self._is_projection:
            return f"{python} | None", "None"
        if field.type.shape == "list":
            return python, "()"
        if field.type.shape == "map":
            return python, "{}"
        if field.is_pointer or field.type.name in ("time", "microTime"):
            return f"{python} | None", "None"
        return python, ZEROS.get(python) or f"msgspec.field(default_factory={python})"

    def _type(self, ref: TypeRef) -> str:
        if ref.shape == "struct":
            return self._struct_names[ref.name]
        if ref.item is not None and ref.shape == "list":
            return f"list[{self._type(ref.item)}]" if self._is_projection else f"tuple[{self._type(ref.item)}, ...]"
        if ref.item is not None:
            return f"dict[str, {self._type(ref.item)}]"
        special = {"quantity": "Any" if self._is_projection else "Quantity", "time": "str", "microTime": "str"}
        special |= {"intOrString": "int | str", "any": "msgspec.Raw"}
        return special.get(ref.name) or SCALARS[ref.name]


def snake_case(wire: str) -> str:
    if wire in RESERVED:
        return wire + "_"
    return "_".join(_WORDS.split(wire)).lower().replace("i_ps", "ips")


def camel_case(name: str) -> str:
    """As msgspec renames: `host_ip` becomes `hostIp`."""
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
