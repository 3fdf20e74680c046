"""Admission plugins, one by one: what they fill in, what they refuse, and in which words."""

import asyncio
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dray.api.scheme import by_kind, by_plural
from dray.apiserver.admission.chain import Chain
from dray.apiserver.attributes import CREATE, DELETE, UPDATE, Admission, Attributes
from dray.apiserver.errors import ApiError
from dray.apiserver.identity import MASTERS, User
from dray.apiserver.keys import object_key
from dray.apiserver.objects import StoredObjects
from dray.apiserver.security import Security, SecurityOptions, prepare_store, start_security
from dray.apiserver.stored import to_value
from dray.clock import RealClock
from dray.features import FeatureGates
from dray.store.interface import Put
from dray.store.sqlite import SqliteStore

Document = dict[str, Any]
DRA = "resource.k8s.io"
ADMIN = User("admin", (MASTERS, "system:authenticated"))
ALICE = User("alice", ("dev", "system:authenticated"))
N1 = User("system:node:n1", ("system:nodes", "system:authenticated"))


class World:
    def __init__(self, store: SqliteStore, security: Security) -> None:
        self.store = store
        self.security = security

    @property
    def chain(self) -> Chain:
        return self.security.admission

    async def put(self, kind: str, name: str, namespace: str = "", **body: Any) -> Document:
        row = by_kind(kind)
        metadata = {"name": name, "uid": f"uid-{name}", **({"namespace": namespace} if namespace else {})}
        metadata |= body.pop("metadata", {})
        document = {"kind": kind, "apiVersion": row.api_version(), "metadata": metadata, **body}
        await self.store.commit([Put(object_key(row.group, row.plural, namespace, name), to_value(document))])
        await asyncio.sleep(0.01)
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


async def open_world(tmp_path: Path, options: SecurityOptions) -> World:
    store = SqliteStore(tmp_path / "dray.db")
    clock = RealClock()
    credentials = await prepare_store(store, tmp_path, clock)
    objects = StoredObjects(store)
    security = await start_security(store, objects, credentials, clock, FeatureGates.default(), options)
    world = World(store, security)
    await world.put("Namespace", "ns", status={"phase": "Active"})
    await world.put("ServiceAccount", "default", "ns")
    return world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = await open_world(tmp_path, SecurityOptions())
    yield world
    await world.security.stop()
    await world.store.close()


def meta(name: str, **more: Any) -> Document:
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}", **more}


def a_pod(name: str = "p", **spec: Any) -> Document:
    metadata = meta(name, **spec.pop("metadata", {}))
    status = spec.pop("status", {"phase": "Pending"})
    container = {"name": "main", "image": "x", "resources": spec.pop("resources", {})}
    spec = {"containers": [container], **spec}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


def a_claim(name: str = "c", *requests: Document, **status: Any) -> Document:
    return {
        "kind": "ResourceClaim",
        "apiVersion": f"{DRA}/v1",
        "metadata": meta(name),
        "spec": {"devices": {"requests": list(requests)}},
        "status": status,
    }


def exact(device_class: str = "gold", **more: Any) -> Document:
    return {
        "name": "r",
        "exactly": {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1, **more},
    }


# --- namespaces ------------------------------------------------------------------------------------------------------


async def test_nothing_is_made_in_a_namespace_that_is_not_there(world: World) -> None:
    error = await world.refused(f"{DRA}:resourceclaims", a_claim(), namespace="ghost")
    assert (error.code, error.message) == (404, 'namespaces "ghost" not found')
    claim = a_claim()
    await world.admit(f"{DRA}:resourceclaims", claim, claim, namespace="ghost")
    await world.admit(f"{DRA}:resourceclaims", None, claim, namespace="ghost")


async def test_nothing_new_in_a_namespace_that_ends(world: World) -> None:
    await world.put("Namespace", "doomed", status={"phase": "Terminating"})
    error = await world.refused(f"{DRA}:resourceclaims", a_claim("late"), namespace="doomed")
    assert error.code == 403
    assert error.message == (
        'resourceclaims.resource.k8s.io "late" is forbidden: unable to create new content in namespace doomed because '
        "it is being terminated"
    )
    assert error.details is not None
    assert error.details["causes"][0]["reason"] == "NamespaceTerminating"


