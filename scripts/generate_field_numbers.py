"""Writes src/dray/apiserver/write/field_numbers.json: the field numbers of Kubernetes' protobuf encoding, for the kinds we know.

A field's number is a fact of the wire. For most kinds it is read from the message descriptors that every Go program built
with the official client carries (kubectl does); what is younger than that program is in the tables below. Run it with
`.venv/bin/python scripts/generate_field_numbers.py $(which kubectl)` after the schemas changed.

The outcome maps a type of `dray.api.schemas` to numbers and wire names. A number that stands for an embedded struct, whose
fields JSON shows as if they were the outer one's, maps to the numbers of that struct instead of a name.
"""

import json
import re
import sys
import zlib
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from dray.api.schemas import StructSchema, known_kinds, schema_for, struct

TARGET = Path(__file__).parent.parent / "src" / "dray" / "apiserver" / "write" / "field_numbers.json"
GZIP = re.compile(rb"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff")
MOST = 2_000_000
Numbers = dict[str, Any]

# resource.k8s.io/v1 and v1beta2: fields in the order of their numbers; `=` sets the next number, `@` embeds.
RESOURCE = {
    "AllocatedDeviceStatus": "driver pool device conditions data networkData shareID",
    "AllocationResult": "devices =3 nodeSelector =5 allocationTimestamp",
    "CELDeviceSelector": "expression",
    "CapacityRequestPolicy": "default =3 validValues validRange",
    "CapacityRequestPolicyRange": "min max step",
    "CapacityRequirements": "requests",
    "Counter": "value",
    "CounterSet": "name counters",
    "Device": "name attributes capacity consumesCounters nodeName nodeSelector allNodes taints bindsToNode "
    "bindingConditions bindingFailureConditions allowMultipleAllocations",
    "DeviceAllocationConfiguration": "source requests @DeviceConfiguration",
    "DeviceAllocationResult": "results config",
    "DeviceAttribute": "=2 int bool string version",
    "DeviceCapacity": "value requestPolicy",
    "DeviceClaim": "requests constraints config",
    "DeviceClaimConfiguration": "requests @DeviceConfiguration",
    "DeviceClass": "metadata spec",
    "DeviceClassConfiguration": "@DeviceConfiguration",
    "DeviceClassSpec": "selectors config =4 extendedResourceName",
    "DeviceConfiguration": "opaque",
    "DeviceConstraint": "requests matchAttribute distinctAttribute",
    "DeviceCounterConsumption": "counterSet counters",
    "DeviceRequest": "name exactly firstAvailable",
    "DeviceRequestAllocationResult": "request driver pool device adminAccess tolerations bindingConditions "
    "bindingFailureConditions shareID consumedCapacity",
    "DeviceSelector": "cel",
    "DeviceSubRequest": "name deviceClassName selectors allocationMode count tolerations capacity",
    "DeviceTaint": "key value effect timeAdded",
    "DeviceToleration": "key operator value effect tolerationSeconds",
    "ExactDeviceRequest": "deviceClassName selectors allocationMode count adminAccess tolerations capacity",
    "NetworkDeviceData": "interfaceName ips hardwareAddress",
    "OpaqueDeviceConfiguration": "driver parameters",
    "ResourceClaim": "metadata spec status",
    "ResourceClaimConsumerReference": "apiGroup =3 resource name uid",
    "ResourceClaimSpec": "devices",
    "ResourceClaimStatus": "allocation reservedFor =4 devices",
    "ResourceClaimTemplate": "metadata spec",
    "ResourceClaimTemplateSpec": "metadata spec",
    "ResourcePool": "name generation resourceSliceCount",
    "ResourceSlice": "metadata spec",
    "ResourceSliceSpec": "driver pool nodeName nodeSelector allNodes devices perDeviceNodeSelection sharedCounters",
}
LATER = {
    "core.v1.PodCondition": {"7": "observedGeneration"},
    "core.v1.PodStatus": {"17": "observedGeneration"},
    "core.v1.PodSpec": {"41": "hostnameOverride"},
}


def spelled_out(name: str) -> Numbers:
    numbers: Numbers = {}
    number = 1
    for word in RESOURCE[name].split():
        if word.startswith("="):
            number = int(word[1:])
            continue
        numbers[str(number)] = spelled_out(word[1:]) if word.startswith("@") else word
        number += 1
    return numbers


