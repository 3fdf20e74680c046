"""What `kubectl explain` says about a type or a field.

`field_texts.json` holds the texts: `types` by short name, or by full name where two types share a short one, and `fields` by the short names of the types that share them. Below `*`
are texts for fields of every type. A type or field without a text of its own is described by its name.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

import msgspec

EVERY_TYPE = "*"
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@cache
def _type_texts() -> dict[str, str]:
    texts: dict[str, str] = _read()["types"]
    return texts


@cache
def _field_texts() -> dict[str, str]:
    """Texts by `Type.field`."""
    return {
        f"{type_name}.{field}": text
        for types, fields in _read()["fields"].items()
        for type_name in types.split()
        for field, text in fields.items()
    }


def _read() -> dict[str, Any]:
    texts: dict[str, Any] = msgspec.json.decode(resources.files(__package__).joinpath("field_texts.json").read_bytes())
    return texts


def words_of(name: str) -> str:
    """`nodeSelector` as `node selector`."""
    return " ".join(word if word.isupper() else word.lower() for word in _WORDS.split(name))


def type_text(type_name: str) -> str:
    short, texts = type_name.rpartition(".")[2], _type_texts()
    return texts.get(type_name) or texts.get(short) or f"{short}: {words_of(short)}."


def field_text(type_name: str, field: str) -> str:
    short, texts = type_name.rpartition(".")[2], _field_texts()
    return texts.get(f"{short}.{field}") or texts.get(f"{EVERY_TYPE}.{field}") or f"The {words_of(field)}."
