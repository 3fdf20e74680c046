"""What `kubectl explain` says about a type or a field.

Fields with a meaning of their own have a sentence here; the others say what their name says.
"""

from __future__ import annotations

import re

TYPES: dict[str, str] = {
    "ResourceClaim": "ResourceClaim asks for devices: one or more requests, served together by drivers and used by pods.",
    "ResourceClaimTemplate": "ResourceClaimTemplate is what a claim of its own is made from for each pod that names it.",
    "ResourceSlice": "ResourceSlice publishes devices of one pool of one driver.",
    "DeviceClass": "DeviceClass names a kind of device: which devices belong to it, and how they are set up.",
    "DeviceTaintRule": "DeviceTaintRule puts a taint on all devices it selects.",
    "ResourcePoolStatusRequest": "ResourcePoolStatusRequest asks how many devices of a driver's pools are free.",
    "PodGroup": "PodGroup is a set of pods that are placed together and may share claims.",
    "Workload": "Workload holds the templates of the PodGroups of one application.",
    "Pod": "Pod is a set of containers that run together on one node.",
    "Node": "Node is a machine that runs pods.",
    "Namespace": "Namespace is a scope for names.",
    "Lease": "Lease says who holds something, and until when.",
    "ObjectMeta": "ObjectMeta is what every object carries: its name, labels, owners and history.",
}
FIELDS: dict[str, str] = {
    "apiVersion": "The version of the schema this object is written in.",
    "kind": "The kind of this object.",
    "metadata": "Standard object metadata.",
    "spec": "What is wanted.",
    "status": "What has been observed; written by controllers.",
    "ResourceClaimSpec.devices": "Which devices are requested, and what must hold between them.",
    "DeviceClaim.requests": "One entry for each kind of device that is needed.",
    "DeviceClaim.constraints": "What must hold between the devices of several requests.",
    "DeviceClaim.config": "Settings for drivers.",
    "DeviceRequest.exactly": "One kind of device, with no alternative.",
    "DeviceRequest.firstAvailable": "Alternatives in order of preference: the first that can be served is used.",
    "ExactDeviceRequest.deviceClassName": "The DeviceClass the devices must belong to.",
    "ExactDeviceRequest.selectors": "CEL expressions that all must hold for a device.",
    "ExactDeviceRequest.count": "How many devices are needed.",
    "ExactDeviceRequest.allocationMode": "ExactCount (the default) or All.",
    "ExactDeviceRequest.adminAccess": "Access to devices in use, for monitoring; needs a labelled namespace.",
    "ResourceClaimStatus.allocation": "The devices that were chosen; set once.",
    "ResourceClaimStatus.reservedFor": "Who may use the claim right now.",
    "ResourceClaimStatus.devices": "What drivers report about the allocated devices.",
    "ResourceSliceSpec.driver": "The driver that publishes the devices.",
    "ResourceSliceSpec.pool": "The pool this slice is a part of.",
    "ResourceSliceSpec.nodeName": "The one node from which the devices can be used.",
    "ResourceSliceSpec.devices": "The devices of this part of the pool.",
    "CELDeviceSelector.expression": "A CEL expression over the variable `device` that yields true or false.",
}
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _words(name: str) -> str:
    return " ".join(word if word.isupper() else word.lower() for word in _WORDS.split(name))


def type_text(type_name: str) -> str:
    short = type_name.rpartition(".")[2]
    return TYPES.get(short, f"{short}: {_words(short)}.")


def field_text(type_name: str, field: str) -> str:
    short = type_name.rpartition(".")[2]
    return FIELDS.get(f"{short}.{field}") or FIELDS.get(field) or f"The {_words(field)}."
