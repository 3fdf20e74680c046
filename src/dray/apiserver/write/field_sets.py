"""Sets of fields, in the form in which managedFields carries them (FieldsV1), and the sets that documents stand for.

A set is a dict of path elements: `f:name` (a field), `k:{"name":"x"}` (a list entry by its keys), `v:"x"` (a list entry by its
value). `{}` is an element of the set with nothing below; `"."` among others says that the element itself is in the set, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import compress, repeat
from operator import ne
from typing import Any, NamedTuple

import msgspec

from dray.api.jsontext import go_json
from dray.api.schemas import FieldSchema, StructSchema, TypeRef, struct
from dray.api.slice_text import device_trees

FieldSet = dict[str, Any]
MEMBER = "."
_MISSING: Any = object()


# --- sets ------------------------------------------------------------------------------------------------------------


def has_self(node: FieldSet) -> bool:
    return not node or MEMBER in node


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one or not other:
        return one or other
    out = {**one, **other}
    for key in one.keys() & other.keys():
        out[key] = _union_node(one[key], other[key])
    return out


def _union_node(one: FieldSet, other: FieldSet) -> FieldSet:
    return _node(has_self(one) or has_self(other), union(_children(one), _children(other)))


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in `one` and not in `other`, element by element."""
    shared = one.keys() & other.keys()
    if not shared:
        return one
    out = dict(one)
    for key in shared:
        node, taken = one[key], other[key]
        member = has_self(node) and not has_self(taken)
        children = difference(_children(node), _children(taken)) if node else node
        if member or children:
            out[key] = _node(member, children)
        else:
            del out[key]
    return out


def without_below(one: FieldSet, roots: FieldSet) -> FieldSet:
    """`one` without the elements of `roots` and everything below them."""
    shared = one.keys() & roots.keys()
    if not shared:
        return one
    out = dict(one)
    for key in shared:
        node, root = one[key], roots[key]
        children = {} if has_self(root) else without_below(_children(node), root)
        if children or (has_self(node) and not has_self(root)):
            out[key] = _node(has_self(node), children)
        else:
            del out[key]
    return out


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    out: FieldSet = {}
    for key, node in one.items():
        mate = other.get(key)
        if mate is None:
            continue
        member = has_self(node) and has_self(mate)
        children = intersection(_children(node), _children(mate))
        if member or children:
            out[key] = _node(member, children)
    return out


def with_parents(one: FieldSet) -> FieldSet:
    """The set with everything that holds an element of it."""
    return {
        key: {MEMBER: {}, **with_parents(_children(node))} if node else {} for key, node in one.items() if key != MEMBER
    }


