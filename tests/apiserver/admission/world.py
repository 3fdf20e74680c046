"""A store with everything that decides about writes, and builders for what is written."""

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.builders.manifests import a_claim, a_container, a_pod

from dray.api.scheme import by_kind, by_plural
from dray.apiserver.assembly import FollowedStore, Security, ServerOptions, assemble_security, prepare_store
from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import MASTERS, Attributes, User
from dray.apiserver.watch.stored_object import object_key, to_value
from dray.apiserver.write.admission.chain import CREATE, DELETE, UPDATE, Admission, AdmissionChain
from dray.clock import RealClock
from dray.store.interface import Put
from dray.store.sqlite import SqliteStore
from dray.telemetry import Registry

Document = dict[str, Any]
DRA = "resource.k8s.io"
ADMIN = User("admin", (MASTERS, "system:authenticated"))
ALICE = User("alice", ("dev", "system:authenticated"))
N1 = User("system:node:n1", ("system:nodes", "system:authenticated"))


class World:
    def __init__(self, followed: FollowedStore, security: Security) -> None:
        self.store = followed.store
        self.security = security
        self._follower = followed.follower

    async def stop(self) -> None:
        await self._follower.stop()
        await self.store.close()

    @property
    def chain(self) -> AdmissionChain:
        return self.security.admission

    async def put(self, kind: str, name: str, namespace: str = "", **body: Any) -> Document:
        row = by_kind(kind)
        metadata = {"name": name, "uid": f"uid-{name}", **({"namespace": namespace} if namespace else {})}
        metadata |= body.pop("metadata", {})
        document = {"kind": kind, "apiVersion": row.api_version(), "metadata": metadata, **body}
        await self.store.commit([Put(object_key(row.group, row.plural, namespace, name), to_value(document))])
        await self._follower.fresh()
        return document

    async def read(self, kind: str, name: str, namespace: str = "") -> Document:
        row = by_kind(kind)
        entry = await self.store.get(object_key(row.group, row.plural, namespace, name))
        assert entry is not None
        found: Document = msgspec.json.decode(entry.value)
        return found

    async def admit(
        self,
        resource: str,
        document: Document | None,
        old: Document | None = None,
        *,
        user: User = ADMIN,
        operation: str = "",
        namespace: str = "ns",
        name: str = "",
        dry_run: bool = False,
        verb: str = "",
    ) -> Document | None:
        """Both rounds, as a handler runs them; the document as it would be stored."""
        group, _, plural = resource.rpartition(":")
        plural, _, subresource = plural.partition("/")
        operation = operation or (DELETE if document is None else UPDATE if old else CREATE)
        row = by_plural(group, plural)
        assert row is not None
        found = document or old or {}
        name = name or found.get("metadata", {}).get("name", "")
        verb = verb or {CREATE: "create", UPDATE: "update", DELETE: "delete"}[operation]
        namespace = namespace if row.namespaced else ""
        attributes = Attributes(user, verb, group, "v1", plural, subresource, namespace, name, dry_run=dry_run)
        admission = Admission(attributes, operation, row.kind, copy.deepcopy(document), copy.deepcopy(old))
        await self.chain.mutate(admission)
        await self.chain.validate(admission)
        return admission.document

    async def refused(self, resource: str, document: Document | None, *args: Any, **more: Any) -> ApiError:
        with pytest.raises(ApiError) as error:
            await self.admit(resource, document, *args, **more)
        return error.value


async def open_world(tmp_path: Path, *, quota_counts_claims: bool = False) -> World:
    store = SqliteStore(tmp_path / "dray.db")
    clock = RealClock()
    credentials = await prepare_store(store, tmp_path, clock)
    followed = FollowedStore.of(store, clock)
    options = ServerOptions(tmp_path, quota_counts_claims=quota_counts_claims)
    security = assemble_security(followed, credentials, clock, options, Registry())
    await followed.follower.start()
    world = World(followed, security)
    await world.put("Namespace", "ns", status={"phase": "Active"})
    await world.put("ServiceAccount", "default", "ns")
    return world


def meta(name: str, **more: Any) -> Document:
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}", **more}


def admitted_pod(name: str = "p", **spec: Any) -> Document:
    metadata = meta(name, **spec.pop("metadata", {}))
    status = spec.pop("status", {"phase": "Pending"})
    container = a_container(image="x", resources=spec.pop("resources", {}))
    return a_pod(name, container, status=status, **spec) | {"metadata": metadata}


def admitted_claim(name: str = "c", *requests: Document, **status: Any) -> Document:
    return a_claim(name, *requests) | {"metadata": meta(name), "status": status}


def exact(device_class: str = "gold", **more: Any) -> Document:
    return {
        "name": "r",
        "exactly": {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1, **more},
    }


async def grant(world: World, user: User, *rules: Document) -> None:
    await world.put("ClusterRole", "granted", rules=list(rules))
    await world.put(
        "ClusterRoleBinding",
        "granted",
        subjects=[{"kind": "User", "name": user.name}],
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "granted"},
    )
