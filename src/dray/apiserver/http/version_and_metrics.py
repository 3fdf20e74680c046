"""The pages /version and /metrics of the API server; metrics have Kubernetes' names."""

from __future__ import annotations

import platform
from collections.abc import Iterable

from dray import __version__
from dray.apiserver.core import Core
from dray.apiserver.request.request_info import RequestInfo
from dray.apiserver.watch.watch_requests import WatchRequests
from dray.telemetry import Registry, Sample

REQUEST_LABELS = ("verb", "group", "version", "resource", "subresource", "scope", "code")
VERBS = {
    "get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT", "patch": "PATCH",
    "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
}  # fmt: skip
# Label for kinds that are not served: with the client's own text it could add series without end.
UNKNOWN = "other"


class ServerMetrics:
    def __init__(self, core: Core, watching: WatchRequests) -> None:
        self._core = core
        self._watching = watching
        self.registry = Registry()
        # Of other parts in this process, served below `/metrics/` under these names.
        self.of_others: dict[str, Registry] = {}
        self._requests = self.registry.counter(
            "apiserver_request_total", "Requests by verb, resource and HTTP status.", REQUEST_LABELS
        )
        self._durations = self.registry.histogram(
            "apiserver_request_duration_seconds",
            "Time from request to answer, watches left out.",
            ("verb", "group", "version", "resource", "subresource", "scope"),
        )
        self.registry.computed_gauge("apiserver_storage_objects", "Stored objects by resource.", self._objects)
        self.registry.computed_gauge("apiserver_longrunning_requests", "Open watches.", self._open_watches)

    def observe(self, info: RequestInfo, status: int, seconds: float, *, streams: bool) -> None:
        if not info.is_resource or status in (403, 404, 405):
            labels = (VERBS.get(info.verb, UNKNOWN), "", "", UNKNOWN, "", "")
        else:
            verb = "WATCH" if streams else VERBS.get(info.verb, UNKNOWN)
            scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
            labels = (verb, info.group, info.version, info.plural, info.subresource, scope)
        self._requests.inc(*labels, str(status))
        if not streams:
            self._durations.observe(seconds, *labels)

    def _objects(self) -> Iterable[Sample]:
        return [({"resource": cache.row.qualified_plural}, len(cache)) for cache in self._core.caches()]

    def _open_watches(self) -> Iterable[Sample]:
        return [({"verb": "WATCH"}, self._watching.open)]


def version_document(minor: str = "37") -> dict[str, str]:
    return {
        "major": "1",
        "minor": minor,
        "emulationMajor": "1",
        "emulationMinor": minor,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v1.{minor}.0+dray-{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