def paths(one: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every element of the set, as the way to it."""
    for key in sorted(one):
        if key == MEMBER:
            continue
        here = (*prefix, key)
        if has_self(one[key]):
            yield here
        yield from paths(one[key], here)


def path_text(path: tuple[str, ...]) -> str:
    """A path as conflict messages print it: `.spec.containers[name="main"].image`."""
    out = []
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            out.append(f".{rest}")
        elif kind == "v":
            out.append(f"[={rest}]")
        elif kind == "k":
            out.append(f"[{_keys_text(rest)}]")
        else:
            out.append(f"[{rest}]")
    return "".join(out)


def _keys_text(text: str) -> str:
    from dray.apiserver.watch.stored_object import decode

    keys = decode(text.encode())
    return ",".join(f"{key}={go_json(value)}" for key, value in sorted(keys.items()))


def _children(node: FieldSet) -> FieldSet:
    return {key: child for key, child in node.items() if key != MEMBER} if MEMBER in node else node


def _node(member: bool, children: FieldSet) -> FieldSet:
    if not children:
        return {}
    return {MEMBER: {}, **children} if member else children


# --- sets of documents -----------------------------------------------------------------------------------------------


class Field:
    """What the walk needs to know about one type: how its members are told apart."""

    __slots__ = ("item", "keys", "shape", "struct")

    def __init__(self, ref: TypeRef, list_type: str = "atomic", keys: tuple[str, ...] = ()) -> None:
        self.struct: dict[str, Field] | None = None
        self.item: Field | None = None
        self.keys = keys
        self.shape = "leaf"
        if ref.shape == "struct":
            schema = struct(ref.name)
            if not schema.atomic:
                self.shape, self.struct = "struct", fields_of_struct(schema)
        elif ref.shape == "map":
            assert ref.item is not None
            self.shape, self.item = "map", Field(ref.item)
        elif ref.shape == "list" and list_type != "atomic":
            assert ref.item is not None
            self.shape, self.item = list_type, Field(ref.item)

    @classmethod
    def _made(cls, shape: str) -> Field:
        made = cls(TypeRef("scalar", "any"))
        made.shape = shape
        return made

    @classmethod
    def of_struct(cls, fields: dict[str, Field]) -> Field:
        made = cls._made("struct")
        made.struct = fields
        return made

    @classmethod
    def of_map(cls, item: Field) -> Field:
        made = cls._made("map")
        made.item = item
        return made

    @classmethod
    def of_list(cls, shape: str, item: Field, keys: tuple[str, ...]) -> Field:
        made = cls._made(shape)
        made.item, made.keys = item, keys
        return made


class OwnedFields:
    """The fields of a kind whose schema comes at run time; stands where other kinds have their `StructSchema`."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, Field]) -> None:
        self.fields = fields


OwnershipSchema = StructSchema | OwnedFields

_structs: dict[str, dict[str, Field]] = {}


def fields_of_struct(schema: OwnershipSchema) -> dict[str, Field]:
    if isinstance(schema, OwnedFields):
        return schema.fields
    found = _structs.get(schema.name)
    if found is None:
        found = _structs[schema.name] = {}
        found.update((name, _field(entry)) for name, entry in schema.fields.items())
    return found


def _field(entry: FieldSchema) -> Field:
    if entry.atomic:
        return LEAF
    return Field(entry.type, "map-list" if entry.list_type == "map" else entry.list_type, entry.list_keys)


LEAF = Field(TypeRef("scalar", "any"))
# A value without a schema: maps are merged, lists and scalars replaced.
DEDUCED = Field.of_map(LEAF)
DEDUCED.item = DEDUCED


def fields_set(document: dict[str, Any], schema: OwnershipSchema) -> FieldSet:
    """The fields that an applied configuration names."""
    return _struct_set(document, fields_of_struct(schema))


def _struct_set(value: dict[str, Any], fields: dict[str, Field]) -> FieldSet:
    return {f"f:{key}": _value_set(entry, fields.get(key, LEAF), named=True) for key, entry in value.items()}


def _value_set(value: Any, field: Field, *, named: bool) -> FieldSet:
    """`named` fields of a struct are in the set only by what is below them; entries of maps and lists also themselves."""
    if not value or field.shape == "leaf":
        return {}
    if field.shape == "struct" and isinstance(value, dict):
        assert field.struct is not None
        children = _struct_set(value, field.struct)
    elif field.shape == "map" and isinstance(value, dict):
        assert field.item is not None
        children = {f"f:{key}": _value_set(entry, field.item, named=False) for key, entry in value.items()}
    elif isinstance(value, list) and field.shape in ("set", "map-list"):
        assert field.item is not None
        children = {key: _value_set(entry, field.item, named=False) for key, entry in _entries(value, field)}
    else:
        return {}
    return children if named else _node(True, children)


def _entries(value: list[Any], field: Field) -> Iterator[tuple[str, Any]]:
    """List entries with their path elements; of two with the same keys the later one counts."""
    for entry in value:
        yield element_of(entry, field), entry


def element_of(entry: Any, field: Field) -> str:
    if field.shape == "set" or not isinstance(entry, dict):
        return "v:" + go_json(entry)
    keys = {key: entry[key] for key in sorted(field.keys) if key in entry}
    if "protocol" in field.keys and "protocol" not in keys:
        keys["protocol"] = "TCP"  # the one key with a default
    return "k:" + go_json(keys)


# --- comparing documents ---------------------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """What changed between two documents of one version: the fields that are new or have another value, and those that are gone."""

    changed: FieldSet
    removed: FieldSet


def compare(before: dict[str, Any], after: dict[str, Any], schema: OwnershipSchema) -> Comparison:
    return _compare_fields(before, after, fields_of_struct(schema).get, "f:")


def _compare_fields(
    before: dict[str, Any], after: dict[str, Any], field_of: Callable[[str], Field | None], prefix: str
) -> Comparison:
    changed: FieldSet = {}
    removed: FieldSet = {}
    for key in compress(after, map(ne, map(before.get, after, repeat(_MISSING)), after.values())):
        element, field, new = prefix + key, field_of(key) or LEAF, after[key]
        if field.shape == "leaf":
            changed[element] = {}
        elif key not in before:
            changed[element] = _whole(new, field)
        else:
            inside = _compare_value(element, before[key], new, field)
            if inside.removed:
                removed[element] = inside.removed
            if inside.changed or not inside.removed:
                # Nothing inside: the same entries in another order, or an empty value in place of another.
                changed[element] = inside.changed
    for key in before.keys() - after.keys():
        removed[prefix + key] = _whole(before[key], field_of(key) or LEAF)
    return Comparison(changed, removed)


def _compare_value(element: str, old: Any, new: Any, field: Field) -> Comparison:
    if field.shape in ("struct", "map"):
        if isinstance(new, dict) and isinstance(old or {}, dict):
            compare = _compare_specs if element == SPEC else _compare_structs
            return compare(old or {}, new, field)
    elif isinstance(new, list) and isinstance(old or [], list):
        return _compare_lists(old or [], new, field)
    return Comparison({}, {})


def _compare_structs(old: dict[str, Any], new: dict[str, Any], field: Field) -> Comparison:
    return _compare_fields(old, new, _lookup(field), "f:")


class RememberedComparisons:
    """What changed between two values of a struct, for the JSON of the pairs that were met most recently.

    Objects from one template have equal specs, so a creation need not compare theirs with the empty one again. Nobody changes a set.
    """

    def __init__(self, entries: int, most_bytes: int) -> None:
        self._entries, self._most_bytes = entries, most_bytes
        self._known: OrderedDict[tuple[Field, bytes], Comparison] = OrderedDict()

    def __call__(self, old: dict[str, Any], new: dict[str, Any], field: Field) -> Comparison:
        """A list of devices has one owner: its slice is compared as fast as it is looked up."""
        try:
            key = (field, msgspec.json.encode((old, new))) if device_trees.text_of(new.get("devices")) is None else None
        except (TypeError, ValueError, OverflowError, RecursionError):
            key = None
        found = self._known.get(key) if key is not None else None
        if found is None:
            found = _compare_structs(old, new, field)
            if key is not None and len(key[1]) <= self._most_bytes:
                self._known[key] = found
                if len(self._known) > self._entries:
                    self._known.popitem(last=False)
        elif key is not None:
            self._known.move_to_end(key)
        return found


SPEC = "f:spec"
_compare_specs = RememberedComparisons(entries=256, most_bytes=4096)


def _lookup(field: Field) -> Callable[[str], Field | None]:
    if field.shape == "struct":
        assert field.struct is not None
        return field.struct.get
    item = field.item
    return lambda key: item


def _compare_lists(old: list[Any], new: list[Any], field: Field) -> Comparison:
    item = field.item or LEAF
    return _compare_fields(dict(_entries(old, field)), dict(_entries(new, field)), lambda _: item, "")


def _whole(value: Any, field: Field) -> FieldSet:
    """A value that is new (or gone) as a whole: the element itself and everything below it."""
    if not value or field.shape == "leaf":
        return {}
    children: FieldSet
    if field.shape == "struct" and isinstance(value, dict):
        assert field.struct is not None
        children = {f"f:{key}": _whole(entry, field.struct.get(key, LEAF)) for key, entry in value.items()}
    elif field.shape == "map" and isinstance(value, dict):
        children = {f"f:{key}": _whole(entry, field.item or LEAF) for key, entry in value.items()}
    elif isinstance(value, list) and field.shape in ("set", "map-list"):
        children = {key: _whole(entry, field.item or LEAF) for key, entry in _entries(value, field)}
    else:
        return {}
    return _node(True, children)
