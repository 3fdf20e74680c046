"""Who asks: certificates, tokens, impersonation, and everything that must not pass for one."""

import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from tests.apiserver.stored_objects import StoredObjects

from dray.apiserver.errors import ApiError
from dray.apiserver.request.authentication.authenticator import (
    Authenticator,
    StaticTokens,
    bearer_token,
    impersonate,
    requested_user,
)
from dray.apiserver.request.authentication.json_web_token import (
    InvalidToken,
    SigningKey,
)
from dray.apiserver.request.authentication.service_account_tokens import (
    BoundObject,
    ServiceAccountTokens,
    TokenWish,
)
from dray.apiserver.request.authentication.token_requests import TokenRequests
from dray.apiserver.request.request_info import ANONYMOUS, Attributes, Decision, Request, User
from dray.apiserver.security.certificates import Authority
from dray.apiserver.security.credentials import load_credentials
from dray.apiserver.watch.stored_object import object_key, to_value
from dray.atomic_files import write_private
from dray.clock import SimulatedClock
from dray.store.interface import Put, Store
from dray.store.sqlite import SqliteStore

Document = dict[str, Any]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = SqliteStore(tmp_path / "dray.db")
    yield store
    await store.close()


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock(datetime(2024, 6, 1, tzinfo=UTC))


async def put(store: Store, plural: str, kind: str, namespace: str, name: str, uid: str, **body: Any) -> Document:
    document = {
        "kind": kind,
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": uid, **({"namespace": namespace} if namespace else {})},
        **body,
    }
    await store.commit([Put(object_key("", plural, namespace, name), to_value(document))])
    return document


@pytest.fixture
def tokens(store: Store, clock: SimulatedClock) -> ServiceAccountTokens:
    return ServiceAccountTokens(SigningKey.create(), StoredObjects(store), clock, lambda: "id-1")


@pytest.fixture
def authenticator(tokens: ServiceAccountTokens, clock: SimulatedClock) -> Authenticator:
    static = StaticTokens({"secret": User("robot", ("ops",), "7")})
    return Authenticator(clock, tokens, static, anonymous=False)


def der(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


async def refused(authenticator: Authenticator, request: Request) -> None:
    with pytest.raises(ApiError) as error:
        await authenticator.authenticate(request)
    assert error.value.code == 401


# --- certificates ----------------------------------------------------------------------------------------------------


async def test_a_certificate_names_user_and_groups(authenticator: Authenticator, clock: SimulatedClock) -> None:
    pair = Authority.create(now=clock.now()).issue_client("alice", ("dev", "ops"), clock.now())
    user = await authenticator.authenticate(Request("GET", "/", client_certificate=der(pair.certificate_pem)))
    assert (user.name, user.groups) == ("alice", ("dev", "ops", "system:authenticated"))


async def test_a_certificate_that_has_expired_on_an_open_connection_is_refused(
    authenticator: Authenticator, clock: SimulatedClock
) -> None:
    pair = Authority.create(now=clock.now()).issue_client("alice", (), clock.now())
    request = Request("GET", "/", client_certificate=der(pair.certificate_pem))
    await authenticator.authenticate(request)
    await clock.advance(366 * 24 * 3600)
    await refused(authenticator, request)


async def test_a_certificate_without_a_name_or_for_servers_is_nobody(
    authenticator: Authenticator, clock: SimulatedClock
) -> None:
    authority = Authority.create(now=clock.now())
    nameless = x509.load_pem_x509_certificate(authority.certificate_pem)
    assert nameless.subject.rfc4514_string() == "CN=dray-ca"
    only_server = _server_only(authority, clock)
    await refused(authenticator, Request("GET", "/", client_certificate=only_server))


def _server_only(authority: Authority, clock: SimulatedClock) -> bytes:
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
    pair = authority._issue(subject, (ExtendedKeyUsageOID.SERVER_AUTH,), [], clock.now())
    return der(pair.certificate_pem)


# --- static tokens, anonymous ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer   abc ", "abc"),
        ("Bearer ", None),
        ("Basic abc", None),
        ("Bearerabc", None),
        ("", None),
    ],
)
def test_bearer_headers(header: str, token: str | None) -> None:
    assert bearer_token(header) == token


