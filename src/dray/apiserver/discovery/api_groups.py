"""The discovery documents: they list the groups, versions and resources that the server offers."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from dray.api.scheme import Resource, Subresource, group_version
from dray.api.served_versions import ServedVersions
from dray.apiserver.request.request_info import Request
from dray.apiserver.request.request_options import (
    JSON,
    clauses,
)
from dray.apiserver.watch.stored_object import encode
from dray.http.responses import Response

Document = dict[str, Any]

AGGREGATED_GROUP = "apidiscovery.k8s.io"
AGGREGATED_KIND = "APIGroupDiscoveryList"
AGGREGATED_VERSIONS = ("v2", "v2beta1")


class Discovery:
    def __init__(self, served: ServedVersions) -> None:
        self._served = served
        self._aggregated: dict[tuple[str, str], tuple[bytes, str]] = {}
        self._generation = served.generation

    def answer(self, parts: list[str], request: Request) -> Response | None:
        """For /api, /api/V, /apis, /apis/G and /apis/G/V; None where there is no such group or version."""
        if len(parts) == 1 and (whole := self._whole(parts[0], request)):
            return whole
        if parts == ["api"]:
            return _json(self._legacy_versions(request))
        if parts == ["apis"]:
            groups = [self._group(group) for group in self._served.groups()]
            return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        if parts[0] == "apis" and len(parts) == 2 and self._served.has_group(parts[1]) and parts[1]:
            return _json({"kind": "APIGroup", "apiVersion": "v1", **self._group(parts[1])})
        group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
        if version in self._served.versions(group):
            return _json(self._resources(group, version))
        return None

    def _legacy_versions(self, request: Request) -> Document:
        address = request.local or "localhost"
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        }

    def _group(self, group: str) -> Document:
        versions = [
            {"groupVersion": group_version(group, version), "version": version}
            for version in self._served.versions(group)
        ]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resources(self, group: str, version: str) -> Document:
        resources: list[Document] = []
        for row in self._served.rows(group, version):
            resources.append(_resource(row))
            resources += [_subresource(row, subresource) for subresource in row.subresources]
        head: Document = {"kind": "APIResourceList"}
        if group:
            head["apiVersion"] = "v1"
        return {**head, "groupVersion": group_version(group, version), "resources": resources}

    # --- all at once --------------------------------------------------------------------------------------------------

    def _whole(self, root: str, request: Request) -> Response | None:
        for clause in clauses(request.headers.get("accept", "")):
            wanted = clause.parameters
            if wanted.get("as") != AGGREGATED_KIND:
                if clause.media_type in (JSON, "*/*") and not wanted.get("as"):
                    return None
                continue
            if wanted.get("g") == AGGREGATED_GROUP and wanted.get("v") in AGGREGATED_VERSIONS:
                body, tag = self._aggregated_document(root, wanted["v"])
                content_type = f"{JSON};g={AGGREGATED_GROUP};v={wanted['v']};as={AGGREGATED_KIND}"
                headers = (("ETag", tag), ("Vary", "Accept"))
                if request.headers.get("if-none-match") == tag:
                    return Response(304, b"", content_type, headers)
                return Response(200, body, content_type, headers)
        return None

    def _aggregated_document(self, root: str, version: str) -> tuple[bytes, str]:
        if self._generation != self._served.generation:
            self._generation = self._served.generation
            self._aggregated.clear()
        found = self._aggregated.get((root, version))
        if found is None:
            found = self._aggregated[root, version] = self._encode_aggregated(root, version)
        return found

    def _encode_aggregated(self, root: str, version: str) -> tuple[bytes, str]:
        groups = [""] if root == "api" else self._served.groups()
        body = encode(
            {
                "kind": AGGREGATED_KIND,
                "apiVersion": f"{AGGREGATED_GROUP}/{version}",
                "metadata": {},
                "items": [self._group_discovery(group) for group in groups],
            }
        )
        return body, '"' + hashlib.sha256(body).hexdigest().upper() + '"'

    def _group_discovery(self, group: str) -> Document:
        versions = [
            {
                "version": version,
                "resources": [_discovered(row, version) for row in self._served.rows(group, version)],
                "freshness": "Current",
            }
            for version in self._served.versions(group)
        ]
        metadata = {"name": group} if group else {}
        return {"metadata": metadata, "versions": versions}


def _json(document: Document) -> Response:
    return Response(200, encode(document))


def _resource(row: Resource) -> Document:
    document: Document = {
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        document["shortNames"] = list(row.short_names)
    if row.categories:
        document["categories"] = list(row.categories)
    if row.is_stored:
        document["storageVersionHash"] = _hash(row)
    return document


def _hash(row: Resource) -> str:
    digest = hashlib.sha256(f"{row.group}/{row.storage_version}/{row.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _subresource(row: Resource, subresource: Subresource) -> Document:
    document: Document = {
        "name": f"{row.plural}/{subresource.name}",
        "singularName": "",
        "namespaced": row.namespaced,
    }
    if subresource.group is not None:
        document |= {"group": subresource.group, "version": subresource.version}
    return {**document, "kind": subresource.kind or row.kind, "verbs": list(subresource.verbs)}


def _discovered(row: Resource, version: str) -> Document:
    document: Document = {
        "resource": row.plural,
        "responseKind": {"group": row.group, "version": version, "kind": row.kind},
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        document["shortNames"] = list(row.short_names)
    if row.categories:
        document["categories"] = list(row.categories)
    if row.subresources:
        document["subresources"] = [
            {
                "subresource": entry.name,
                "responseKind": {
                    "group": row.group if entry.group is None else entry.group,
                    "version": entry.version or version,
                    "kind": entry.kind or row.kind,
                },
                "verbs": list(entry.verbs),
            }
            for entry in row.subresources
        ]
    return document
