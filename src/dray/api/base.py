"""The base class of all API structs."""

from collections.abc import Mapping
from typing import Any

import msgspec


class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A frozen API value; snake_case here, camelCase on the wire, defaults left out of the wire form."""


def struct_like(struct: type[msgspec.Struct], name: str, changed: Mapping[str, Any]) -> type[msgspec.Struct]:
    """A struct with the fields of `struct`, some of them changed: another type and default for a field, or None to leave it out."""
    fields: list[tuple[str, Any, Any]] = []
    for each in msgspec.structs.fields(struct):
        if each.name in changed:
            if changed[each.name] is not None:
                kind, default = changed[each.name]
                fields.append((each.name, kind, msgspec.field(default=default, name=each.encode_name)))
        elif each.default_factory is not msgspec.NODEFAULT:
            factory = msgspec.field(default_factory=each.default_factory, name=each.encode_name)
            fields.append((each.name, each.type, factory))
        else:
            fields.append((each.name, each.type, msgspec.field(default=each.default, name=each.encode_name)))
    config = struct.__struct_config__
    return msgspec.defstruct(
        name, fields, kw_only=True, frozen=True, gc=False, tag=config.tag, tag_field=config.tag_field
    )
