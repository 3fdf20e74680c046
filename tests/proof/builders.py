"""Documents and histories for the checker, as small as a case allows."""

from typing import Any

from tests.builders.manifests import a_claim, a_node, a_pod, a_slice

from dray.proof import History, Listed, ObjectKey, Opened, Read, SeenEvent, Write

Document = dict[str, Any]

CLAIMS = "resourceclaims.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
RESOURCE = "resource.k8s.io/v1"


def key(resource: str, name: str) -> ObjectKey:
    return ObjectKey(resource, "" if resource in ("nodes", SLICES) else "ns", name)


def node_slice(*devices: Document, generation: int = 1, counters: dict[str, str] | None = None) -> Document:
    return a_slice("slice", *devices, generation=generation, counters={"set": counters} if counters else None)


def ns_claim(name: str, *results: Document, reserved_for: tuple[str, ...] = ()) -> Document:
    return {"status": {}} | a_claim(name, namespace="ns", uid=f"uid-{name}", results=results, users=reserved_for)


def bound_pod(
    name: str,
    *,
    claims: tuple[str, ...] = (),
    phase: str = "Pending",
    node: str = "n1",
    cpu: str = "1",
    started: bool = True,
) -> Document:
    status = {"phase": phase, **({"startTime": "2024-01-01T00:00:00Z"} if started else {})}
    return a_pod(
        name,
        namespace="ns",
        uid=name,
        claims={each: each for each in claims},
        requests={"cpu": cpu},
        node=node,
        status=status,
    )


def small_node(cpu: str = "4") -> Document:
    return a_node("n1", {"cpu": cpu, "memory": "8Gi", "pods": "10"}, uid="n1")


RESOURCES = {"ResourceClaim": CLAIMS, "ResourceSlice": SLICES, "Pod": "pods", "Node": "nodes"}


class Story:
    """A history told step by step; each step is the next revision, seen by one stream."""

    def __init__(self, stream: str = "a") -> None:
        self.history = History()
        self.revision = 0
        self._stream = stream
        self._known: set[ObjectKey] = set()

    def shows(self, *documents: Document) -> "Story":
        for document in documents:
            target = key(RESOURCES[document["kind"]], document["metadata"]["name"])
            self._event("MODIFIED" if target in self._known else "ADDED", target, document)
            self._known.add(target)
        return self

    def deletes(self, document: Document) -> "Story":
        target = key(RESOURCES[document["kind"]], document["metadata"]["name"])
        self._event("DELETED", target, document)
        self._known.discard(target)
        return self

    def _event(self, kind: str, target: ObjectKey, document: Document) -> None:
        self.revision += 1
        if (self._stream, target.resource) not in self.history.streams():
            self.history.add(Listed(self._stream, target.resource, self.revision - 1, 0.0, []))
        stored = at(document, self.revision)
        self.history.add(SeenEvent(self._stream, kind, target, self.revision, 0.0, stored))


def at(document: Document, revision: int) -> Document:
    return document | {"metadata": document["metadata"] | {"resourceVersion": str(revision)}}


def seen(stream: str, kind: str, name: str, revision: int, **fields: Any) -> SeenEvent:
    document = at(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "uid": f"uid-{name}"}, **fields}, revision
    )
    return SeenEvent(stream, kind, ObjectKey("configmaps", "ns", name), revision, 0.0, document)


def opened(stream: str, revision: int) -> Opened:
    return Opened(stream, "configmaps", revision, 0.0)


def listed(stream: str, revision: int, **revisions: int) -> Listed:
    documents = [
        at({"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"}}, each)
        for name, each in revisions.items()
    ]
    return Listed(stream, "configmaps", revision, 1.0, documents)


def wrote(name: str, revision: int, verb: str = "update", **fields: Any) -> Write:
    return Write(ObjectKey("configmaps", "ns", name), verb, revision, f"uid-{name}", 0.0, **fields)


def read(name: str, revision: int, began: float, at: float) -> Read:
    return Read(ObjectKey("configmaps", "ns", name), revision, began, at, "reader")