@pytest.mark.parametrize(("name", "code"), [("default", 403), ("kube-system", 403), ("kube-public", 403), ("x", 0)])
async def test_some_namespaces_stay(world: World, name: str, code: int) -> None:
    old = {"metadata": {"name": name}}
    if code:
        error = await world.refused("namespaces", None, old)
        assert error.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    else:
        await world.admit("namespaces", None, old)


# --- pods: what is filled in -----------------------------------------------------------------------------------------


async def test_a_plain_pod_is_completed(world: World) -> None:
    pod = await world.admit("pods", a_pod())
    assert pod is not None
    spec = pod["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [entry["key"] for entry in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    volume = spec["volumes"][0]
    assert volume["name"].startswith("kube-api-access-")
    assert len(volume["name"]) == len("kube-api-access-") + 5
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": volume["name"], "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    ]


async def test_no_token_where_none_is_wanted(world: World) -> None:
    pod = await world.admit("pods", a_pod(automountServiceAccountToken=False))
    assert pod is not None
    assert "volumes" not in pod["spec"]
    await world.put("ServiceAccount", "shy", "ns", automountServiceAccountToken=False)
    pod = await world.admit("pods", a_pod(serviceAccountName="shy"))
    assert pod is not None
    assert "volumes" not in pod["spec"]
    pod = await world.admit("pods", a_pod(serviceAccountName="shy", automountServiceAccountToken=True))
    assert pod is not None
    assert len(pod["spec"]["volumes"]) == 1


async def test_a_missing_service_account(world: World) -> None:
    error = await world.refused("pods", a_pod("early", serviceAccountName="robot"))
    assert (error.code, error.message) == (
        403,
        'pods "early" is forbidden: error looking up service account ns/robot: serviceaccount "robot" not found',
    )


async def test_tolerations_of_the_pod_come_first(world: World) -> None:
    own = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]
    pod = await world.admit("pods", a_pod(tolerations=own))
    assert pod is not None
    assert [entry.get("tolerationSeconds") for entry in pod["spec"]["tolerations"]] == [5, 300]
    everything = [{"operator": "Exists"}]
    pod = await world.admit("pods", a_pod(tolerations=everything))
    assert pod is not None
    assert pod["spec"]["tolerations"] == everything


async def test_priorities_come_from_classes(world: World) -> None:
    pod = await world.admit("pods", a_pod(priorityClassName="system-node-critical"))
    assert pod is not None
    assert pod["spec"]["priority"] == 2000001000
    error = await world.refused("pods", a_pod(priorityClassName="none"))
    assert error.message == 'pods "p" is forbidden: no PriorityClass with name none was found'
    error = await world.refused("pods", a_pod(priority=1000))
    assert "the integer value of priority (1000) must not be provided in pod spec" in error.message
    error = await world.refused("pods", a_pod(preemptionPolicy="Never"))
    assert "the string value of PreemptionPolicy (Never)" in error.message
    await world.put("PriorityClass", "usual", value=7, globalDefault=True, preemptionPolicy="Never")
    pod = await world.admit("pods", a_pod())
    assert pod is not None
    assert (pod["spec"]["priority"], pod["spec"]["priorityClassName"], pod["spec"]["preemptionPolicy"]) == (
        *(7, "usual", "Never"),
    )
    second = {"metadata": {"name": "second"}, "value": 9, "globalDefault": True}
    error = await world.refused("scheduling.k8s.io:priorityclasses", second)
    assert "PriorityClass usual is already marked as default" in error.message


# --- nodes -----------------------------------------------------------------------------------------------------------


