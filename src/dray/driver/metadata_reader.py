"""Reading device metadata files, inside a container or beside one: by version, and merged over several drivers.

A file is a stream of JSON objects with the same content, one per version, newest first: a reader takes the first version it
knows. Files of newer drivers can be read that way, and those of older ones.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dray.driver.claim_files import CONTAINER_ROOT, GROUP, KIND, VERSIONS

Attribute = Any
Document = Mapping[str, Any]


class MetadataError(ValueError):
    """The file is not what a driver should have written, or has no version that is known here."""


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    driver: str
    pool: str
    name: str
    attributes: Mapping[str, Mapping[str, Attribute]]
    network_data: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ClaimMetadata:
    """A claim, and its devices by request."""

    name: str
    namespace: str
    uid: str
    generation: int
    pod_claim_name: str
    requests: Mapping[str, tuple[DeviceEntry, ...]]


def request_directory(claim: str, request: str, *, pod_claim: str = "", root: str = CONTAINER_ROOT) -> Path:
    """Where a container finds a request's files; `pod_claim` is the pod's name for a claim made from a template."""
    folder = f"resourceclaimtemplates/{pod_claim}" if pod_claim else f"resourceclaims/{claim}"
    return Path(root) / folder / request


def read_request(directory: Path) -> ClaimMetadata:
    """What all drivers say of one request; devices of the same request are joined, in the order of the files' names."""
    files = sorted(directory.glob("*-metadata.json"))
    if not files:
        raise MetadataError(f"no metadata files found in {directory}")
    merged: ClaimMetadata | None = None
    for path in files:
        found = read_metadata(path.read_text())
        merged = found if merged is None else _joined(merged, found)
    assert merged is not None
    return merged


def read_metadata(text: str) -> ClaimMetadata:
    """The first object whose version is known. Anything else that is wrong before it is an error."""
    unknown: list[str] = []
    for document in _objects(text):
        version = _version(document)
        if version in VERSIONS:
            return _decoded(document)
        unknown.append(version)
    if not unknown:
        raise MetadataError("no metadata objects found in stream")
    raise MetadataError(f"no compatible metadata version found in stream (unknown versions: {', '.join(unknown)})")


def _objects(text: str) -> Iterator[Document]:
    decoder, position = json.JSONDecoder(), 0
    while text[position:].strip():
        position += len(text[position:]) - len(text[position:].lstrip())
        try:
            document, position = decoder.raw_decode(text, position)
        except ValueError as error:
            raise MetadataError(f"metadata is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise MetadataError(f"metadata must be objects, not {type(document).__name__}")
        yield document


def _version(document: Document) -> str:
    """The version alone for our group, everything of the apiVersion for others."""
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            raise MetadataError(f"metadata object without {field}")
    group, _, version = str(document["apiVersion"]).rpartition("/")
    is_ours = group == GROUP and document["kind"] == KIND
    return version if is_ours else f"{document['apiVersion']} {document['kind']}"


def _decoded(document: Document) -> ClaimMetadata:
    try:
        metadata = document["metadata"]
        requests = {
            str(each["name"]): tuple(_device(device) for device in each.get("devices") or ())
            for each in document.get("requests") or ()
        }
        return ClaimMetadata(
            name=str(metadata["name"]),
            namespace=str(metadata["namespace"]),
            uid=str(metadata["uid"]),
            generation=int(metadata.get("generation", 0)),
            pod_claim_name=str(document.get("podClaimName", "")),
            requests=requests,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MetadataError(f"malformed {document['apiVersion']} {document['kind']}: {error!r}") from error


def _device(device: Document) -> DeviceEntry:
    return DeviceEntry(
        driver=str(device["driver"]),
        pool=str(device["pool"]),
        name=str(device["name"]),
        attributes=dict(device.get("attributes") or {}),
        network_data=device.get("networkData"),
    )


def _joined(first: ClaimMetadata, second: ClaimMetadata) -> ClaimMetadata:
    if (first.uid, first.namespace, first.name) != (second.uid, second.namespace, second.name):
        raise MetadataError(f"files of two claims in one directory: {first.name} and {second.name}")
    names = list(dict.fromkeys([*first.requests, *second.requests]))
    requests = {name: (*first.requests.get(name, ()), *second.requests.get(name, ())) for name in names}
    return ClaimMetadata(first.name, first.namespace, first.uid, first.generation, first.pod_claim_name, requests)
