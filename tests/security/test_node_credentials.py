"""What a node tries with its own credentials, and a tenant with theirs: secrets of others, the API server's identity, priority, finalizers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dray.apiserver.assembly import RunningServer, ServerOptions, start_server
from dray.apiserver.request.request_info import AUTHENTICATED, User
from dray.apiserver.security.certificates import Authority, Pair
from dray.apiserver.subresources.node_agents import CLIENT_NAME
from dray.kubelet.serving_certificate import CertificateSubject, self_signed
from dray.store.sqlite import SqliteStore
from tests.apiserver.conftest import CLAIMS, Client
from tests.security.loop_stalls import loop_stalls
from tests.waiting import eventually

Document = dict[str, Any]
NODE = User("system:node:n1", ("system:nodes", "system:authenticated"))
PODS = "/api/v1/namespaces/default/pods"
PROTECTION = "resource.kubernetes.io/delete-protection"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Client]:
    store = SqliteStore(tmp_path / "dray.db")
    running = await start_server(store, ServerOptions(tmp_path))
    client = Client(running, store)
    await client.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    yield client
    await running.stop()
    await store.close()


def node_pod(name: str = "p", **spec: Any) -> Document:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


# --- pod logs --------------------------------------------------------------------------------------------------------


class FakeKubelet:
    """Answers every request with the same bytes, and keeps what was asked and by whom."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.heads: list[bytes] = []
        self.subjects: list[Any] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        self.asked.append(head.split(b" ")[1].decode())
        self.subjects.append(writer.get_extra_info("ssl_object").getpeercert()["subject"])
        writer.write(self.answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def kubelet(
    running: RunningServer, answer: bytes, folder: Path, shown: Pair | None = None
) -> AsyncIterator[tuple[FakeKubelet, int]]:
    """A node agent with a certificate for its node, or another one, which asks clients for one of the cluster's authority."""
    authority = running.credentials.authority
    pair = shown or authority.issue_server("system:node:n1", ["n1"])
    (folder / "kubelet.pem").write_bytes(pair.key_pem + pair.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "kubelet.pem")
    context.load_verify_locations(cadata=authority.certificate_pem.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    fake = FakeKubelet(answer)
    listening = await asyncio.start_server(fake.serve, "127.0.0.1", 0, ssl=context)
    try:
        yield fake, listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


async def node_that_serves_logs(server: Client, address: str, port: int) -> None:
    """A node that says where its agent serves logs, and a pod on it."""
    await server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    await serve_logs_at(server, address, port)
    assert (await server.post(PODS, node_pod(nodeName="n1"))).status == 201


async def serve_logs_at(server: Client, address: str, port: int) -> None:
    status = {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    answer = await server.send("PATCH", "/api/v1/nodes/n1/status", {"status": status}, user=NODE,
                               content_type="application/merge-patch+json")  # fmt: skip
    assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    "address", ["127.0.0.1:PORT/api/v1/secrets#", "localhost", "metadata.internal", "user@127.0.0.1", "fe80::1%lo", ""]
)
async def test_logs_are_fetched_from_ip_addresses_only(server: Client, tmp_path: Path, address: str) -> None:
    async with kubelet(server.running, b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret", tmp_path) as (fake, port):
        await node_that_serves_logs(server, address.replace("PORT", str(port)), port)
        answer = await server.get(f"{PODS}/p/log")
    assert answer.status == 400
    assert fake.asked == []


async def test_a_redirect_of_a_node_is_not_followed(server: Client, tmp_path: Path) -> None:
    redirect = b"HTTP/1.1 302 Found\r\nlocation: /api/v1/secrets\r\ncontent-length: 0\r\n\r\n"
    async with kubelet(server.running, redirect, tmp_path) as (fake, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        answer = await server.get(f"{PODS}/p/log")
    assert answer.status == 400
    assert fake.asked == ["/containerLogs/default/p/c"]


async def test_the_identity_that_fetches_logs_may_do_nothing_else(server: Client, tmp_path: Path) -> None:
    async with kubelet(server.running, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", tmp_path) as (fake, port):
        await node_that_serves_logs(server, "127.0.0.1", port)
        assert (await server.get(f"{PODS}/p/log")).status == 200
    assert fake.subjects == [((("commonName", CLIENT_NAME),),)]
    fetching = User(CLIENT_NAME, (AUTHENTICATED,))
    for path in ("/api/v1/secrets", "/api/v1/nodes", PODS, "/apis/rbac.authorization.k8s.io/v1/clusterroles"):
        assert (await server.send("GET", path, user=fetching)).status == 403
    assert (await server.send("POST", PODS, node_pod("q"), user=fetching)).status == 403


def own_certificate(running: RunningServer) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    made = self_signed(key, CertificateSubject("n1", "127.0.0.1"), datetime.now(UTC))
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(made, pem)


def of_another_authority(running: RunningServer) -> Pair:
    return Authority.create().issue_server("system:node:n1", ["n1", "127.0.0.1"])


def of_another_node(running: RunningServer) -> Pair:
    return running.credentials.authority.issue_server("system:node:n2", ["n2", "127.0.0.1"])


def for_clients_only(running: RunningServer) -> Pair:
    return running.credentials.authority.issue_client("system:node:n1", ("system:nodes",))


def long_expired(running: RunningServer) -> Pair:
    return running.credentials.authority.issue_server("system:node:n1", ["n1"], datetime(2020, 1, 1, tzinfo=UTC))


async def test_an_agent_without_its_nodes_certificate_is_told_nothing(server: Client, tmp_path: Path) -> None:
    ok = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfake"
    await server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    assert (await server.post(PODS, node_pod(nodeName="n1"))).status == 201
    for shown in (own_certificate, of_another_authority, of_another_node, for_clients_only, long_expired):
        async with kubelet(server.running, ok, tmp_path, shown(server.running)) as (fake, port):
            await serve_logs_at(server, "127.0.0.1", port)
            answer = await server.get(f"{PODS}/p/log")
        assert answer.status == 503, shown
        reason = "the agent of node n1 has no certificate of the cluster's authority for this name"
        assert reason in answer.body["message"]
        assert fake.asked == []


# --- serving certificates --------------------------------------------------------------------------------------------

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def a_signing_request(
    node: str = "n1", *, names: Sequence[x509.GeneralName] = (), organization: str = "system:nodes"
) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    wanted = x509.SubjectAlternativeName(names or [x509.DNSName(node)])
    made = builder.add_extension(wanted, critical=False).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


async def ask_for_certificate(
    server: Client, request: str, user: User, usages: Sequence[str] = (), patience_s: float = 10.0
) -> Document:
    """The request's status once it was answered, or what it is after a while."""
    spec = {
        "request": request,
        "signerName": "kubernetes.io/kubelet-serving",
        "usages": list(usages) or ["digital signature", "server auth"],
    }
    created = await server.send("POST", CSRS, {"metadata": {"generateName": "csr-"}, "spec": spec}, user=user)
    assert created.status == 201, created.body

    async def answered() -> Document:
        found = await server.get(f"{CSRS}/{created.body['metadata']['name']}")
        status: Document = found.body.get("status", {})
        return status

    with contextlib.suppress(AssertionError):
        return cast(Document, await eventually(answered, "an answer", within_s=patience_s))
    return await answered()


async def test_a_node_gets_a_serving_certificate_for_its_own_name(server: Client) -> None:
    addresses = [
        x509.IPAddress(ip_address(text)) for text in ("10.1.2.3", "127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1")
    ]
    status = await ask_for_certificate(server, a_signing_request(names=[x509.DNSName("n1"), *addresses]), NODE)
    assert [each["type"] for each in status["conditions"]] == ["Approved"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(status["certificate"]))
    authority = x509.load_pem_x509_certificate(server.running.credentials.authority.certificate_pem)
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    # Not the addresses at which the API server itself may be found.
    assert [str(each.value) for each in names] == ["n1", "10.1.2.3"]
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]


async def test_a_request_for_very_many_addresses_is_not_signed(server: Client) -> None:
    """Signing for 60,000 addresses took half a second of the loop. The node has approved it itself, so it is told why."""
    rights = User("root", ("system:masters", AUTHENTICATED))
    names = [x509.DNSName("n1"), *(x509.IPAddress(IPv4Address(0x0B000000 + number)) for number in range(20_000))]
    request = a_signing_request(names=names)
    with loop_stalls() as stalls:
        status = await ask_for_certificate(server, request, rights)
    assert [(each["type"], each["message"]) for each in status["conditions"]] == [
        ("Failed", "the request is longer than 16384 characters")
    ]
    assert stalls.longest_s < 0.05, stalls.longest
    assert await ask_for_certificate(server, request, NODE, patience_s=0.2) == {}
    assert "certificate" in await ask_for_certificate(server, a_signing_request(names=names[:100]), NODE)


async def test_a_kubelet_may_ask_with_another_users_rights(server: Client) -> None:
    status = await ask_for_certificate(server, a_signing_request(), User("root", ("system:masters", AUTHENTICATED)))
    assert "certificate" in status


ALICE = User("alice", (AUTHENTICATED,))


async def test_what_is_not_signed(server: Client) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"]}]
    await server.post(f"{roles}/clusterroles", {"metadata": {"name": "asks"}, "rules": rules})
    binding = {
        "metadata": {"name": "asks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "asks"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    }
    await server.post(f"{roles}/clusterrolebindings", binding)
    wrong: dict[str, tuple[str, User, Sequence[str]]] = {
        "another node": (a_signing_request("n2"), NODE, ()),
        "the server's name": (a_signing_request(names=[x509.DNSName("n1"), x509.DNSName("kubernetes")]), NODE, ()),
        "the name of another node": (a_signing_request(names=[x509.DNSName("n2")]), NODE, ()),
        "an email address": (a_signing_request(names=[x509.RFC822Name("a@b.c")]), NODE, ()),
        "another group": (a_signing_request(organization="system:masters"), NODE, ()),
        "for clients": (a_signing_request(), NODE, ("server auth", "client auth")),
        "asked by a tenant": (a_signing_request(), ALICE, ()),
    }
    answers = await asyncio.gather(*(ask_for_certificate(server, *case, patience_s=0.5) for case in wrong.values()))
    assert [name for name, status in zip(wrong, answers, strict=True) if "certificate" in status] == []
    # None of them, and nothing odder, keeps the next node from its certificate.
    for odd in (
        "",
        "AAAA",
        "bm8=",
        base64.b64encode(b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n").decode(),
        a_signing_request()[:-40],
    ):
        spec = {"request": odd, "signerName": "kubernetes.io/kubelet-serving", "usages": ["server auth"]}
        await server.send("POST", CSRS, {"metadata": {"generateName": "csr-"}, "spec": spec}, user=NODE)
    assert "certificate" in await ask_for_certificate(server, a_signing_request(), NODE)


# --- mirror pods -----------------------------------------------------------------------------------------------------


def a_mirror_pod(uid: str, **spec: Any) -> Document:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}
    pod = node_pod("mirror", nodeName="n1", **spec)
    pod["metadata"] |= {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]}
    return pod


async def test_a_mirror_pod_does_not_open_secrets_with_ephemeral_containers(server: Client) -> None:
    node = await server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    await server.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "key"}, "stringData": {"a": "b"}})
    env = [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "key", "key": "a"}}}]
    debugging = [{"name": "debug", "image": "i", "env": env}]
    pod = a_mirror_pod(node.body["metadata"]["uid"], ephemeralContainers=debugging)
    answer = await server.send("POST", PODS, pod, user=NODE)
    assert answer.status == 403
    assert 'node "n1" can not create pods that reference secrets' in answer.body["message"]
    answer = await server.send("GET", "/api/v1/namespaces/default/secrets/key", user=NODE)
    assert answer.status == 403