async def test_static_tokens(authenticator: Authenticator) -> None:
    user = await authenticator.authenticate(Request("GET", "/", headers={"authorization": "Bearer secret"}))
    assert (user.name, user.uid) == ("robot", "7")
    await refused(authenticator, Request("GET", "/", headers={"authorization": "Bearer Secret"}))
    await refused(authenticator, Request("GET", "/", headers={"authorization": "Bearer secret\udc80"}))


def test_a_token_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text('# comment\nt1,alice,1,"dev,ops"\nt2,bob,2\n')
    tokens = StaticTokens.read(path)
    alice, bob = tokens.user("t1"), tokens.user("t2")
    assert alice is not None
    assert alice.groups == ("dev", "ops", "system:authenticated")
    assert bob is not None
    assert bob.groups == ("system:authenticated",)
    path.write_text("t1,alice\n")
    with pytest.raises(ValueError, match=r"tokens\.csv:1: expected token,user,uid"):
        StaticTokens.read(path)


async def test_without_credentials_it_is_anonymous_or_nobody(
    tokens: ServiceAccountTokens, clock: SimulatedClock
) -> None:
    strict, open_one = Authenticator(clock, tokens, anonymous=False), Authenticator(clock, tokens, anonymous=True)
    await refused(strict, Request("GET", "/"))
    assert await open_one.authenticate(Request("GET", "/")) == ANONYMOUS
    await refused(open_one, Request("GET", "/", headers={"authorization": "Bearer nonsense"}))


# --- service account tokens ------------------------------------------------------------------------------------------


async def test_a_token_speaks_for_its_account_until_it_expires(
    store: Store, tokens: ServiceAccountTokens, authenticator: Authenticator, clock: SimulatedClock
) -> None:
    await put(store, "serviceaccounts", "ServiceAccount", "ns", "robot", "uid-sa")
    token, expires = tokens.issue(TokenWish("ns", "robot", "uid-sa", 600))
    assert expires == clock.now() + timedelta(seconds=600)
    user = await authenticator.authenticate(Request("GET", "/", headers={"authorization": f"Bearer {token}"}))
    assert user.name == "system:serviceaccount:ns:robot"
    assert user.uid == "uid-sa"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    assert user.extra == {"authentication.kubernetes.io/credential-id": ("JTI=id-1",)}
    await clock.advance(600)
    await refused(authenticator, Request("GET", "/", headers={"authorization": f"Bearer {token}"}))


async def test_a_token_dies_with_its_account_and_is_not_inherited(store: Store, tokens: ServiceAccountTokens) -> None:
    await put(store, "serviceaccounts", "ServiceAccount", "ns", "robot", "uid-1")
    token, _ = tokens.issue(TokenWish("ns", "robot", "uid-1", 600))
    await tokens.user(token)
    await put(store, "serviceaccounts", "ServiceAccount", "ns", "robot", "uid-2")
    with pytest.raises(InvalidToken, match="gone"):
        await tokens.user(token)


async def test_a_token_bound_to_a_pod_tells_its_node_and_dies_with_the_pod(
    store: Store, tokens: ServiceAccountTokens, clock: SimulatedClock
) -> None:
    await put(store, "serviceaccounts", "ServiceAccount", "ns", "driver", "uid-sa")
    pod = await put(store, "pods", "Pod", "ns", "p", "uid-p", spec={"nodeName": "n1", "serviceAccountName": "driver"})
    await put(store, "nodes", "Node", "", "n1", "uid-n")
    requests = TokenRequests(tokens, StoredObjects(store))
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "uid-p"}
    answer = await requests.answer("ns", "driver", {"spec": {"boundObjectRef": reference}})
    token = answer["status"]["token"]
    user, _ = await tokens.user(token)
    assert user.extra["authentication.kubernetes.io/node-name"] == ("n1",)
    assert user.extra["authentication.kubernetes.io/node-uid"] == ("uid-n",)
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    pod["metadata"]["deletionTimestamp"] = "2024-06-01T00:00:00Z"
    await store.commit([Put(object_key("", "pods", "ns", "p"), to_value(pod))])
    await tokens.user(token)
    await clock.advance(61)
    with pytest.raises(InvalidToken, match="being deleted"):
        await tokens.user(token)