def a_slice(node: str | None = "n1") -> Document:
    selection = {"nodeName": node} if node else {"allNodes": True}
    return {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"}, **selection}}


@pytest.mark.parametrize("node", ["n2", None, ""])
async def test_a_node_writes_only_its_own_slices(world: World, node: str | None) -> None:
    slices = f"{DRA}:resourceslices"
    await world.admit(slices, a_slice(), user=N1)
    await world.admit(slices, a_slice(), a_slice(), user=N1)
    await world.admit(slices, None, a_slice(), user=N1)
    error = await world.refused(slices, a_slice(node), user=N1)
    assert error.code == 403
    assert error.message.endswith("can only create ResourceSlice with the same NodeName as the requesting node")
    await world.refused(slices, a_slice(), a_slice(node), user=N1)
    await world.refused(slices, a_slice(node), a_slice(), user=N1)
    error = await world.refused(slices, None, a_slice(node), user=N1)
    assert "can only delete ResourceSlice" in error.message


def a_mirror(**changes: Any) -> Document:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1", "controller": True}
    metadata = {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]}
    return a_pod(metadata=metadata | changes.pop("metadata", {}), **{"nodeName": "n1", **changes})


async def test_a_node_creates_mirror_pods_only(world: World) -> None:
    await world.put("Node", "n1")
    await world.admit("pods", a_mirror(), user=N1)
    owner = a_mirror()["metadata"]["ownerReferences"][0]
    cases: list[tuple[Document, str]] = [
        (a_pod(nodeName="n1"), "can only create mirror pods"),
        (a_mirror(nodeName="n2"), "spec.nodeName set to itself"),
        (a_mirror(metadata={"ownerReferences": []}), "exactly one owner reference"),
        (a_mirror(metadata={"ownerReferences": [{**owner, "name": "n2"}]}), "owner reference set to itself"),
        (a_mirror(metadata={"ownerReferences": [{**owner, "uid": "other"}]}), "UID mismatch"),
        (a_mirror(metadata={"ownerReferences": [{**owner, "controller": False}]}), "controller owner reference"),
        (a_mirror(resourceClaims=[{"name": "c", "resourceClaimName": "x"}]), "can not create pods that reference resourceclaims"),
        (a_mirror(volumes=[{"name": "v", "configMap": {"name": "x"}}]), "can not create pods that reference configmaps"),
        (a_mirror(imagePullSecrets=[{"name": "x"}]), "can not create pods that reference secrets"),
    ]  # fmt: skip
    for pod, says in cases:
        error = await world.refused("pods", pod, user=N1)
        assert error.code == 403
        assert says in error.message


async def test_a_node_reports_only_what_is_its_to_report(world: World) -> None:
    old = a_pod(nodeName="n1", status={"phase": "Pending", "resourceClaimStatuses": [{"name": "a"}]})
    new = copy.deepcopy(old)
    new["status"]["phase"] = "Running"
    await world.admit("pods/status", new, old, user=N1)
    changes: list[tuple[str, Any, str]] = [
        ("resourceClaimStatuses", [{"name": "a", "resourceClaimName": "stolen"}], "cannot update resource claim statues"),
        ("resourceClaimStatuses", None, "cannot update resource claim statues"),
        ("extendedResourceClaimStatus", {"resourceClaimName": "x"}, "cannot update extended resource claim status"),
        ("nodeAllocatableResourceClaimStatuses", [{"resourceClaimName": "x"}], "cannot update node allocatable resource claim"),
    ]  # fmt: skip
    for field, value, says in changes:
        bad = copy.deepcopy(new)
        bad["status"][field] = value
        error = await world.refused("pods/status", bad, old, user=N1)
        assert f'node "n1" {says}' in error.message
        await world.admit("pods/status", bad, old, user=ADMIN)
    labelled = copy.deepcopy(new)
    labelled["metadata"]["labels"] = {"a": "b"}
    assert "labels" in (await world.refused("pods/status", labelled, old, user=N1)).message
    foreign = a_pod(nodeName="n2")
    assert (await world.refused("pods/status", foreign, foreign, user=N1)).code == 403
    assert (await world.refused("pods", None, foreign, user=N1)).code == 403
    await world.admit("pods", None, old, user=N1)


