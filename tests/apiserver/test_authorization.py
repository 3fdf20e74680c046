"""Who may do what: RBAC, the node authorizer, default roles, reviews."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dray.api.scheme import by_kind
from dray.apiserver.assembly import FollowedStore, Security, ServerOptions, assemble_security, prepare_store
from dray.apiserver.errors import ApiError
from dray.apiserver.request.authorization.authorizer import forbidden_error
from dray.apiserver.request.authorization.rbac import PolicyRule, compact, uncovered
from dray.apiserver.request.request_info import Attributes, FieldRequirement, User
from dray.apiserver.security.bootstrap import bootstrap
from dray.apiserver.watch.stored_object import object_key, to_value
from dray.clock import RealClock
from dray.store.interface import Delete, Put
from dray.store.sqlite import SqliteStore
from dray.telemetry import Registry

Document = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
DRA = "resource.k8s.io"


class Server:
    """Security over a store, without HTTP."""

    def __init__(self, followed: FollowedStore, security: Security) -> None:
        self.store = followed.store
        self.security = security
        self._follower = followed.follower

    async def put(self, kind: str, name: str, namespace: str = "", **body: Any) -> None:
        row = by_kind(kind)
        metadata = {"name": name, "uid": f"uid-{name}", **({"namespace": namespace} if namespace else {})}
        metadata |= body.pop("metadata", {})
        document = {"kind": kind, "apiVersion": row.api_version(), "metadata": metadata, **body}
        await self.store.commit([Put(object_key(row.group, row.plural, namespace, name), to_value(document))])
        await self._follower.fresh()

    async def remove(self, kind: str, name: str, namespace: str = "") -> None:
        row = by_kind(kind)
        await self.store.commit([Delete(object_key(row.group, row.plural, namespace, name))])
        await self._follower.fresh()

    async def bind(self, name: str, role: str, subject: Document, namespace: str = "") -> None:
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        role_kind, _, role_name = role.partition("/")
        reference = {"apiGroup": RBAC, "kind": role_kind, "name": role_name}
        await self.put(kind, name, namespace, subjects=[subject], roleRef=reference)

    async def may(self, user: User, verb: str, resource: str, **more: Any) -> bool:
        group, _, plural = resource.rpartition(":")
        plural, _, subresource = plural.partition("/")
        attributes = Attributes(user, verb, group, "v1", plural, subresource, **more)
        return (await self.security.authorizer.authorize(attributes)).allowed


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    store = SqliteStore(tmp_path / "dray.db")
    clock = RealClock()
    credentials = await prepare_store(store, tmp_path, clock)
    followed = FollowedStore.of(store, clock)
    security = assemble_security(followed, credentials, clock, ServerOptions(tmp_path), Registry())
    await followed.follower.start()
    yield Server(followed, security)
    await followed.follower.stop()
    await store.close()


ALICE = User("alice", ("dev", "system:authenticated"))


def user(name: str) -> Document:
    return {"apiGroup": RBAC, "kind": "User", "name": name}


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "asked", "allowed"),
    [
        pytest.param(PolicyRule(("get",), ("",), ("pods",)), ("get", "", "pods", "", "x"), True, id="plain"),
        pytest.param(PolicyRule(("get",), ("",), ("pods",)), ("list", "", "pods", "", ""), False, id="other-verb"),
        pytest.param(PolicyRule(("get",), ("",), ("pods",)), ("get", "apps", "pods", "", "x"), False, id="other-group"),
        pytest.param(PolicyRule(("get",), ("",), ("pods",)), ("get", "", "pods", "status", "x"), False, id="not-below"),
        pytest.param(
            PolicyRule(("get",), ("",), ("pods/status",)), ("get", "", "pods", "", "x"), False, id="not-above"
        ),
        pytest.param(
            PolicyRule(("get",), ("",), ("*/status",)), ("get", "", "pods", "status", "x"), True, id="any-status"
        ),
        pytest.param(PolicyRule(("get",), ("",), ("*/status",)), ("get", "", "pods", "", "x"), False, id="status-only"),
        pytest.param(PolicyRule(("*",), ("*",), ("*",)), ("frob", "g", "r", "s", "x"), True, id="everything"),
        pytest.param(PolicyRule(("get",), ("",), ("pods",), ("x",)), ("get", "", "pods", "", "x"), True, id="by-name"),
        pytest.param(
            PolicyRule(("get",), ("",), ("pods",), ("x",)), ("get", "", "pods", "", "y"), False, id="other-name"
        ),
        pytest.param(
            PolicyRule(("list",), ("",), ("pods",), ("x",)), ("list", "", "pods", "", ""), False, id="no-name"
        ),
        pytest.param(PolicyRule(("get",), ("",), ("pod*",)), ("get", "", "pods", "", "x"), False, id="no-globs"),
        pytest.param(
            PolicyRule(("get",), non_resource_urls=("*",)), ("get", "", "pods", "", "x"), False, id="url-rule"
        ),
    ],
)
def test_a_rule(rule: PolicyRule, asked: tuple[str, str, str, str, str], allowed: bool) -> None:
    verb, group, resource, subresource, name = asked
    attributes = Attributes(ALICE, verb, group, "v1", resource, subresource, "ns", name)
    assert rule.allows(attributes) == allowed


@pytest.mark.parametrize(
    ("pattern", "path", "allowed"),
    [
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/etcd", False),
        ("/api/*", "/api/v1", True),
        ("/api/*", "/apis", False),
        ("*", "/anything", True),
    ],
)
def test_a_url_rule(pattern: str, path: str, allowed: bool) -> None:
    rule = PolicyRule(("get",), non_resource_urls=(pattern,))
    assert rule.allows(Attributes(ALICE, "get", path=path)) == allowed
    assert not rule.allows(Attributes(ALICE, "post", path=path))


def test_what_is_not_covered_is_named() -> None:
    held = [PolicyRule(("get", "list"), ("",), ("pods", "*/log")), PolicyRule(("*",), ("apps",), ("*",))]
    wanted = [PolicyRule(("get", "delete"), ("", "apps"), ("pods", "pods/log", "pods/exec"))]
    missing = {rule.described() for rule in compact(uncovered(wanted, held))}
    assert missing == {
        '{APIGroups:[""], Resources:["pods/exec"], Verbs:["get", "delete"]}',
        '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}',
        '{APIGroups:[""], Resources:["pods/log"], Verbs:["delete"]}',
    }
    assert uncovered([PolicyRule(("get",), ("",), ("pods",), ("a",))], [PolicyRule(("get",), ("",), ("pods",))]) == []
    assert uncovered([PolicyRule(("get",), ("",), ("pods",))], [PolicyRule(("get",), ("",), ("pods",), ("a",))])


# --- RBAC objects ----------------------------------------------------------------------------------------------------


async def test_bindings_follow_the_objects(server: Server) -> None:
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    assert not await server.may(ALICE, "get", "pods", namespace="ns")
    await server.put("Role", "reader", "ns", rules=rules)
    await server.bind("b", "Role/reader", user("alice"), "ns")
    assert await server.may(ALICE, "get", "pods", namespace="ns")
    assert not await server.may(ALICE, "get", "pods", namespace="other")
    assert not await server.may(ALICE, "get", "pods")
    await server.put("Role", "reader", "ns", rules=[])
    assert not await server.may(ALICE, "get", "pods", namespace="ns")
    await server.put("Role", "reader", "ns", rules=rules)
    assert await server.may(ALICE, "get", "pods", namespace="ns")
    await server.remove("Role", "reader", "ns")
    assert not await server.may(ALICE, "get", "pods", namespace="ns")
    await server.put("Role", "reader", "ns", rules=rules)
    await server.remove("RoleBinding", "b", "ns")
    assert not await server.may(ALICE, "get", "pods", namespace="ns")


async def test_a_role_binding_to_a_cluster_role_stays_in_its_namespace(server: Server) -> None:
    await server.bind("b", "ClusterRole/cluster-admin", {"apiGroup": RBAC, "kind": "Group", "name": "dev"}, "ns")
    assert await server.may(ALICE, "delete", f"{DRA}:resourceclaims", namespace="ns", name="c")
    assert not await server.may(ALICE, "delete", f"{DRA}:resourceclaims", namespace="other", name="c")
    assert not await server.may(ALICE, "get", "nodes", name="n")


async def test_a_cluster_role_binding_does_not_reach_roles(server: Server) -> None:
    await server.put("Role", "all", "ns", rules=[{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])
    await server.bind("b", "Role/all", user("alice"))
    assert not await server.may(ALICE, "get", "pods", namespace="ns")


async def test_service_accounts_are_subjects_of_their_own(server: Server) -> None:
    robot = User("system:serviceaccount:ns:robot", ("system:serviceaccounts",))
    await server.bind("b", "ClusterRole/view", {"kind": "ServiceAccount", "name": "robot", "namespace": "ns"})
    assert await server.may(robot, "list", f"{DRA}:resourceclaims", namespace="x")
    assert not await server.may(replace(robot, name="system:serviceaccount:other:robot"), "list", "pods")
    assert not await server.may(User("robot"), "list", "pods")


async def test_aggregated_roles_have_the_rules_of_those_they_select(server: Server) -> None:
    selector = {"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]}
    await server.put("ClusterRole", "all", aggregationRule=selector, rules=[])
    await server.bind("b", "ClusterRole/all", user("alice"))
    assert not await server.may(ALICE, "get", "nodes", name="n")
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}]
    await server.put("ClusterRole", "part", metadata={"labels": {"to": "all"}}, rules=rules)
    assert await server.may(ALICE, "get", "nodes", name="n")


async def test_a_binding_to_a_missing_role_allows_nothing_and_says_why(server: Server) -> None:
    await server.bind("b", "ClusterRole/none", user("alice"))
    decision = await server.security.authorizer.authorize(Attributes(ALICE, "get", resource="nodes", name="n"))
    assert not decision.allowed
    assert 'clusterrole.rbac.authorization.k8s.io "none" not found' in decision.reason


async def test_an_unreadable_role_does_not_stop_the_index(server: Server) -> None:
    await server.put("ClusterRole", "broken", rules="nonsense")
    await server.bind("b", "ClusterRole/view", user("alice"))
    assert await server.may(ALICE, "list", "pods", namespace="x")


# --- default roles ---------------------------------------------------------------------------------------------------

SCHEDULER = User("system:kube-scheduler", ("system:authenticated",))
CLAIM_CONTROLLER = User("system:serviceaccount:kube-system:resource-claim-controller")
EVICTION = User("system:serviceaccount:kube-system:device-taint-eviction-controller")


@pytest.mark.parametrize(
    ("who", "verb", "resource", "allowed"),
    [
        (SCHEDULER, "watch", f"{DRA}:resourceslices", True),
        (SCHEDULER, "watch", f"{DRA}:devicetaintrules", True),
        (SCHEDULER, "update", f"{DRA}:resourceclaims/status", True),
        (SCHEDULER, "update", f"{DRA}:resourceclaims/binding", True),
        (SCHEDULER, "create", f"{DRA}:resourceclaims", True),
        (SCHEDULER, "update", f"{DRA}:resourceclaims/driver", False),
        (SCHEDULER, "update", f"{DRA}:resourceslices", False),
        (SCHEDULER, "create", "pods/binding", True),
        (SCHEDULER, "update", "pods", False),
        (SCHEDULER, "update", "nodes", False),
        (CLAIM_CONTROLLER, "update", f"{DRA}:resourceclaims/binding", True),
        (CLAIM_CONTROLLER, "patch", "pods/status", True),
        (CLAIM_CONTROLLER, "delete", "pods", False),
        (CLAIM_CONTROLLER, "update", f"{DRA}:deviceclasses", False),
        (EVICTION, "delete", "pods", True),
        (EVICTION, "patch", f"{DRA}:devicetaintrules/status", True),
        (EVICTION, "update", f"{DRA}:devicetaintrules", False),
        (EVICTION, "update", f"{DRA}:resourceclaims/status", False),
        (ALICE, "create", "authorization.k8s.io:selfsubjectaccessreviews", True),
        (ALICE, "create", "authorization.k8s.io:subjectaccessreviews", False),
        (User("system:admin", ("system:masters",)), "frob", "x:y", True),
    ],
)
async def test_default_roles(server: Server, who: User, verb: str, resource: str, allowed: bool) -> None:
    assert await server.may(who, verb, resource, namespace="ns", name="x") == allowed


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
async def test_user_roles_stop_at_devices(server: Server, role: str) -> None:
    await server.bind("b", f"ClusterRole/{role}", user("alice"))
    writes = role != "view"
    for plural in ("resourceclaims", "resourceclaimtemplates"):
        assert await server.may(ALICE, "list", f"{DRA}:{plural}", namespace="ns")
        for verb in ("create", "update", "patch", "delete", "deletecollection"):
            assert await server.may(ALICE, verb, f"{DRA}:{plural}", namespace="ns", name="x") == writes
    for verb in ("create", "update", "patch", "delete"):
        for plural in (
            *("deviceclasses", "devicetaintrules", "resourceslices", "resourceclaims/status", "resourceclaims/binding"),
            "resourceclaims/driver",
        ):
            assert not await server.may(ALICE, verb, f"{DRA}:{plural}", namespace="ns", name="x")
    assert await server.may(ALICE, "get", "secrets", namespace="ns", name="x") == writes
    assert not await server.may(ALICE, "get", "nodes", name="n")
    assert await server.may(ALICE, "create", f"{RBAC}:roles", namespace="ns") == (role == "admin")


@pytest.mark.parametrize(
    ("path", "for_all", "for_users"),
    [
        ("/healthz", True, True),
        ("/version", True, True),
        ("/readyz", True, True),
        ("/api", False, True),
        ("/apis/resource.k8s.io", False, True),
        ("/openapi/v3", False, True),
        ("/metrics", False, False),
        ("/nope", False, False),
    ],
)
async def test_plain_paths(server: Server, path: str, for_all: bool, for_users: bool) -> None:
    anonymous = User("system:anonymous", ("system:unauthenticated",))
    authorizer = server.security.authorizer
    assert (await authorizer.authorize(Attributes(anonymous, "get", path=path))).allowed == for_all
    assert (await authorizer.authorize(Attributes(ALICE, "get", path=path))).allowed == for_users


async def test_bootstrap_repairs_and_leaves_alone(server: Server) -> None:
    clock = RealClock()
    assert await bootstrap(server.store, clock, lambda: "u") == 0
    await server.remove("ClusterRole", "view")
    await server.put("ClusterRole", "edit", rules=[])
    assert await bootstrap(server.store, clock, lambda: "u") == 1
    assert server.security.authorizer.rbac.role_rules("", "edit") == ()


# --- nodes -----------------------------------------------------------------------------------------------------------

N1 = User("system:node:n1", ("system:nodes", "system:authenticated"))


async def put_pod(server: Server, name: str, node: str, **spec: Any) -> None:
    status = spec.pop("status", {})
    await server.put("Pod", name, "ns", spec={"nodeName": node, "containers": [], **spec}, status=status)


async def test_a_node_reads_the_claims_of_its_pods_and_no_others(server: Server) -> None:
    await put_pod(server, "p1", "n1", resourceClaims=[{"name": "a", "resourceClaimName": "direct"}])
    await put_pod(
        server,
        "p2",
        "n1",
        resourceClaims=[{"name": "t", "resourceClaimTemplateName": "tmpl"}],
        status={
            "resourceClaimStatuses": [{"name": "t", "resourceClaimName": "generated"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "extended", "requestMappings": []},
        },
    )
    await put_pod(server, "p3", "n2", resourceClaims=[{"name": "a", "resourceClaimName": "foreign"}])
    claims = f"{DRA}:resourceclaims"
    for name in ("direct", "generated", "extended"):
        assert await server.may(N1, "get", claims, namespace="ns", name=name)
        assert not await server.may(N1, "get", claims, namespace="other", name=name)
        for verb in ("update", "patch", "delete", "list", "watch"):
            assert not await server.may(N1, verb, claims, namespace="ns", name=name)
        for verb in ("update", "patch", "get"):
            assert not await server.may(N1, verb, f"{claims}/status", namespace="ns", name=name)
    assert not await server.may(N1, "get", claims, namespace="ns", name="foreign")
    assert not await server.may(N1, "list", claims, namespace="ns")
    await server.remove("Pod", "p1", "ns")
    assert not await server.may(N1, "get", claims, namespace="ns", name="direct")


async def test_a_claim_of_two_pods_stays_readable_until_both_are_gone(server: Server) -> None:
    for name in ("p1", "p2"):
        await put_pod(server, name, "n1", resourceClaims=[{"name": "a", "resourceClaimName": "shared"}])
    await server.remove("Pod", "p1", "ns")
    assert await server.may(N1, "get", f"{DRA}:resourceclaims", namespace="ns", name="shared")
    await server.remove("Pod", "p2", "ns")
    assert not await server.may(N1, "get", f"{DRA}:resourceclaims", namespace="ns", name="shared")


async def test_secrets_config_maps_and_tokens_follow_the_pods(server: Server) -> None:
    await put_pod(
        server,
        "p",
        "n1",
        serviceAccountName="robot",
        imagePullSecrets=[{"name": "pull"}],
        containers=[
            {
                "name": "c",
                "envFrom": [{"configMapRef": {"name": "env"}}],
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}],
            }
        ],
        volumes=[
            {"name": "v", "secret": {"secretName": "vol"}},
            {"name": "w", "projected": {"sources": [{"configMap": {"name": "projected"}}]}},
        ],
    )
    for plural, name in (
        ("secrets", "pull"),
        ("secrets", "key"),
        ("secrets", "vol"),
        ("configmaps", "env"),
        ("configmaps", "projected"),
    ):
        assert await server.may(N1, "get", plural, namespace="ns", name=name)
        assert not await server.may(N1, "update", plural, namespace="ns", name=name)
    assert not await server.may(N1, "get", "secrets", namespace="ns", name="other")
    assert not await server.may(N1, "list", "secrets", namespace="ns")
    assert await server.may(N1, "create", "serviceaccounts/token", namespace="ns", name="robot")
    assert not await server.may(N1, "create", "serviceaccounts/token", namespace="ns", name="default")


async def test_slices_belong_to_their_node(server: Server) -> None:
    slices = f"{DRA}:resourceslices"
    await server.put("ResourceSlice", "mine", spec={"nodeName": "n1", "driver": "d", "pool": {"name": "p"}})
    await server.put("ResourceSlice", "theirs", spec={"nodeName": "n2", "driver": "d", "pool": {"name": "p"}})
    await server.put("ResourceSlice", "all", spec={"allNodes": True, "driver": "d", "pool": {"name": "p"}})
    for verb in ("get", "update", "patch", "delete"):
        assert await server.may(N1, verb, slices, name="mine")
        for name in ("theirs", "all", "missing"):
            assert not await server.may(N1, verb, slices, name=name)
    of_several_nodes = (FieldRequirement("spec.nodeName", "=", ""),)
    for verb in ("list", "watch"):
        assert await server.may(N1, verb, slices, field_requirements=of_several_nodes)
    assert not await server.may(N1, "deletecollection", slices, field_requirements=of_several_nodes)
    own = (FieldRequirement("spec.nodeName", "=", "n1"),)
    for verb in ("list", "watch", "deletecollection"):
        assert await server.may(N1, verb, slices, field_requirements=own)
        assert not await server.may(N1, verb, slices)
        for bad in (
            FieldRequirement("spec.nodeName", "=", "n2"),
            FieldRequirement("spec.nodeName", "!=", "n1"),
            FieldRequirement("metadata.name", "=", "n1"),
        ):
            assert not await server.may(N1, verb, slices, field_requirements=(bad,))


async def test_volumes_attachments_and_certificates_of_a_node(server: Server) -> None:
    await put_pod(server, "p", "n1", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}])
    await server.put("PersistentVolume", "mine", spec={"claimRef": {"namespace": "ns", "name": "disk"}})
    await server.put("PersistentVolume", "theirs", spec={"claimRef": {"namespace": "ns", "name": "other"}})
    for node in ("n1", "n2"):
        await server.put("VolumeAttachment", f"at-{node}", spec={"nodeName": node, "attacher": "a", "source": {}})
        await server.put("PodCertificateRequest", f"for-{node}", "ns", spec={"nodeName": node})
    requests = "certificates.k8s.io:podcertificaterequests"
    assert await server.may(N1, "get", "persistentvolumes", name="mine")
    assert not await server.may(N1, "get", "persistentvolumes", name="theirs")
    assert not await server.may(N1, "list", "persistentvolumes")
    assert await server.may(N1, "patch", "persistentvolumeclaims/status", namespace="ns", name="disk")
    assert not await server.may(N1, "patch", "persistentvolumeclaims/status", namespace="ns", name="other")
    assert await server.may(N1, "get", "storage.k8s.io:volumeattachments", name="at-n1")
    assert not await server.may(N1, "get", "storage.k8s.io:volumeattachments", name="at-n2")
    assert await server.may(N1, "get", requests, namespace="ns", name="for-n1")
    assert not await server.may(N1, "get", requests, namespace="ns", name="for-n2")
    own = (FieldRequirement("spec.nodeName", "=", "n1"),)
    assert await server.may(N1, "watch", requests, field_requirements=own)
    assert not await server.may(N1, "watch", requests)
    assert await server.may(N1, "create", requests, namespace="ns")
    assert not await server.may(N1, "update", requests, namespace="ns", name="for-n1")
    assert await server.may(N1, "patch", "storage.k8s.io:csinodes/status", name="n1")
    assert not await server.may(N1, "patch", "storage.k8s.io:csinodes/status", name="n2")
    await server.remove("PersistentVolume", "mine")
    assert not await server.may(N1, "get", "persistentvolumes", name="mine")


async def test_nodes_pods_leases(server: Server) -> None:
    await put_pod(server, "mine", "n1")
    await put_pod(server, "theirs", "n2")
    assert await server.may(N1, "get", "nodes", name="n1")
    assert not await server.may(N1, "get", "nodes", name="n2")
    assert not await server.may(N1, "list", "nodes")
    assert not await server.may(N1, "delete", "nodes", name="n1")
    assert await server.may(N1, "get", "pods", namespace="ns", name="mine")
    assert not await server.may(N1, "get", "pods", namespace="ns", name="theirs")
    assert await server.may(N1, "watch", "pods", field_requirements=(FieldRequirement("spec.nodeName", "=", "n1"),))
    assert not await server.may(N1, "watch", "pods")
    assert not await server.may(N1, "create", "pods/binding", namespace="ns", name="mine")
    leases = "coordination.k8s.io:leases"
    assert await server.may(N1, "update", leases, namespace="kube-node-lease", name="n1")
    assert not await server.may(N1, "update", leases, namespace="kube-node-lease", name="n2")
    assert not await server.may(N1, "update", leases, namespace="kube-system", name="n1")
    for resource in (f"{DRA}:deviceclasses", f"{DRA}:devicetaintrules", f"{RBAC}:clusterroles", "namespaces"):
        for verb in ("get", "list", "create", "update", "delete"):
            assert not await server.may(N1, verb, resource, name="x")


@pytest.mark.parametrize(
    "impostor",
    [
        User("system:node:n1", ("system:authenticated",)),
        User("n1", ("system:nodes",)),
        User("system:node:", ("system:nodes",)),
    ],
)
async def test_half_an_identity_is_no_node(server: Server, impostor: User) -> None:
    await put_pod(server, "p", "n1", resourceClaims=[{"name": "a", "resourceClaimName": "c"}])
    assert not await server.may(impostor, "get", f"{DRA}:resourceclaims", namespace="ns", name="c")
    assert not await server.may(impostor, "create", f"{DRA}:resourceslices")


# --- refusals and reviews --------------------------------------------------------------------------------------------


async def test_a_refusal_reads_like_kubernetes(server: Server) -> None:
    attributes = Attributes(ALICE, "list", DRA, "v1", "resourceclaims", "", "ns")
    error = forbidden_error(attributes, await server.security.authorizer.authorize(attributes))
    assert (error.code, error.reason) == (403, "Forbidden")
    assert error.message == (
        'resourceclaims.resource.k8s.io is forbidden: User "alice" cannot list resource "resourceclaims" in API group '
        '"resource.k8s.io" in the namespace "ns"'
    )
    attributes = Attributes(ALICE, "get", "", "v1", "nodes", "status", "", "n")
    error2 = forbidden_error(attributes, await server.security.authorizer.authorize(attributes))
    assert error2.message == (
        'nodes "n" is forbidden: User "alice" cannot get resource "nodes/status" in API group "" at the cluster scope'
    )


async def test_reviews_answer_about_others_and_oneself(server: Server) -> None:
    await server.bind("b", "ClusterRole/view", user("alice"))
    reviews = server.security.reviews
    asked = {"resourceAttributes": {"group": DRA, "resource": "resourceclaims", "verb": "get", "namespace": "ns"}}
    mine = await reviews.answer("SelfSubjectAccessReview", {"spec": asked}, ALICE)
    assert mine["status"]["allowed"] is True
    assert 'ClusterRoleBinding "b" of ClusterRole "view" to User "alice"' in mine["status"]["reason"]
    other = await reviews.answer("SubjectAccessReview", {"spec": {**asked, "user": "bob"}}, ALICE)
    assert other["status"] == {"allowed": False}
    rules = await reviews.answer("SelfSubjectRulesReview", {"spec": {"namespace": "ns"}}, ALICE)
    assert any("resourceclaims" in rule["resources"] for rule in rules["status"]["resourceRules"])
    assert any("/healthz" in rule["nonResourceURLs"] for rule in rules["status"]["nonResourceRules"])
    self_review = await reviews.answer("SelfSubjectReview", {}, ALICE)
    assert self_review["status"]["userInfo"] == {"username": "alice", "groups": ["dev", "system:authenticated"]}


async def test_a_rules_review_shows_the_rules_as_they_are_and_nothing_of_other_namespaces(server: Server) -> None:
    """With the names: a rule for one object must not look like one for all."""
    one = {"verbs": ["get", "patch"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"]}
    every = {"verbs": ["list"], "apiGroups": ["", "apps"], "resources": ["pods"]}
    await server.put("Role", "r", "ns", rules=[one, every])
    await server.put("Role", "r", "other", rules=[{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])
    for namespace in ("ns", "other"):
        await server.bind("b", "Role/r", user("carol"), namespace)
    answer = await server.security.reviews.answer(
        "SelfSubjectRulesReview", {"spec": {"namespace": "ns"}}, User("carol")
    )
    assert answer["status"] == {"resourceRules": [one, every], "nonResourceRules": [], "incomplete": False}


@pytest.mark.parametrize(
    ("kind", "review"),
    [
        ("SelfSubjectAccessReview", {"spec": {}}),
        ("SelfSubjectAccessReview", {"spec": {"resourceAttributes": {}, "nonResourceAttributes": {}}}),
        ("SubjectAccessReview", {"spec": {"resourceAttributes": {"verb": "get"}}}),
        ("LocalSubjectAccessReview", {"spec": {"user": "x", "resourceAttributes": {"namespace": "other"}}}),
        ("LocalSubjectAccessReview", {"spec": {"user": "x", "nonResourceAttributes": {"path": "/"}}}),
        ("TokenReview", {"spec": {}}),
        ("SelfSubjectRulesReview", {"spec": {}}),
        ("SelfSubjectAccessReview", {"spec": "nonsense"}),
        ("TokenReview", {"spec": {"token": 7}}),
    ],
)
async def test_reviews_that_make_no_sense_are_refused(server: Server, kind: str, review: Document) -> None:
    with pytest.raises(ApiError) as error:
        await server.security.reviews.answer(kind, review, ALICE, "ns")
    assert error.value.code in (400, 422)


async def test_slice_that_is_gone_belongs_to_nobody(server: Server) -> None:
    await server.put("ResourceSlice", "mine", spec={"nodeName": "n1", "driver": "d", "pool": {"name": "p"}})
    assert await server.may(N1, "get", f"{DRA}:resourceslices", name="mine")
    await server.remove("ResourceSlice", "mine")
    assert not await server.may(N1, "get", f"{DRA}:resourceslices", name="mine")


async def test_csi_node_of_a_node(server: Server) -> None:
    nodes = "storage.k8s.io:csinodes"
    assert await server.may(N1, "create", nodes)
    for verb in ("get", "update", "patch", "delete"):
        assert await server.may(N1, verb, nodes, name="n1")
        assert not await server.may(N1, verb, nodes, name="n2")
    for verb in ("list", "watch", "deletecollection"):
        assert not await server.may(N1, verb, nodes)
        assert not await server.may(N1, verb, nodes, name="n1")


async def test_roles_with_names_reach_only_those(server: Server) -> None:
    leases = "coordination.k8s.io:leases"
    assert await server.may(SCHEDULER, "update", leases, namespace="kube-system", name="kube-scheduler")
    assert not await server.may(SCHEDULER, "update", leases, namespace="kube-system", name="kube-controller-manager")
    assert await server.may(SCHEDULER, "update", f"{DRA}:resourceclaims/status", namespace="ns", name="any")


@pytest.mark.parametrize(
    ("operator", "values", "allowed"),
    [
        pytest.param("In", ["n1"], True, id="own"),
        pytest.param("In", ["n2"], False, id="another"),
        pytest.param("In", ["n1", "n2"], False, id="both"),
        pytest.param("NotIn", ["n1"], False, id="all-but-own"),
        pytest.param("Exists", [], False, id="any"),
    ],
)
async def test_review_counts_fields_that_a_list_is_restricted_to(
    server: Server, operator: str, values: list[str], allowed: bool
) -> None:
    requirement = {"key": "spec.nodeName", "operator": operator, "values": values}
    wanted = {
        "verb": "list",
        "group": DRA,
        "resource": "resourceslices",
        "fieldSelector": {"requirements": [requirement]},
    }
    spec = {"user": N1.name, "groups": list(N1.groups), "resourceAttributes": wanted}
    answer = await server.security.reviews.answer("SubjectAccessReview", {"spec": spec}, ALICE)
    assert answer["status"]["allowed"] is allowed