async def test_tokens_of_other_audiences_are_no_credentials_here(store: Store, tokens: ServiceAccountTokens) -> None:
    await put(store, "serviceaccounts", "ServiceAccount", "ns", "robot", "uid-sa")
    token, _ = tokens.issue(TokenWish("ns", "robot", "uid-sa", 600, ("vault",)))
    with pytest.raises(InvalidToken, match="audience"):
        await tokens.user(token)
    _, audiences = await tokens.user(token, ["vault", "other"])
    assert audiences == ("vault",)


NOT_UTF_8 = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":"\xff"}').rstrip(b"=").decode()


def tampered(token: str, part: int, **changes: Any) -> str:
    parts = token.split(".")
    content = json.loads(base64.urlsafe_b64decode(parts[part] + "=="))
    content |= changes
    parts[part] = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
    return ".".join(parts)


async def test_forged_tokens_are_refused(store: Store, tokens: ServiceAccountTokens) -> None:
    await put(store, "serviceaccounts", "ServiceAccount", "ns", "robot", "uid-sa")
    await put(store, "serviceaccounts", "ServiceAccount", "kube-system", "admin", "uid-admin")
    token, _ = tokens.issue(TokenWish("ns", "robot", "uid-sa", 600))
    header, body, signature = token.split(".")
    stranger, _ = ServiceAccountTokens(SigningKey.create(), tokens._objects, tokens._clock, lambda: "x").issue(
        TokenWish("ns", "robot", "uid-sa", 600)
    )
    forged = [
        tampered(token, 1, exp=9999999999),
        tampered(token, 1, sub="system:serviceaccount:kube-system:admin"),
        tampered(token, 0, alg="none"),
        tampered(token, 0, alg="none").rpartition(".")[0] + ".",
        tampered(token, 0, alg="HS256"),
        f"{header}.{body}.",
        f"{header}.{body}",
        f"{header}.{body}.{signature}.{signature}",
        f"{header}.{body}.{'A' * len(signature)}",
        stranger,
        "..",
        "a.b.c",
        "\udc80.b.c",
        f"{NOT_UTF_8}.{body}.{signature}",
        f"{header}.{NOT_UTF_8}.{signature}",
        f"{header}.{body}.{signature[:40]}={signature[40:]}",
        tampered(token, 0, crit=["exp"]),
        "x" * 100_000,
        "",
    ]
    for attempt in forged:
        with pytest.raises(InvalidToken):
            await tokens.user(attempt)
    with pytest.raises(InvalidToken):
        await tokens.user(tokens._key.sign({"iss": "https://kubernetes.default.svc"}))
    with pytest.raises(InvalidToken):
        await tokens.user(tokens._key.sign([]))  # type: ignore[arg-type]


async def test_token_requests_refuse_what_makes_no_sense(store: Store, tokens: ServiceAccountTokens) -> None:
    await put(store, "serviceaccounts", "ServiceAccount", "ns", "robot", "uid-sa")
    await put(store, "pods", "Pod", "ns", "other", "uid-p", spec={"serviceAccountName": "someone"})
    requests = TokenRequests(tokens, StoredObjects(store))

    async def code(account: str, spec: Any) -> tuple[int, str]:
        with pytest.raises(ApiError) as error:
            await requests.answer("ns", account, {"spec": spec})
        return error.value.code, error.value.message

    assert (await code("nobody", {}))[0] == 404
    assert await code("robot", {"expirationSeconds": 5}) == (
        422,
        'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a '
        "duration less than 10 minutes",
    )
    assert (await code("robot", {"expirationSeconds": 2**33}))[0] == 422
    assert (await code("robot", {"expirationSeconds": "soon"}))[0] == 400
    pod = {"kind": "Pod", "apiVersion": "v1", "name": "other"}
    assert (await code("robot", {"boundObjectRef": pod}))[0] == 400
    assert (await code("robot", {"boundObjectRef": {**pod, "name": "none"}}))[0] == 404
    assert (await code("robot", {"boundObjectRef": {**pod, "uid": "wrong"}}))[0] == 409
    assert (await code("robot", {"boundObjectRef": {"kind": "Deployment", "name": "x"}}))[0] == 400


def test_bound_objects_are_part_of_the_token(tokens: ServiceAccountTokens) -> None:
    token, _ = tokens.issue(TokenWish("ns", "a", "u", 600, bound=BoundObject("Secret", "s", "us")))
    assert tokens._key.verify(token)["kubernetes.io"]["secret"] == {"name": "s", "uid": "us"}