async def test_a_node_changes_only_its_own_node_and_not_its_taints(world: World) -> None:
    def node(name: str = "n1", labels: Document | None = None, **spec: Any) -> Document:
        return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}

    await world.admit("nodes", node(labels={"kubernetes.io/hostname": "h", "team": "x"}), user=N1)
    assert "not allowed to modify node" in (await world.refused("nodes", node("n2"), user=N1)).message
    for resource in ("nodes", "nodes/status"):
        await world.admit(resource, node(labels={"kubernetes.io/hostname": "h"}), node(), user=N1)
        error = await world.refused(resource, node("n2"), node("n2"), user=N1)
        assert error.message == 'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"'
    taint = [{"key": "k", "effect": "NoSchedule"}]
    assert "taints" in (await world.refused("nodes", node(), node(taints=taint), user=N1)).message
    for label in ("node-restriction.kubernetes.io/x", "node-role.kubernetes.io/control-plane", "foo.k8s.io/x"):
        error = await world.refused("nodes", node(labels={label: "y"}), node(), user=N1)
        assert label in error.message
    error = await world.refused("nodes", node(labels={"node-restriction.kubernetes.io/x": "y"}), user=N1)
    assert error.code == 403


async def test_leases_and_tokens_of_other_nodes(world: World) -> None:
    leases = "coordination.k8s.io:leases"
    lease = {"metadata": {"name": "n1", "namespace": "kube-node-lease"}}
    await world.admit(leases, lease, user=N1, namespace="kube-node-lease")
    await world.refused(leases, {"metadata": {"name": "n2"}}, user=N1, namespace="kube-node-lease")
    await world.refused(leases, lease, user=N1, namespace="ns")
    await world.put("Pod", "mine", "ns", spec={"nodeName": "n1"})
    await world.put("Pod", "theirs", "ns", spec={"nodeName": "n2"})

    def request(pod: str, uid: str | None = None) -> Document:
        reference = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": f"uid-{pod}" if uid is None else uid}
        return {"metadata": {"name": "default"}, "spec": {"boundObjectRef": reference}}

    await world.admit("serviceaccounts/token", request("mine"), user=N1)
    assert "different node" in (await world.refused("serviceaccounts/token", request("theirs"), user=N1)).message
    assert "without a uid" in (await world.refused("serviceaccounts/token", request("mine", ""), user=N1)).message
    assert (await world.refused("serviceaccounts/token", request("mine", "old"), user=N1)).code == 409
    unbound = {"metadata": {"name": "default"}, "spec": {}}
    assert "not bound to a pod" in (await world.refused("serviceaccounts/token", unbound, user=N1)).message


async def test_evictions_by_a_node(world: World) -> None:
    await world.put("Pod", "theirs", "ns", spec={"nodeName": "n2"})
    eviction = {"metadata": {"name": "theirs"}}
    assert "can only evict pods" in (await world.refused("pods/eviction", eviction, user=N1)).message


# --- claim status ----------------------------------------------------------------------------------------------------

ON_N1 = {
    "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"}]},
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    },
}
DEVICE_STATUS = {"driver": "gpu.example.com", "pool": "p", "device": "d", "conditions": []}
STATUS = f"{DRA}:resourceclaims/status"


async def grant(world: World, user: User, *rules: Document) -> None:
    await world.put("ClusterRole", "granted", rules=list(rules))
    await world.put(
        "ClusterRoleBinding",
        "granted",
        subjects=[{"kind": "User", "name": user.name}],
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "granted"},
    )


def rule(verbs: list[str], *resources: str, names: tuple[str, ...] = ()) -> Document:
    found: Document = {"verbs": verbs, "apiGroups": [DRA], "resources": list(resources)}
    return {**found, "resourceNames": list(names)} if names else found


async def test_allocating_needs_the_right_to_bind(world: World) -> None:
    allocated = a_claim("c", allocation=ON_N1)
    reserved = a_claim("c", allocation=ON_N1, reservedFor=[{"resource": "pods", "name": "p", "uid": "u"}])
    for new, old in ((allocated, a_claim("c")), (reserved, allocated), (a_claim("c"), allocated)):
        error = await world.refused(STATUS, new, old, user=ALICE)
        assert error.code == 422
        assert (
            "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires "
            'resource="resourceclaims/binding", verb="update" permission: ' in error.message
        )
        error = await world.refused(STATUS, new, old, user=ALICE, verb="patch")
        assert 'verb="patch"' in error.message
    await grant(world, ALICE, rule(["update"], "resourceclaims/binding"))
    await world.admit(STATUS, allocated, a_claim("c"), user=ALICE)
    await world.refused(STATUS, allocated, a_claim("c"), user=ALICE, verb="patch")
    await world.admit(STATUS, allocated, allocated, user=User("nobody"))


