"""The base class of all API structs."""

import msgspec


class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A frozen API value; snake_case here, camelCase on the wire, defaults left out of the wire form."""
