"""Writes the description of Kubernetes' API, `src/dray/api/schemas/kubernetes/*.json`, from a clone of Kubernetes.

    .venv/bin/python scripts/describe_kubernetes.py KUBERNETES_GIT_DIR [REVISION]

Only facts are taken over: names of types and fields, their types, protobuf numbers, how an empty value is written, list
types and keys, patch strategies, defaults, and one row per served resource. `dray.api.schemas` documents the format.
The Go types give names, types, numbers and the rules for empty values. The OpenAPI documents give required fields, list
types, patch strategies and defaults. The `.proto` files check the numbers. The discovery documents give the resources.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src" / "dray" / "api" / "schemas" / "kubernetes"
REVISION = "v1.37.0-rc.1"
STAGING = "staging/src/"
PRINTERS = "pkg/printers/internalversion/printers.go"
PATHS = (
    "api/openapi-spec/v3",
    "api/discovery",
    STAGING + "k8s.io/api",
    STAGING + "k8s.io/apimachinery/pkg/apis/meta/v1",
    STAGING + "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
    STAGING + "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1",
    PRINTERS,
)
# Go packages outside of k8s.io/api, by the name that the description gives them.
PACKAGES = {
    "meta.v1": "k8s.io/apimachinery/pkg/apis/meta/v1",
    "apiextensions.v1": "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
    "apiregistration.v1": "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1",
}
# Types that no resource of a stock control plane serves but that its clients and webhooks exchange.
UNSERVED = ("meta.v1", "admission.v1")
SCALARS = {
    "string": "string", "bool": "bool", "int32": "int32", "int64": "int64", "int": "int64", "uint8": "int32",
    "uint32": "int64", "float64": "float", "[]byte": "bytes",
    "k8s.io/apimachinery/pkg/api/resource.Quantity": "quantity",
    "k8s.io/apimachinery/pkg/util/intstr.IntOrString": "intOrString",
    "k8s.io/apimachinery/pkg/types.UID": "string",
    "k8s.io/apimachinery/pkg/types.NodeName": "string",
    "k8s.io/apimachinery/pkg/types.NamespacedName": "string",
    "k8s.io/apimachinery/pkg/runtime.RawExtension": "any",
    f"{PACKAGES['meta.v1']}.Time": "time",
    f"{PACKAGES['meta.v1']}.MicroTime": "microTime",
    f"{PACKAGES['meta.v1']}.FieldsV1": "any",
    f"{PACKAGES['apiextensions.v1']}.JSON": "any",
}  # fmt: skip
# Go types that never travel by themselves, or whose protobuf form is not one message.
SKIPPED = {"Time", "MicroTime", "Timestamp", "Duration", "FieldsV1", "TypeMeta", "InternalEvent", "JSON", "WatchEvent"}


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    revision = arguments[1] if len(arguments) > 1 else REVISION
    source = Source(read_tree(Path(arguments[0]), revision))
    description = source.description()
    TARGET.mkdir(parents=True, exist_ok=True)
    for old in TARGET.glob("*.json"):
        old.unlink()
    for name, table in description.items():
        (TARGET / f"{name}.json").write_text(as_text(table))
    counts = {name: len(table) for name, table in description.items()}
    print(f"{revision}: {sum(counts.values()) - counts['resources']} types, {counts['resources']} resources")
    return 0


def as_text(table: dict[str, Any]) -> str:
    """JSON with one line for each field of a type and for each resource, so that differences are easy to read."""
    lines = []
    for name, entry in table.items():
        fields = entry.get("fields")
        if not fields:
            lines.append(f"{json.dumps(name)}: {json.dumps(entry)}")
            continue
        rest = "".join(f", {json.dumps(key)}: {json.dumps(entry[key])}" for key in entry if key != "fields")
        inner = ",\n".join(f"  {json.dumps(key)}: {json.dumps(line)}" for key, line in fields.items())
        lines.append(f'{json.dumps(name)}: {{"fields": {{\n{inner}\n}}{rest}}}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_tree(git_dir: Path, revision: str) -> dict[str, str]:
    """The text of the files below PATHS at `revision`, by path."""
    files: dict[str, str] = {}
    for path in PATHS:
        command = ["git", "-C", str(git_dir), "archive", revision, path]
        archive = subprocess.run(command, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is not None and member.name.endswith((".go", ".json", ".proto")):
                    files[member.name] = content.read().decode()
    return files


# --- Go --------------------------------------------------------------------------------------------------------------


@dataclass
class GoField:
    go_name: str
    go_type: str  # as written, with the package of the file resolved
    json_name: str
    options: tuple[str, ...]
    number: int | None
    is_inline: bool
    strategy: str = ""
    merge_key: str = ""


@dataclass
class GoPackage:
    path: str
    structs: dict[str, list[GoField]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)


IMPORT = re.compile(r'^\s*(?:import\s+)?(?:(\w+)\s+)?"([^"]+)"', re.M)
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
EMPTY_STRUCT = re.compile(r"^type (\w+) struct ?\{\s*\}", re.M)
ALIAS = re.compile(r"^type (\w+) (?:= )?([^\s{]+)$", re.M)
FIELD = re.compile(r"^\s*(?:(\w+)\s+)?([\w.*\[\]/{}]+)\s+`([^`]*)`", re.M)
TAG = re.compile(r'(\w+):"([^"]*)"')
NUMBER = re.compile(r"^\w+,(\d+),")
PROTO_NAME = re.compile(r"name=(\w+)")


def read_go_package(path: str, files: dict[str, str]) -> GoPackage:
    package = GoPackage(path)
    folder = f"{STAGING}{path}/"
    for name, text in files.items():
        base = name.removeprefix(folder)
        if not name.startswith(folder) or "/" in base or not base.endswith(".go"):
            continue
        if base.endswith("_test.go") or base.startswith(("generated.", "zz_", "types_swagger")):
            continue
        imports = {alias or target.rpartition("/")[2]: target for alias, target in IMPORT.findall(text)}
        for match in STRUCT.finditer(text):
            package.structs[match[1]] = list(_go_fields(match[2], path, imports))
        package.structs |= {match[1]: [] for match in EMPTY_STRUCT.finditer(text)}
        for match in ALIAS.finditer(text):
            package.aliases[match[1]] = _qualified(match[2], path, imports)
    return package


def _go_fields(body: str, path: str, imports: dict[str, str]) -> Iterator[GoField]:
    lines = "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("//"))
    for match in FIELD.finditer(lines):
        tags = dict(TAG.findall(match[3]))
        name, *options = tags.get("json", _proto_name(tags.get("protobuf", ""))).split(",")
        if name == "-":
            continue
        number = NUMBER.match(tags.get("protobuf", ""))
        yield GoField(
            go_name=match[1] or match[2].rpartition(".")[2],
            go_type=_qualified(match[2], path, imports),
            json_name=name,
            options=tuple(options),
            number=int(number[1]) if number else None,
            is_inline=not name,
            strategy=tags.get("patchStrategy", ""),
            merge_key=tags.get("patchMergeKey", ""),
        )


def _proto_name(tag: str) -> str:
    match = PROTO_NAME.search(tag)
    return match[1] if match else "-"


def _qualified(text: str, path: str, imports: dict[str, str]) -> str:
    """A Go type with full package paths: `[]v1.Taint` becomes `[]k8s.io/api/core/v1.Taint`."""
    for prefix in ("*", "[]"):
        if text.startswith(prefix) and text != "[]byte":
            return prefix + _qualified(text.removeprefix(prefix), path, imports)
    if text.startswith("map["):
        return "map[string]" + _qualified(text.partition("]")[2], path, imports)
    if text in SCALARS:
        return text
    alias, dot, bare = text.rpartition(".")
    return f"{imports[alias]}.{bare}" if dot else f"{path}.{text}"


# --- protobuf --------------------------------------------------------------------------------------------------------

MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.M | re.S)
PROTO_FIELD = re.compile(r"^\s*(?:optional|repeated|map<[^>]*>)\s*[\w.]*\s*(\w+) = (\d+);", re.M)


def proto_numbers(text: str) -> dict[str, dict[int, str]]:
    """Field number to field name, by message."""
    plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
    return {
        match[1]: {int(number): name for name, number in PROTO_FIELD.findall(match[2])}
        for match in MESSAGE.finditer(plain)
    }


# --- all of it -------------------------------------------------------------------------------------------------------


class Source:
    def __init__(self, files: dict[str, str]) -> None:
        self._files = files
        self._packages: dict[str, GoPackage] = {}
        self._openapi: dict[str, dict[str, Any]] = {}
        for name, text in files.items():
            if name.startswith("api/openapi-spec/v3/"):
                self._openapi |= json.loads(text).get("components", {}).get("schemas", {})

    def description(self) -> dict[str, dict[str, Any]]:
        resources = list(self._resources())
        packages = {package_of(row["group"], version) for row in resources for version in row["versions"]}
        tables = {name: self._package_table(name) for name in self._with_referenced(packages | set(UNSERVED))}
        columns = printer_columns(self._files[PRINTERS])
        for row in resources:
            row["columns"] = columns.get(row["kind"], [])
            self._check_types(row, tables)
        return {
            **dict(sorted(tables.items())),
            "resources": {f"{row['group']}/{row['plural']}": row for row in resources},
        }

    def _check_types(self, row: dict[str, Any], tables: dict[str, Any]) -> None:
        for version in row["versions"]:
            package = package_of(row["group"], version)
            if row["kind"] not in tables[package]:
                raise SystemExit(f"{row['kind']} is not a type of {package}")

    def _with_referenced(self, names: set[str]) -> list[str]:
        """`names` and the packages that their types mention."""
        found, todo = set(), list(names)
        while todo:
            name = todo.pop()
            if name in found:
                continue
            found.add(name)
            for entry in self._package_table(name).values():
                for text in entry["fields"].values():
                    word = text.split()[1].replace("[]", "").replace("{}", "")
                    if "." in word:
                        todo.append(word.rpartition(".")[0])
        return sorted(found)

    def _package(self, path: str) -> GoPackage:
        if path not in self._packages:
            self._packages[path] = read_go_package(path, self._files)
        return self._packages[path]

    def _package_table(self, name: str) -> dict[str, Any]:
        path = PACKAGES.get(name) or "k8s.io/api/" + name.replace(".", "/")
        package = self._package(path)
        messages = proto_numbers(self._files[f"{STAGING}{path}/generated.proto"])
        table = {}
        names = {*package.structs, *(name for name, text in package.aliases.items() if self._is_struct(text))}
        for bare in sorted(names & messages.keys() - SKIPPED):
            fields = dict(sorted(self._fields(f"{path}.{bare}")))
            check_numbers(f"{name}.{bare}", {at for _, at, _ in self._numbered(f"{path}.{bare}")}, messages[bare])
            table[bare] = self._entry(name, bare, fields)
        lists = {bare for bare, target in package.aliases.items() if target.startswith("[]")}
        if missing := messages.keys() - table.keys() - SKIPPED - lists:
            raise SystemExit(f"{name}: no Go type for the messages {sorted(missing)}")
        return table

    def _is_struct(self, go_type: str) -> bool:
        path, _, bare = go_type.rpartition(".")
        return "/" in path and go_type not in SCALARS and bare in self._package(path).structs

    def _go_struct(self, go_type: str) -> tuple[str, list[GoField]]:
        """The package and the fields of a struct, through aliases."""
        path, _, bare = go_type.rpartition(".")
        package = self._package(path)
        if bare in package.structs:
            return path, package.structs[bare]
        return self._go_struct(package.aliases[bare])

    def _numbered(self, go_type: str) -> Iterator[tuple[str, int, GoField]]:
        for entry in self._go_struct(go_type)[1]:
            if entry.number is not None:
                yield entry.json_name, entry.number, entry

    def _fields(self, go_type: str, prefix: str = "") -> Iterator[tuple[str, tuple[GoField, str]]]:
        """JSON name to Go field and number; an embedded struct's fields have its number and a dot before their own."""
        for entry in self._go_struct(go_type)[1]:
            if entry.is_inline and entry.go_name == "TypeMeta":
                for name in ("apiVersion", "kind"):
                    yield name, (GoField(name, "string", name, ("omitempty",), None, False), "-")
            elif entry.is_inline:
                yield from self._fields(entry.go_type.removeprefix("*"), f"{prefix}{entry.number}.")
            else:
                number = "-" if entry.number is None else f"{prefix}{entry.number}"
                yield entry.json_name, (entry, number)

    def _entry(self, package: str, bare: str, fields: dict[str, tuple[GoField, str]]) -> dict[str, Any]:
        schema = self._openapi.get(openapi_name(f"{package}.{bare}"), {})
        properties, required = schema.get("properties", {}), schema.get("required", ())
        lines = {
            name: self._line(entry, number, properties.get(name, {}), name in required)
            for name, (entry, number) in fields.items()
        }
        table: dict[str, Any] = {"fields": lines}
        if schema.get("x-kubernetes-map-type") == "atomic":
            table["atomic"] = True
        return table

    def _line(self, entry: GoField, number: str, schema: dict[str, Any], required: bool) -> str:
        text, is_pointer = self._type_text(entry.go_type)
        words = [number, text]
        words += ["pointer"] if is_pointer else []
        words += [word for word in ("omitempty", "omitzero") if word in entry.options]
        words += ["required"] if required else []
        words += list(_merge_words(entry, schema, text))
        default = schema.get("default")
        if default not in (None, {}, "", 0, False, []):
            words.append("default=" + json.dumps(default, separators=(",", ":")))
        return " ".join(words)

    def _type_text(self, go_type: str) -> tuple[str, bool]:
        if go_type.startswith("*"):
            return self._type_text(go_type[1:])[0], True
        if go_type in SCALARS:
            return SCALARS[go_type], False
        if go_type.startswith("[]"):
            return "[]" + self._type_text(go_type[2:])[0], False
        if go_type.startswith("map[string]"):
            return "{}" + self._type_text(go_type.removeprefix("map[string]"))[0], False
        path, _, bare = go_type.rpartition(".")
        package = self._package(path)
        target = package.aliases.get(bare)
        if target is None or (self._is_struct(target) and self._has_message(path, bare)):
            return f"{package_name(path)}.{bare}", False
        return self._type_text(target)

    def _has_message(self, path: str, bare: str) -> bool:
        return bare in proto_numbers(self._files[f"{STAGING}{path}/generated.proto"])

    def _resources(self) -> Iterator[dict[str, Any]]:
        """One row for each group and resource, with its versions in order of preference."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for name, text in self._files.items():
            listed = json.loads(text) if name.startswith("api/discovery/api") else {}
            group, _, version = str(listed.get("groupVersion", "")).rpartition("/")
            for found in listed.get("resources", ()):
                plural, _, subresource = found["name"].partition("/")
                row = rows.setdefault((group, plural), {"group": group, "plural": plural})
                if subresource:
                    row.setdefault("subresources", {})[subresource] = _subresource(found)
                else:
                    _describe_resource(row, found, version)
        for row in rows.values():
            row["versions"].sort(key=preference)
        yield from (rows[key] for key in sorted(rows))


def _describe_resource(row: dict[str, Any], found: dict[str, Any], version: str) -> None:
    row.setdefault("versions", []).append(version)
    row |= {"kind": found["kind"], "singular": found["singularName"], "namespaced": found["namespaced"]}
    row |= {"verbs": found["verbs"]}
    row |= {key: found[key] for key in ("shortNames", "categories") if found.get(key)}
    row.setdefault("subresources", {})


def _subresource(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in ("kind", "group", "version", "verbs") if found.get(key)}


def preference(version: str) -> tuple[bool, bool, int, int]:
    """v2 before v1 before v1beta2 before v1beta1 before v1alpha3."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    assert match is not None, version
    return bool(match[2]), match[2] == "alpha", -int(match[1]), -int(match[3] or 0)