# --- impersonation ---------------------------------------------------------------------------------------------------


class Allows:
    """Says yes to the questions it was told about: (verb, resource, name)."""

    def __init__(self, *questions: tuple[str, str, str]) -> None:
        self._questions = set(questions)

    async def authorize(self, attributes: Attributes) -> Decision:
        return Decision((attributes.verb, attributes.full_resource, attributes.name) in self._questions)


ASKING = Attributes(User("mallory", ("system:authenticated",)), "list", "", "v1", "pods", "", "ns")


def test_no_header_no_impersonation() -> None:
    assert requested_user({"accept": "x"}) is None


def test_a_group_without_a_user_makes_no_sense() -> None:
    with pytest.raises(ApiError, match="without impersonating a user name") as error:
        requested_user({"impersonate-group": "team"})
    assert error.value.code == 400
    assert 'Groups:[]string{"team"}, Extra:map[string][]string(nil)}' in error.value.message


async def test_every_part_taken_over_needs_permission() -> None:
    headers = {
        "impersonate-user": "alice",
        "impersonate-group": "dev, system:masters",
        "impersonate-uid": "7",
        "impersonate-extra-scopes": "view",
    }
    wanted = requested_user(headers)
    assert wanted is not None
    full = [
        ("impersonate", "users", "alice"),
        ("impersonate", "groups", "dev"),
        ("impersonate", "groups", "system:masters"),
        ("impersonate", "uids", "7"),
        ("impersonate", "userextras/scopes", "view"),
    ]
    user = await impersonate(ASKING, wanted, Allows(*full))
    assert user == User("alice", ("dev", "system:masters", "system:authenticated"), "7", {"scopes": ("view",)})
    for left_out in full:
        with pytest.raises(ApiError) as error:
            await impersonate(ASKING, wanted, Allows(*(entry for entry in full if entry != left_out)))
        assert error.value.code == 403


async def test_the_narrow_way_needs_both_the_user_and_the_action() -> None:
    wanted = User("alice")
    on_action = ("impersonate-on:user-info:list", "pods", "")
    on_user = ("impersonate:user-info", "users", "alice")
    assert (await impersonate(ASKING, wanted, Allows(on_action, on_user))).name == "alice"
    with pytest.raises(ApiError, match="cannot impersonate-on:user-info:list resource"):
        await impersonate(ASKING, wanted, Allows(on_user))
    with pytest.raises(ApiError, match="cannot impersonate:user-info resource"):
        await impersonate(ASKING, wanted, Allows(on_action))


async def test_an_impersonated_service_account_is_in_its_groups() -> None:
    wanted = User("system:serviceaccount:ns:robot")
    user = await impersonate(ASKING, wanted, Allows(("impersonate", "serviceaccounts", "robot")))
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")


async def test_impersonating_anonymous_gives_nothing_away() -> None:
    user = await impersonate(ASKING, User("system:anonymous"), Allows(("impersonate", "users", "system:anonymous")))
    assert user.groups == ("system:unauthenticated",)


# --- credentials on disk ---------------------------------------------------------------------------------------------


async def test_credentials_are_made_once_and_kept(store: Store, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    first = await load_credentials(store, tmp_path, ["10.1.2.3"], now)
    again = await load_credentials(store, tmp_path, ["10.1.2.3"], now)
    assert again.server == first.server
    assert again.admin == first.admin
    assert again.authority == first.authority
    for name in ("apiserver.key", "admin.key", "sa.key"):
        assert (tmp_path / "pki" / name).stat().st_mode & 0o777 == 0o600
    more = await load_credentials(store, tmp_path, ["10.9.9.9"], now)
    assert more.server != first.server
    assert more.authority == first.authority
    renewed = await load_credentials(store, tmp_path, ["10.9.9.9"], now + timedelta(days=350))
    assert renewed.admin != first.admin
    first.server_context()


async def test_another_server_on_the_same_store_has_the_same_authority(store: Store, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    one = await load_credentials(store, tmp_path / "one", [], now)
    other = await load_credentials(store, tmp_path / "other", [], now)
    assert one.authority == other.authority
    assert one.token_key.key_id == other.token_key.key_id


def test_private_files_are_private_from_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kubeconfig"
    write_private(path, b"one")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    write_private(path, b"two")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == b"two"