async def test_the_right_to_bind_in_one_namespace_is_not_enough(world: World) -> None:
    await world.put("Role", "binder", "ns", rules=[rule(["*"], "*")])
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "binder"}
    await world.put("RoleBinding", "b", "ns", subjects=[{"kind": "User", "name": "alice"}], roleRef=reference)
    await world.refused(STATUS, a_claim("c", allocation=ON_N1), a_claim("c"), user=ALICE)


def driver(node: str = "n1", *more: str) -> User:
    return User("system:serviceaccount:drivers:gpu", (), "", {"authentication.kubernetes.io/node-name": (node, *more)})


async def test_a_driver_reports_on_its_own_node(world: World) -> None:
    allocated, reported = a_claim("c", allocation=ON_N1), a_claim("c", allocation=ON_N1, devices=[DEVICE_STATUS])
    own = rule(["associated-node:update"], "resourceclaims/driver", names=("gpu.example.com",))
    await grant(world, driver(), own)
    await world.admit(STATUS, reported, allocated, user=driver())
    await world.admit(STATUS, allocated, reported, user=driver())
    for user in (driver("n2"), driver("n1", "n2"), User(driver().name), driver("Not A Node")):
        error = await world.refused(STATUS, reported, allocated, user=user)
        assert (
            'status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", '
            'verb="[associated-node:update arbitrary-node:update]" permission: ' in error.message
        )
    await world.refused(STATUS, reported, allocated, user=driver(), verb="patch")
    other = copy.deepcopy(reported)
    other["status"]["devices"][0]["driver"] = "nic.example.com"
    await world.refused(STATUS, other, allocated, user=driver())
    everywhere = copy.deepcopy(allocated)
    everywhere["status"]["allocation"].pop("nodeSelector")
    reported_everywhere = copy.deepcopy(reported)
    reported_everywhere["status"]["allocation"].pop("nodeSelector")
    await world.refused(STATUS, reported_everywhere, everywhere, user=driver())
    await grant(world, driver(), rule(["arbitrary-node:update"], "resourceclaims/driver", names=("gpu.example.com",)))
    await world.admit(STATUS, reported_everywhere, everywhere, user=driver())


async def test_device_status_goes_with_its_allocation(world: World) -> None:
    reported = a_claim("c", allocation=ON_N1, devices=[DEVICE_STATUS])
    await grant(world, ALICE, rule(["update"], "resourceclaims/binding"))
    await world.admit(STATUS, a_claim("c"), reported, user=ALICE)


# --- RBAC ------------------------------------------------------------------------------------------------------------

RBAC = "rbac.authorization.k8s.io"