def messages(program: Path) -> dict[str, DescriptorProto]:
    """Every message of the API in a program, by its full name."""
    data = program.read_bytes()
    found: dict[str, DescriptorProto] = {}
    for match in GZIP.finditer(data):
        try:
            raw = zlib.decompressobj(31).decompress(data[match.start() : match.start() + MOST])
            file = FileDescriptorProto.FromString(raw)
        except Exception:  # not every such mark begins a descriptor
            continue
        if file.package.startswith("k8s.io."):
            found |= {f".{file.package}.{message.name}": message for message in file.message_type}
    return found


class Table:
    def __init__(self, known: dict[str, DescriptorProto]) -> None:
        self.known = known
        self.types: dict[str, Numbers] = {}

    def add(self, schema: StructSchema, message: DescriptorProto | None) -> None:
        if schema.name in self.types:
            return
        bare = schema.name.rpartition(".")[2]
        if schema.name.startswith(("resource.v1.", "resource.v1beta2.")) and bare in RESOURCE:
            self.types[schema.name] = spelled_out(bare)
        elif message is not None:
            self.types[schema.name] = self.numbers(schema, message) | LATER.get(schema.name, {})
        else:
            return
        for name, field in schema.fields.items():
            if field.type.name.count(".") == 2:
                self.add(struct(field.type.name), self.message_of(message, name))

    def numbers(self, schema: StructSchema, message: DescriptorProto) -> Numbers:
        found: Numbers = {}
        spelling = {name.lower(): name for name in schema.fields}
        for field in message.field:
            inner = self.known.get(field.type_name)
            if field.name.lower() in spelling:
                found[str(field.number)] = spelling[field.name.lower()]
            elif inner is not None and any(part.name in schema.fields for part in inner.field):
                found[str(field.number)] = self.numbers(schema, inner)
        return found

    def message_of(self, message: DescriptorProto | None, name: str) -> DescriptorProto | None:
        """The message that a field, or one of an embedded struct, holds."""
        if message is None:
            return None
        for field in message.field:
            if field.name == name:
                return self.value_of(message, field.type_name)
        embedded = (self.known.get(field.type_name) for field in message.field)
        return next((found for inner in embedded if inner and (found := self.message_of_own(inner, name))), None)

    def message_of_own(self, message: DescriptorProto, name: str) -> DescriptorProto | None:
        return next((self.value_of(message, field.type_name) for field in message.field if field.name == name), None)

    def value_of(self, message: DescriptorProto, type_name: str) -> DescriptorProto | None:
        entry = next((row for row in message.nested_type if type_name.endswith(f".{row.name}")), None)
        if entry is not None and entry.options.map_entry:
            return self.known.get(entry.field[1].type_name)
        return self.known.get(type_name)


def main() -> None:
    table = Table(messages(Path(sys.argv[1])))
    for api_version, kind in known_kinds():
        schema = schema_for(api_version, kind)
        assert schema is not None
        package, _, version = schema.name.rpartition(".")[0].rpartition(".")
        root = ".k8s.io.apimachinery.pkg.apis" if package == "meta" else ".k8s.io.api"
        table.add(schema, table.known.get(f"{root}.{package}.{version}.{schema.name.rpartition('.')[2]}"))
    for name in ("core.v1.NodeSelector", "meta.v1.ObjectMeta", "meta.v1.Condition"):
        package, version, bare = name.split(".")
        root = ".k8s.io.apimachinery.pkg.apis" if package == "meta" else ".k8s.io.api"
        table.add(struct(name), table.known.get(f"{root}.{package}.{version}.{bare}"))
    TARGET.write_text(
        json.dumps(table.types, indent=None, separators=(",", ":"), sort_keys=True).replace('},"', '},\n"') + "\n"
    )
    print(f"{len(table.types)} types, {TARGET.stat().st_size} bytes")
    without = [
        schema_name
        for key in known_kinds()
        if (found := schema_for(*key)) and (schema_name := found.name) not in table.types
    ]
    print("no numbers for:", ", ".join(without))


if __name__ == "__main__":
    main()
