"""Typed access to the Kubernetes API: every component knows the cluster only through this room.

    client = connect("~/.kube/config", component="my-driver")            # HTTPS to any API server
    client = Client(InProcessTransport(server.handle, partial(Request, user=LOOPBACK)))   # our own server, no sockets

    pod = await client.get(PODS, "web-0", "default")                     # a frozen struct; ApiError if refused
    listing = await client.list(CLAIMS, "default", label_selector="a=b") # .items, .revision; fetched in pages
    async with client.watch(CLAIMS, since=listing.revision) as events:   # WatchEvent(type, object)
        async for event in events: ...
    claim = await client.create(CLAIMS, claim)                           # a struct, or a JSON document (dict)
    claim = await client.update(CLAIMS, claim)                           # compare-and-set by resourceVersion
    claim = await client.update_status(CLAIMS, claim)
    pod = await client.patch(PODS, "web-0", {"metadata": {...}}, "default", subresource="status", uid=pod.metadata.uid)
    pod = await client.apply(PODS, document, field_manager="me", force=True, subresource="status")
    await client.delete(PODS, "web-0", "default", uid=pod.metadata.uid, grace_seconds=0)
    await client.bind(pod, "node-1"); await client.evict(pod)

    informers = Informers(client)                                        # shared: one copy per kind and process
    pods = informers.of(PODS)                                            # Informer[Pod]
    pods.add_indexer("node", lambda pod: (pod.spec.node_name,))
    pods.add_handler(Handler(on_add=..., on_update=..., on_delete=...))  # plain synchronous functions
    informers.start(); await informers.synced()
    pods.get("default/web-0"), pods.by_index("node", "node-1"), len(pods), pods.has_synced

    queue = WorkQueue("resource_claim"); queue.add(key); await queue.run(reconcile, workers=50)
    recorder = EventRecorder(client, "scheduler"); recorder.event(reference_to(PODS, pod), WARNING, "Reason", "text")
    await LeaderElector(client, "dray-scheduler", identity).run(lead)

`ApiError` (code, reason, is_conflict, ...) is an answer; `ServerUnreachable` means that none came. Answers 429 and 5xx with
Retry-After are obeyed inside the client. Pod, Node and Namespace structs are views: patch them, never write them back.

`kinds` names every kind. `transport` is the interface of `https`, `rest.InProcessTransport` and `pipe` (with `frames`: to the parent process).
`informer`, `shared_informers` and `indexed_objects` keep local copies. Controllers are built of `workqueue`,
`events` and `leader_election`. `kubeconfig`, `credentials` and `connect` find and open the server. This room
decides nothing about the cluster.
"""

from dray.client.connect import connect
from dray.client.errors import ApiError, CredentialsError, KubeconfigError, LeadershipLost, ServerUnreachable
from dray.client.events import NORMAL, WARNING, EventRecorder, Recorder, reference_to
from dray.client.indexed_objects import (
    BY_NAMESPACE,
    IndexedObjects,
    Indexer,
    KeysByValue,
    by_namespace,
)
from dray.client.informer import Handler, Informer, MutationCache, is_newer
from dray.client.kinds import (
    CLAIMS,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DISRUPTION_BUDGETS,
    ENDPOINT_SLICES,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    POOL_STATUS_REQUESTS,
    PRIORITY_CLASSES,
    QUOTAS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICE_ACCOUNTS,
    SERVICES,
    SLICES,
    STATEFUL_SETS,
    TAINT_RULES,
    TEMPLATES,
    ApiObject,
    Kind,
    PartialObject,
    WatchEvent,
    metadata_of,
    object_key,
    split_key,
)
from dray.client.kubeconfig import Connection, load_connection
from dray.client.leader_election import (
    LeaderElector,
    LeaseTiming,
)
from dray.client.rest import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Client,
    Document,
    InProcessTransport,
    Listing,
)
from dray.client.shared_informers import Informers
from dray.client.transport import Answer, Call, Transport
from dray.client.workqueue import Backoff, Hopeless, QueueClosed, TokenBucket, WorkQueue

__all__ = [
    "APPLY_PATCH",
    "BY_NAMESPACE",
    "CLAIMS",
    "CONFIG_MAPS",
    "DAEMON_SETS",
    "DEPLOYMENTS",
    "DEVICE_CLASSES",
    "DISRUPTION_BUDGETS",
    "ENDPOINT_SLICES",
    "EVENTS",
    "JOBS",
    "JSON_PATCH",
    "LEASES",
    "MERGE_PATCH",
    "NAMESPACES",
    "NODES",
    "NORMAL",
    "PODS",
    "POD_GROUPS",
    "POOL_STATUS_REQUESTS",
    "PRIORITY_CLASSES",
    "QUOTAS",
    "REPLICATION_CONTROLLERS",
    "REPLICA_SETS",
    "SERVICES",
    "SERVICE_ACCOUNTS",
    "SLICES",
    "STATEFUL_SETS",
    "STRATEGIC_PATCH",
    "TAINT_RULES",
    "TEMPLATES",
    "WARNING",
    "Answer",
    "ApiError",
    "ApiObject",
    "Backoff",
    "Call",
    "Client",
    "Connection",
    "CredentialsError",
    "Document",
    "EventRecorder",
    "Handler",
    "Hopeless",
    "InProcessTransport",
    "IndexedObjects",
    "Indexer",
    "Informer",
    "Informers",
    "KeysByValue",
    "Kind",
    "KubeconfigError",
    "LeaderElector",
    "LeadershipLost",
    "LeaseTiming",
    "Listing",
    "MutationCache",
    "PartialObject",
    "QueueClosed",
    "Recorder",
    "ServerUnreachable",
    "TokenBucket",
    "Transport",
    "WatchEvent",
    "WorkQueue",
    "by_namespace",
    "connect",
    "is_newer",
    "load_connection",
    "metadata_of",
    "object_key",
    "reference_to",
    "split_key",
]
