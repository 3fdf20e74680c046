"""Issues and checks service account tokens. A token that is bound to an object is valid only while the object exists."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dray.apiserver.request.authentication.json_web_token import (
    InvalidToken,
    SigningKey,
)
from dray.apiserver.request.request_info import (
    AUTHENTICATED,
    CREDENTIAL_EXTRA,
    NODE_NAME_EXTRA,
    NODE_UID_EXTRA,
    POD_NAME_EXTRA,
    POD_UID_EXTRA,
    SERVICE_ACCOUNTS_GROUP,
    Document,
    User,
    service_account_user_name,
)
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.clock import Clock

ISSUER = "https://kubernetes.default.svc"
NAMESPACE_CLAIM = "kubernetes.io"
# Objects that are being deleted keep their tokens alive this long.
GRACE_S = 60

BOUND_PLURALS = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


@dataclass(frozen=True, slots=True)
class BoundObject:
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class TokenWish:
    """What a token is asked for: for whom, how long, for which audiences, bound to what."""

    namespace: str
    account: str
    account_uid: str
    lifetime_s: int
    audiences: tuple[str, ...] = (ISSUER,)
    bound: BoundObject | None = None
    # A token bound to a pod also names the pod's node.
    node: BoundObject | None = None


class ServiceAccountTokens:
    def __init__(self, key: SigningKey, objects: ObjectLookup, clock: Clock, new_id: Callable[[], str]) -> None:
        self._key = key
        self._objects = objects
        self._clock = clock
        self._new_id = new_id

    def issue(self, wish: TokenWish) -> tuple[str, datetime]:
        """A token, and when it expires."""
        now = int(self._clock.now().timestamp())
        kubernetes: Document = {
            "namespace": wish.namespace,
            "serviceaccount": {"name": wish.account, "uid": wish.account_uid},
        }
        for bound in (wish.bound, wish.node):
            if bound:
                kubernetes[bound.kind.lower()] = {"name": bound.name, "uid": bound.uid}
        claims: Document = {
            "aud": list(wish.audiences),
            "exp": now + wish.lifetime_s,
            "iat": now,
            "iss": ISSUER,
            "jti": self._new_id(),
            NAMESPACE_CLAIM: kubernetes,
            "nbf": now,
            "sub": service_account_user_name(wish.namespace, wish.account),
        }
        expires = datetime.fromtimestamp(now + wish.lifetime_s, self._clock.now().tzinfo)
        return self._key.sign(claims), expires

    async def user(self, token: str, audiences: Sequence[str] = (ISSUER,)) -> tuple[User, tuple[str, ...]]:
        """The account a token speaks for, and which of the wanted audiences it is meant for. Raises InvalidToken."""
        claims = self._key.verify(token)
        matched = self._checked_audiences(claims, audiences)
        self._check_times(claims)
        private = claims.get(NAMESPACE_CLAIM)
        if not isinstance(private, dict):
            raise InvalidToken("no private claims")
        namespace, account = _text(private, "namespace"), private.get("serviceaccount")
        if not isinstance(account, dict):
            raise InvalidToken("no service account")
        name, uid = _text(account, "name"), _text(account, "uid")
        if claims.get("sub") != service_account_user_name(namespace, name):
            raise InvalidToken("the subject is another account")
        await self._check_exists("serviceaccounts", namespace, name, uid)
        extra = await self._bound_extra(private, namespace)
        extra[CREDENTIAL_EXTRA] = (f"JTI={claims.get('jti', '')}",)
        groups = (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{namespace}", AUTHENTICATED)
        return User(service_account_user_name(namespace, name), groups, uid, extra), matched

    def _checked_audiences(self, claims: Document, wanted: Sequence[str]) -> tuple[str, ...]:
        if claims.get("iss") != ISSUER:
            raise InvalidToken("issued by someone else")
        granted = claims.get("aud")
        granted = [granted] if isinstance(granted, str) else granted
        if not isinstance(granted, list):
            raise InvalidToken("no audience")
        matched = tuple(audience for audience in wanted if audience in granted)
        if not matched:
            raise InvalidToken("meant for another audience")
        return matched

    def _check_times(self, claims: Document) -> None:
        now = self._clock.now().timestamp()
        expires, not_before = claims.get("exp"), claims.get("nbf", 0)
        if not isinstance(expires, int | float) or not isinstance(not_before, int | float):
            raise InvalidToken("no times")
        if now >= expires:
            raise InvalidToken("expired")
        if now < not_before - 10:
            raise InvalidToken("not valid yet")

    async def _check_exists(self, plural: str, namespace: str, name: str, uid: str) -> Document:
        found = await self._objects.get("", plural, namespace, name)
        if found is None or found["metadata"].get("uid") != uid:
            raise InvalidToken(f"{plural} {name} is gone")
        deleted = found["metadata"].get("deletionTimestamp")
        if deleted and self._clock.now().timestamp() > datetime.fromisoformat(deleted).timestamp() + GRACE_S:
            raise InvalidToken(f"{plural} {name} is being deleted")
        return found

    async def _bound_extra(self, private: Document, namespace: str) -> dict[str, tuple[str, ...]]:
        extra: dict[str, tuple[str, ...]] = {}
        pod, node, secret = (private.get(kind) for kind in ("pod", "node", "secret"))
        if isinstance(secret, dict):
            await self._check_exists("secrets", namespace, _text(secret, "name"), _text(secret, "uid"))
        if isinstance(pod, dict):
            await self._check_exists("pods", namespace, _text(pod, "name"), _text(pod, "uid"))
            extra[POD_NAME_EXTRA] = (_text(pod, "name"),)
            extra[POD_UID_EXTRA] = (_text(pod, "uid"),)
        if isinstance(node, dict):
            if not isinstance(pod, dict):
                # Bound to the node itself: gone with it. With a pod the node is only told.
                await self._check_exists("nodes", "", _text(node, "name"), _text(node, "uid"))
            extra[NODE_NAME_EXTRA] = (_text(node, "name"),)
            if node.get("uid"):
                extra[NODE_UID_EXTRA] = (_text(node, "uid"),)
        return extra


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidToken(f"no {name}")
    return value