def _merge_words(entry: GoField, schema: dict[str, Any], text: str) -> Iterator[str]:
    list_type = schema.get("x-kubernetes-list-type", "atomic")
    if text.startswith("[]") and list_type == "map":
        yield "list=map:" + ",".join(schema["x-kubernetes-list-map-keys"])
    elif text.startswith("[]") and list_type == "set":
        yield "list=set"
    if schema.get("x-kubernetes-map-type") == "atomic":
        yield "atomic"
    strategies = entry.strategy.split(",")
    if "merge" in strategies:
        yield f"merge={entry.merge_key}"
    if "retainKeys" in strategies:
        yield "retainKeys"


def check_numbers(name: str, ours: set[int], message: dict[int, str]) -> None:
    if ours != set(message):
        raise SystemExit(f"{name}: the Go type has numbers {sorted(ours)}, the message {sorted(message)}")


def package_name(path: str) -> str:
    """`core.v1` for k8s.io/api/core/v1."""
    known = {path: name for name, path in PACKAGES.items()}
    return known.get(path) or path.removeprefix("k8s.io/api/").replace("/", ".")


def package_of(group: str, version: str) -> str:
    if group == "internal.apiserver.k8s.io":
        return f"apiserverinternal.{version}"
    return f"{group.partition('.')[0] or 'core'}.{version}"


