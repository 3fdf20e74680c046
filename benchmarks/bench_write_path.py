"""The writes of one pod's life, in the server's process and without sockets: CPU time of each, in microseconds.

A pod with one claim from a template is created, scheduled, run and deleted, as controllers, scheduler and kubelet do it. The
store is a SQLite file; its wait for the disk is not counted, its statements and thread changes are.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from report import Report

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.event_loop import YOUNG_OF_A_SERVER, fast_runner, spare_the_collector
from dray.store.sqlite import SqliteStore

PODS, ROUNDS = 64, 8
SPACE = "/api/v1/namespaces/default"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
JSON = {"content-type": "application/json", "user-agent": "dray-bench/1"}
APPLY = {**JSON, "content-type": "application/apply-patch+yaml"}
STRATEGIC = {**JSON, "content-type": "application/strategic-merge-patch+json"}
NOW = "2026-01-01T00:00:00Z"
FINALIZER = "resource.kubernetes.io/delete-protection"
Document = dict[str, Any]

# What one pod may cost the server, all writes together, on a quiet machine.
BOUND_LIMIT_US = 3200.0
LIFE_LIMIT_US = 5200.0


def pod(name: str) -> Document:
    claims: Document = {"requests": {"cpu": "10m"}, "claims": [{"name": "devices"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "image": "none.example.com/none:1", "resources": claims}],
            "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "one"}],
        },
    }


def claim(made: Document) -> Document:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
    request = {
        "name": "gpu",
        "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": f"{made['metadata']['name']}-devices-",
            "namespace": "default",
            "annotations": {"resource.kubernetes.io/pod-claim-name": "devices"},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {"devices": {"requests": [request]}},
    }


def status_of(device: str, made: Document) -> Document:
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": device}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]
    user = {"resource": "pods", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
    return {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}},
        "reservedFor": [user],
    }


def event(made: Document, reason: str) -> Document:
    metadata = made["metadata"]
    about = {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default", "name": f"{metadata['name']}.{reason.lower()}"},
        "involvedObject": about,
        "reason": reason,
        "message": f"Successfully assigned default/{metadata['name']} to node-1",
        "source": {"component": "default-scheduler"},
        "firstTimestamp": NOW,
        "lastTimestamp": NOW,
        "count": 1,
        "type": "Normal",
        "action": "Binding",
        "reportingComponent": "default-scheduler",
        "reportingInstance": "",
    }


def running(name: str) -> Document:
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": NOW} for kind in kinds]
    container = {
        "name": "main", "image": "none.example.com/none:1", "imageID": "", "ready": True, "started": True,
        "restartCount": 0, "containerID": f"process://{name}", "state": {"running": {"startedAt": NOW}},
    }  # fmt: skip
    return {
        "status": {"phase": "Running", "startTime": NOW, "conditions": conditions, "containerStatuses": [container]}
    }


@dataclass(slots=True)
class Life:
    """One pod, and what the server last said about it and its claim."""

    name: str
    device: str
    pod: Document = field(default_factory=dict)
    claim: Document = field(default_factory=dict)

    @property
    def here(self) -> str:
        return f"{SPACE}/pods/{self.name}"

    @property
    def claim_path(self) -> str:
        return f"{CLAIMS}/{self.claim['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class Write:
    """`makes` gives path and body from a life so far, `keeps` says which object the answer is."""

    name: str
    method: str
    makes: Callable[[Life], tuple[str, Document]]
    keeps: str = ""
    headers: Document = field(default_factory=lambda: JSON)
    query: str = ""

    def request(self, life: Life) -> Request:
        path, body = self.makes(life)
        return Request(self.method, path, self.query, self.headers, body=msgspec.json.encode(body), user=LOOPBACK)


def claim_named(life: Life) -> tuple[str, Document]:
    entry = {"name": "devices", "resourceClaimName": life.claim["metadata"]["name"]}
    metadata = {"namespace": "default", "name": life.name, "uid": life.pod["metadata"]["uid"]}
    status = {"resourceClaimStatuses": [entry]}
    return f"{life.here}/status", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}


def with_finalizers(life: Life, *finalizers: str) -> tuple[str, Document]:
    metadata = {key: value for key, value in life.claim["metadata"].items() if key != "finalizers"}
    return life.claim_path, {**life.claim, "metadata": metadata | ({"finalizers": [*finalizers]} if finalizers else {})}


def binding(life: Life) -> tuple[str, Document]:
    metadata = {"name": life.name, "uid": life.pod["metadata"]["uid"]}
    target = {"kind": "Node", "name": "node-1"}
    return f"{life.here}/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


UNTIL_BOUND = (
    Write("create pod", "POST", lambda life: (f"{SPACE}/pods", pod(life.name)), "pod"),
    Write("create claim", "POST", lambda life: (CLAIMS, claim(life.pod)), "claim"),
    Write("apply pod status (claim)", "PATCH", claim_named, headers=APPLY, query="fieldManager=claims&force=true"),
    Write("put claim (finalizer)", "PUT", lambda life: with_finalizers(life, FINALIZER), "claim"),
    Write(
        "put claim status",
        "PUT",
        lambda life: (f"{life.claim_path}/status", life.claim | {"status": status_of(life.device, life.pod)}),
        "claim",
    ),
    Write("bind pod", "POST", binding),
    Write("create event", "POST", lambda life: (f"{SPACE}/events", event(life.pod, "Scheduled"))),
)
UNTIL_GONE = (
    Write(
        "patch pod status (kubelet)",
        "PATCH",
        lambda life: (f"{life.here}/status", running(life.name)),
        headers=STRATEGIC,
    ),
    Write("delete pod", "DELETE", lambda life: (life.here, {"gracePeriodSeconds": 0})),
    Write(
        "put claim status (release)",
        "PUT",
        lambda life: (f"{life.claim_path}/status", life.claim | {"status": {}}),
        "claim",
    ),
    Write("put claim (no finalizer)", "PUT", with_finalizers, "claim"),
    Write("delete claim", "DELETE", lambda life: (life.claim_path, {})),
)


async def spent_on(write: Write, lives: list[Life], handle: Callable[[Request], Awaitable[Any]]) -> float:
    """CPU microseconds of one write, made by all pods at once."""
    requests = [write.request(life) for life in lives]
    started = time.process_time()
    answers = await asyncio.gather(*map(handle, requests))
    await asyncio.sleep(0)
    spent = time.process_time() - started
    for life, answer in zip(lives, answers, strict=True):
        if answer.status >= 300:
            raise RuntimeError(f"{write.name}: {answer.body.decode()}")
        if write.keeps:
            setattr(life, write.keeps, json.loads(answer.body))
    return spent / len(lives) * 1e6


async def watched(handle: Callable[[Request], Awaitable[Any]], path: str) -> None:
    """An informer: controllers and scheduler see every change."""
    response = await handle(Request("GET", path, "watch=true&allowWatchBookmarks=true", JSON, user=LOOPBACK))
    async for _ in response.stream:
        pass


async def measure(rounds: int = ROUNDS, pods: int = PODS) -> dict[str, list[float]]:
    """CPU microseconds of each write, one number for each round."""
    spent: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as directory:
        store = SqliteStore(Path(directory) / "store.db")
        server = await start_server(store, ServerOptions(Path(directory)))
        handle = server.server.handle
        body = json.dumps({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}).encode()
        await handle(Request("POST", f"{SPACE}/serviceaccounts", headers=JSON, body=body, user=LOOPBACK))
        paths = ("/api/v1/pods", CLAIMS.replace("/namespaces/default", ""))
        informers = [asyncio.create_task(watched(handle, path)) for path in paths]
        spare_the_collector(YOUNG_OF_A_SERVER)
        try:
            for number in range(rounds):
                lives = [Life(f"pod-{number}-{at}", f"gpu-{at}") for at in range(pods)]
                for write in (*UNTIL_BOUND, *UNTIL_GONE):
                    spent.setdefault(write.name, []).append(await spent_on(write, lives, handle))
        finally:
            await server.stop()
            await asyncio.gather(*informers, return_exceptions=True)
            await store.close()
    return spent


def run(report: Report) -> None:
    with fast_runner() as runner:
        spent = runner.run(measure())
    best = {name: min(rounds) for name, rounds in spent.items()}
    for name, micros in best.items():
        report.record(name, micros, "us")
    report.record("a pod until it is bound", sum(best[write.name] for write in UNTIL_BOUND), "us", BOUND_LIMIT_US)
    report.record("a pod until it is gone", sum(best.values()), "us", LIFE_LIMIT_US)


if __name__ == "__main__":
    report = Report("write_path")
    run(report)
    for row in report.rows:
        print(f"{row.name:<32} {row.value:8.0f} {row.unit}")