async def test_nobody_hands_out_what_they_do_not_hold(world: World) -> None:
    held = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
    await grant(world, ALICE, held)
    await world.admit(f"{RBAC}:roles", {"metadata": meta("r"), "rules": [{**held, "verbs": ["get"]}]}, user=ALICE)
    wanted = {"metadata": meta("r"), "rules": [{**held, "verbs": ["get", "delete"]}]}
    error = await world.refused(f"{RBAC}:roles", wanted, user=ALICE)
    assert error.code == 403
    assert error.message == (
        'roles.rbac.authorization.k8s.io "r" is forbidden: user "alice" (groups=["dev" "system:authenticated"]) is '
        'attempting to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}'
    )
    await world.admit(f"{RBAC}:roles", wanted, user=ADMIN)
    await world.admit(f"{RBAC}:roles", {**wanted, "metadata": meta("r", labels={"a": "b"})}, wanted, user=ALICE)
    everything = {"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [{}]}}
    await world.refused(f"{RBAC}:clusterroles", everything, user=ALICE)


async def test_nobody_binds_a_role_they_do_not_hold(world: World) -> None:
    def binding(role: str, kind: str = "ClusterRole", subject: str = "alice") -> Document:
        reference = {"apiGroup": RBAC, "kind": kind, "name": role}
        return {"metadata": meta("b"), "subjects": [{"kind": "User", "name": subject}], "roleRef": reference}

    for resource in (f"{RBAC}:rolebindings", f"{RBAC}:clusterrolebindings"):
        assert (await world.refused(resource, binding("cluster-admin"), user=ALICE)).code == 403
        assert (await world.refused(resource, binding("none"), user=ALICE)).code == 404
        await world.admit(resource, binding("cluster-admin"), user=ADMIN)
    await grant(
        world, ALICE, {"verbs": ["bind"], "apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": ["view"]}
    )
    await world.admit(f"{RBAC}:rolebindings", binding("view"), user=ALICE)
    await world.refused(f"{RBAC}:rolebindings", binding("edit"), user=ALICE)
    await world.refused(
        f"{RBAC}:clusterrolebindings", binding("cluster-admin"), binding("cluster-admin", subject="bob"), user=ALICE
    )


# --- quota -----------------------------------------------------------------------------------------------------------


async def a_quota(world: World, name: str = "q", used: Document | None = None, **more: Any) -> None:
    hard = more.pop("hard")
    used = used or dict.fromkeys(hard, "0")
    await world.put("ResourceQuota", name, "ns", spec={"hard": hard, **more}, status={"hard": hard, "used": used})


async def used(world: World, name: str = "q") -> Document:
    found: Document = (await world.read("ResourceQuota", name, "ns"))["status"]["used"]
    return found


COUNT, GOLD = "count/resourceclaims.resource.k8s.io", "gold.deviceclass.resource.k8s.io/devices"
CLAIMS = f"{DRA}:resourceclaims"


async def test_claims_are_charged_and_stopped(world: World) -> None:
    await a_quota(world, hard={COUNT: "2", GOLD: "3"})
    await world.admit(CLAIMS, a_claim("one", exact(count=2)))
    assert await used(world) == {COUNT: "1", GOLD: "2"}
    error = await world.refused(CLAIMS, a_claim("two", exact(count=2)))
    assert (error.code, error.message) == (
        403,
        f'resourceclaims.resource.k8s.io "two" is forbidden: exceeded quota: q, requested: {GOLD}=2, used: {GOLD}=2, '
        f"limited: {GOLD}=3",
    )
    error = await world.refused(CLAIMS, a_claim("two", exact(allocationMode="All")))
    assert f"requested: {GOLD}=32" in error.message
    await world.admit(CLAIMS, a_claim("two", exact("silver", count=5)), dry_run=True)
    assert await used(world) == {COUNT: "1", GOLD: "2"}
    await world.admit(CLAIMS, a_claim("two", exact("silver", count=5)))
    error = await world.refused(CLAIMS, a_claim("three", exact(count=2)), dry_run=True)
    assert f"requested: {COUNT}=1,{GOLD}=2, used: {COUNT}=2,{GOLD}=2, limited: {COUNT}=2,{GOLD}=3" in error.message


async def test_alternatives_count_their_largest_per_class(world: World) -> None:
    await a_quota(world, hard={GOLD: "10", "silver.deviceclass.resource.k8s.io/devices": "10"})
    options = [
        {"name": "a", "deviceClassName": "gold", "allocationMode": "ExactCount", "count": 4},
        {"name": "b", "deviceClassName": "gold", "allocationMode": "ExactCount", "count": 2},
        {"name": "c", "deviceClassName": "silver", "allocationMode": "ExactCount", "count": 3},
    ]
    await world.admit(CLAIMS, a_claim("c", {"name": "r", "firstAvailable": options}, exact()))
    assert await used(world) == {GOLD: "5", "silver.deviceclass.resource.k8s.io/devices": "3"}


async def test_extended_resources_of_claims(world: World) -> None:
    implicit, explicit = "requests.deviceclass.resource.kubernetes.io/gold", "requests.example.com/gpu"
    await a_quota(world, hard={implicit: "3", explicit: "3"})
    await world.admit(CLAIMS, a_claim("before", exact(count=9)))
    assert await used(world) == {implicit: "0", explicit: "0"}
    await world.put("DeviceClass", "gold", spec={"extendedResourceName": "example.com/gpu"})
    await world.admit(CLAIMS, a_claim("c", exact(count=2)))
    assert await used(world) == {implicit: "2", explicit: "2"}
    assert f"{explicit}=2" in (await world.refused(CLAIMS, a_claim("d", exact(count=2)))).message
    requests = {"limits": {"example.com/gpu": "1"}, "requests": {"example.com/gpu": "1"}}
    pod = await world.put("Pod", "p", "ns", **{key: a_pod(resources=requests)[key] for key in ("spec", "status")})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    made = a_claim("made", exact(count=1))
    made["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
    }
    await world.admit(CLAIMS, made)
    assert await used(world) == {implicit: "3", explicit: "2"}


async def test_pods_are_charged_for_what_they_ask(world: World) -> None:
    await a_quota(world, hard={"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi", "count/pods": "5"})
    error = await world.refused("pods", a_pod(resources={"requests": {"cpu": "1"}}))
    assert error.message == 'pods "p" is forbidden: failed quota: q: must specify limits.memory for: main'
    asks = {"requests": {"cpu": "600m", "memory": "1Mi"}, "limits": {"memory": "512Mi"}}
    await world.admit("pods", a_pod("a", resources=asks))
    assert await used(world) == {"pods": "1", "requests.cpu": "600m", "limits.memory": "512Mi", "count/pods": "1"}
    error = await world.refused("pods", a_pod("b", resources=asks))
    assert "requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1" in error.message


async def test_scopes_choose_pods(world: World) -> None:
    await a_quota(world, "best-effort", hard={"pods": "0"}, scopes=["BestEffort"])
    assert "best-effort" in (await world.refused("pods", a_pod())).message
    await world.admit("pods", a_pod(resources={"requests": {"cpu": "1"}}))
    await world.admit("configmaps", {"metadata": meta("c")})
    selector = {
        "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}]
    }
    await a_quota(world, "critical", hard={"pods": "0"}, scopeSelector=selector)
    critical = a_pod(resources={"requests": {"cpu": "1"}}, priorityClassName="system-node-critical")
    assert "critical" in (await world.refused("pods", critical)).message


async def test_any_kind_can_be_counted(world: World) -> None:
    await a_quota(world, hard={"configmaps": "1", "count/leases.coordination.k8s.io": "0"})
    await world.admit("configmaps", {"metadata": meta("a")})
    assert "configmaps=1" in (await world.refused("configmaps", {"metadata": meta("b")})).message
    assert (await world.refused("coordination.k8s.io:leases", {"metadata": meta("l")})).code == 403
    await world.admit("configmaps", {"metadata": meta("b")}, namespace="kube-system")


async def test_a_quota_without_status_waits_for_its_controller(world: World) -> None:
    await world.put("ResourceQuota", "q", "ns", spec={"hard": {"configmaps": "0"}}, status={})
    await world.admit("configmaps", {"metadata": meta("a")})


async def test_many_at_once_never_pass_the_limit(world: World) -> None:
    await a_quota(world, hard={GOLD: "7"})

    async def one(number: int) -> bool:
        try:
            await world.admit(CLAIMS, a_claim(f"c{number}", exact(count=2)))
        except ApiError:
            return False
        return True

    assert sum(await asyncio.gather(*(one(number) for number in range(20)))) == 3
    assert await used(world) == {GOLD: "6"}


async def test_claims_of_pods_count_as_an_option(tmp_path: Path) -> None:
    world = await open_world(tmp_path, SecurityOptions(quota_counts_claims=True))
    await a_quota(world, hard={"requests.cpu": "4"})
    asks = {"requests": {"cpu": "1"}}
    old = a_pod(resources=asks)
    await world.admit("pods", old)
    new = copy.deepcopy(old)
    new["status"]["nodeAllocatableResourceClaimStatuses"] = [
        {"resourceClaimName": "c", "containers": ["main"], "resources": {"cpu": "2"}}
    ]
    await world.admit("pods/status", new, old)
    assert await used(world) == {"requests.cpu": "3"}
    more = copy.deepcopy(new)
    more["status"]["nodeAllocatableResourceClaimStatuses"][0]["resources"]["cpu"] = "9"
    assert "exceeded quota" in (await world.refused("pods/status", more, new)).message
    await world.security.stop()
    await world.store.close()