async def test_a_mirror_pod_does_not_open_the_account_of_a_namespace(server: Client) -> None:
    """The account names the Secrets for its images."""
    node = await server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    answer = await server.send("POST", PODS, a_mirror_pod(node.body["metadata"]["uid"]), user=NODE)
    assert answer.status == 201, answer.body
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    assert (await server.send("GET", account, user=NODE)).status == 403
    assert await ask_for_token(server, answer.body) == 403
    assert (await server.post(PODS, node_pod(nodeName="n1"))).status == 201
    assert (await server.send("GET", account, user=NODE)).status == 200


SECRET_REF = {"secretRef": {"name": "key"}}
# What a volume or a source of a projected volume makes its node read, and how the refusal names it.
VOLUMES: list[tuple[Document, str]] = [
    ({"csi": {"driver": "d", "nodePublishSecretRef": {"name": "key"}}}, "secrets"),
    ({"csi": {"driver": "d"}}, "csidrivers (via CSI volumes)"),
    ({"flexVolume": {"driver": "a/b", **SECRET_REF}}, "secrets"),
    ({"iscsi": {"targetPortal": "a", "iqn": "iqn.2001-04.com.example:x", "lun": 0, **SECRET_REF}}, "secrets"),
    ({"scaleIO": {"gateway": "g", "system": "s", "volumeName": "v", **SECRET_REF}}, "secrets"),
    ({"azureFile": {"secretName": "key", "shareName": "s"}}, "secrets"),
    ({"persistentVolumeClaim": {"claimName": "c"}}, "persistentvolumeclaims"),
    ({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}}}, "persistentvolumeclaims (via ephemeral volumes)"),
    ({"projected": {"sources": [{"clusterTrustBundle": {"name": "b", "path": "p"}}]}}, "clustertrustbundles"),
    ({"projected": {"sources": [{"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519", "credentialBundlePath": "p"}}]}}, "podcertificates"),
]  # fmt: skip