def openapi_name(name: str) -> str:
    package = name.rpartition(".")[0]
    folder = PACKAGES.get(package, "")
    if not folder:
        return f"io.k8s.api.{name}"
    return folder.replace("k8s.io/", "io.k8s.", 1).replace("/", ".") + name.removeprefix(package)


COLUMNS = re.compile(r"^\t(\w+) := \[\]metav1\.TableColumnDefinition\{\n(.*?)^\t\}", re.M | re.S)
COLUMN = re.compile(r'\{Name: "([^"]*)", Type: "(\w+)"(?:, Format: "(\w*)")?(?:, Priority: (\d))?')
HANDLER = re.compile(r"TableHandler\((\w+), (\w+)\)")
PRINTER = re.compile(r"^func (\w+)\(\w+ \*\w+\.(\w+),", re.M)


def printer_columns(text: str) -> dict[str, list[str]]:
    """Columns of `kubectl get` by kind, each as `Name`, or `Name|type|format|priority` where these are not the usual."""
    columns = {match[1]: [_column(*found) for found in COLUMN.findall(match[2])] for match in COLUMNS.finditer(text)}
    kinds = dict(PRINTER.findall(text))
    return {
        kinds[printer]: columns[name]
        for name, printer in HANDLER.findall(text)
        if name in columns and not kinds[printer].endswith("List")
    }


def _column(name: str, kind: str, form: str, priority: str) -> str:
    words = [name, "" if kind == "string" else kind, form, priority]
    return "|".join(words).rstrip("|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