async def test_a_mirror_pod_has_no_volume_that_makes_its_node_read_something(server: Client) -> None:
    node = await server.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    for volume, words in VOLUMES:
        pod = a_mirror_pod(node.body["metadata"]["uid"], volumes=[{"name": "v", **volume}])
        answer = await server.send("POST", PODS, pod, user=NODE)
        assert answer.status == 403, volume
        assert f'node "n1" can not create pods that reference {words}' in answer.body["message"]


async def test_a_node_reads_the_secret_that_opens_a_volume_of_its_pod(server: Client) -> None:
    """The same walk decides what a mirror pod may not name and what a node may read."""
    secrets = "/api/v1/namespaces/default/secrets"
    await server.post(secrets, {"metadata": {"name": "key"}, "stringData": {"a": "b"}})
    await server.post(secrets, {"metadata": {"name": "other"}, "stringData": {"a": "b"}})
    volume = {"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "key"}}}
    assert (await server.post(PODS, node_pod(nodeName="n1", volumes=[volume]))).status == 201
    assert (await server.send("GET", f"{secrets}/key", user=NODE)).status == 200
    assert (await server.send("GET", f"{secrets}/other", user=NODE)).status == 403


# --- tokens ----------------------------------------------------------------------------------------------------------


async def ask_for_token(server: Client, pod: Document, *audiences: str) -> int:
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    request = {"spec": {"audiences": list(audiences), "boundObjectRef": bound}}
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    return (await server.send("POST", path, request, user=NODE)).status


async def test_a_node_asks_for_tokens_only_for_whom_its_pods_name(server: Client) -> None:
    """A token for another audience would make the node that account in front of whoever trusts the cluster's tokens."""
    sources = [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]
    named = node_pod("named", nodeName="n1", volumes=[{"name": "v", "projected": {"sources": sources}}])
    pod = (await server.post(PODS, named)).body
    assert await ask_for_token(server, pod, "vault") == 201
    assert await ask_for_token(server, pod) == 201  # the volume that every pod gets
    assert await ask_for_token(server, pod, "bank") == 403
    assert await ask_for_token(server, pod, "vault", "bank") == 403


async def test_a_node_asks_for_tokens_for_the_storage_drivers_of_its_pods(server: Client) -> None:
    driver = {"metadata": {"name": "csi.example.com"}, "spec": {"tokenRequests": [{"audience": "disks"}]}}
    assert (await server.post("/apis/storage.k8s.io/v1/csidrivers", driver)).status == 201
    size = {"storage": "1Gi"}
    csi = {"driver": "csi.example.com", "volumeHandle": "h"}
    volume = {
        "metadata": {"name": "pv"},
        "spec": {"capacity": size, "accessModes": ["ReadWriteOnce"], "csi": csi, "storageClassName": ""},
    }
    assert (await server.post("/api/v1/persistentvolumes", volume)).status == 201
    for name in ("claim", "generic-v"):
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": size}, "volumeName": "pv"}
        claims = "/api/v1/namespaces/default/persistentvolumeclaims"
        assert (await server.post(claims, {"metadata": {"name": name}, "spec": spec})).status == 201
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": size}}}
    kinds: dict[str, Document] = {
        "inline": {"csi": {"driver": "csi.example.com"}},
        "claimed": {"persistentVolumeClaim": {"claimName": "claim"}},
        "generic": {"ephemeral": {"volumeClaimTemplate": template}},
        "none": {"emptyDir": {}},
    }
    for name, source in kinds.items():
        answer = await server.post(PODS, node_pod(name, nodeName="n1", volumes=[{"name": "v", **source}]))
        assert answer.status == 201, answer.body
        assert await ask_for_token(server, answer.body, "disks") == (403 if name == "none" else 201), name
        assert await ask_for_token(server, answer.body, "bank") == 403


async def test_a_role_lets_a_node_ask_for_tokens_of_an_audience(server: Client) -> None:
    pod = (await server.post(PODS, node_pod(nodeName="n1"))).body
    assert await ask_for_token(server, pod, "bank") == 403
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rule = {"verbs": ["request-serviceaccounts-token-audience"], "apiGroups": [""], "resources": ["bank"]}
    await server.post(f"{rbac}/roles", {"metadata": {"name": "bank"}, "rules": [rule]})
    subject = {"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "Role", "name": "bank", "apiGroup": "rbac.authorization.k8s.io"}
    await server.post(f"{rbac}/rolebindings", {"metadata": {"name": "b"}, "subjects": [subject], "roleRef": role})
    assert await ask_for_token(server, pod, "bank") == 201


async def test_no_pod_is_created_with_ephemeral_containers(server: Client) -> None:
    answer = await server.post(PODS, node_pod(ephemeralContainers=[{"name": "debug", "image": "i"}]))
    assert answer.status == 422
    assert "spec.ephemeralContainers: Forbidden: cannot be set on create" in answer.body["message"]


# --- priority and protection -----------------------------------------------------------------------------------------


async def test_system_priority_classes_are_for_kube_system(server: Client) -> None:
    await server.post("/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "default"}})
    for name in ("system-node-critical", "system-cluster-critical"):
        answer = await server.post(PODS, node_pod(name, priorityClassName=name))
        assert answer.status == 403
        assert "kube-system" in answer.body["message"]
        allowed = await server.post("/api/v1/namespaces/kube-system/pods", node_pod(name, priorityClassName=name))
        assert allowed.status == 201


async def test_a_system_priority_class_is_granted_by_a_quota(server: Client) -> None:
    """As clusters do for the pods of drivers and operators."""
    named = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
    spec = {"hard": {"pods": "10"}, "scopeSelector": {"matchExpressions": [named]}}
    quotas = PODS.replace("/pods", "/resourcequotas")
    assert (await server.post(quotas, {"metadata": {"name": "drivers"}, "spec": spec})).status == 201
    granted = await server.post(PODS, node_pod("driver", priorityClassName="system-node-critical"))
    assert granted.status == 201
    assert granted.body["spec"]["priority"] == 2_000_001_000
    other = await server.post(PODS, node_pod("other", priorityClassName="system-cluster-critical"))
    assert other.status == 403


async def test_the_protection_of_a_claim_in_use_cannot_be_removed(server: Client) -> None:
    claim = {
        "metadata": {"name": "c", "finalizers": [PROTECTION, "example.com/own"]},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    assert (await server.post(CLAIMS, claim)).status == 201
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
    used = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    assert (await server.patch(f"{CLAIMS}/c/status", {"status": used})).status == 200
    for kept in ([], ["example.com/own"], None):
        answer = await server.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": kept}})
        assert answer.status == 403, kept
        assert PROTECTION in answer.body["message"]
    # Other finalizers, and the way a claim is released, stay open.
    assert (await server.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": [PROTECTION]}})).status == 200
    assert (await server.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": None}})).status == 200
    assert (await server.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": None}})).status == 200
