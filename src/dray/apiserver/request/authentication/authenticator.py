"""Finds the user that a request acts as.

The credentials come first: client certificate, then bearer token (static or of a service account), then anonymous. Then the Impersonate-* headers, which are
allowed in two ways. The old one: the verb `impersonate` on the user, on every group, on the uid and on every extra value. The narrow one:
`impersonate:<mode>` on the same, and `impersonate-on:<mode>:<verb>` on the request itself, where the mode is `serviceaccount`, `arbitrary-node` or `user-info`."""

import csv
import io
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

from cryptography import x509
from msgspec.structs import replace

from dray.apiserver import errors
from dray.apiserver.request.authentication.json_web_token import InvalidToken
from dray.apiserver.request.authentication.service_account_tokens import ServiceAccountTokens
from dray.apiserver.request.authorization.authorizer import forbidden_error
from dray.apiserver.request.request_info import (
    ANONYMOUS,
    AUTHENTICATED,
    CREDENTIAL_EXTRA,
    NODE_PREFIX,
    SERVICE_ACCOUNTS_GROUP,
    UNAUTHENTICATED,
    Attributes,
    Authorizer,
    Request,
    User,
)
from dray.apiserver.security.certificates import allows_clients, subject_of
from dray.clock import Clock


class StaticTokens:
    """Known tokens by their digest: a lookup takes as long for a good guess as for a bad one."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = {_digest(token): user for token, user in users.items()}

    @staticmethod
    def read(path: Path) -> "StaticTokens":
        """Raises ValueError with file and line for what cannot be read as a token."""
        users: dict[str, User] = {}
        for number, row in enumerate(csv.reader(io.StringIO(path.read_text())), start=1):
            if not row or row[0].startswith("#"):
                continue
            fields = [field.strip() for field in row]
            if len(fields) < 3 or not fields[0] or not fields[1]:
                raise ValueError(f"{path}:{number}: expected token,user,uid and optionally groups")
            groups = [group.strip() for group in fields[3].split(",")] if len(fields) > 3 else []
            users[fields[0]] = User(fields[1], (*(group for group in groups if group), AUTHENTICATED), fields[2])
        return StaticTokens(users)

    def user(self, token: str) -> User | None:
        return self._users.get(_digest(token))


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


KNOWN_CERTIFICATES = 1024


class Authenticator:
    """Answers a User, or raises 401.

    Without credentials a request is refused, unless `anonymous` is on: then it is the user `system:anonymous`, which by
    default may see whether the server is healthy and which version it is, and nothing else.
    """

    def __init__(
        self,
        clock: Clock,
        service_accounts: ServiceAccountTokens,
        static_tokens: StaticTokens | None = None,
        *,
        anonymous: bool = True,
    ) -> None:
        self._clock = clock
        self._service_accounts = service_accounts
        self._static_tokens = static_tokens or StaticTokens({})
        self._anonymous = anonymous
        self._certificates: OrderedDict[bytes, tuple[User | None, datetime]] = OrderedDict()

    async def authenticate(self, request: Request) -> User:
        if request.user is not None:
            return request.user
        if request.client_certificate and (user := self._certificate_user(request.client_certificate)):
            return user
        token = bearer_token(request.headers.get("authorization", ""))
        if token is not None:
            user = await self.token_user(token)
            if user is None:
                raise errors.unauthorized()
            return user
        if request.client_certificate or not self._anonymous:
            raise errors.unauthorized()
        return ANONYMOUS

    async def token_user(self, token: str) -> User | None:
        if user := self._static_tokens.user(token):
            return user
        try:
            user, _ = await self._service_accounts.user(token)
        except InvalidToken:
            return None
        return user

    def _certificate_user(self, certificate: bytes) -> User | None:
        """The TLS layer has checked that our authority signed it; a long connection may outlive it."""
        known = self._certificates.get(certificate)
        if known is None:
            known = _read_certificate(certificate)
            self._certificates[certificate] = known
            if len(self._certificates) > KNOWN_CERTIFICATES:
                self._certificates.popitem(last=False)
        user, expires = known
        return user if self._clock.now() < expires else None


def _read_certificate(data: bytes) -> tuple[User | None, datetime]:
    certificate = x509.load_der_x509_certificate(data)
    name, groups = subject_of(certificate)
    if not name or not allows_clients(certificate):
        return None, certificate.not_valid_after_utc
    credential = {CREDENTIAL_EXTRA: (f"X509SHA256={sha256(data).hexdigest()}",)}
    return User(name, (*groups, AUTHENTICATED), extra=credential), certificate.not_valid_after_utc


def bearer_token(header: str) -> str | None:
    """The token of an Authorization header; None if the header speaks of something else."""
    scheme, _, token = header.strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None


USER_HEADER = "impersonate-user"
GROUP_HEADER = "impersonate-group"
UID_HEADER = "impersonate-uid"
EXTRA_PREFIX = "impersonate-extra-"
AUTHENTICATION_GROUP = "authentication.k8s.io"


def requested_user(headers: Mapping[str, str]) -> User | None:
    """Who the headers ask to be; None without such headers. A header sent several times is joined by commas."""
    if "impersonate-" not in "\n".join(headers):
        return None
    groups = _values(headers.get(GROUP_HEADER, ""))
    extra = {
        unquote(name.removeprefix(EXTRA_PREFIX)).lower(): _values(value)
        for name, value in headers.items()
        if name.startswith(EXTRA_PREFIX)
    }
    user = User(headers.get(USER_HEADER, ""), groups, headers.get(UID_HEADER, ""), extra)
    if not (user.name or user.groups or user.uid or user.extra):
        return None
    if not user.name:
        raise errors.bad_request(f"requested {_described(user)} without impersonating a user name")
    return user


def _values(header: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in header.split(",") if part.strip())


def _described(user: User) -> str:
    """As Kubernetes prints it; clients compare the text."""
    groups = f"[]string{{{', '.join(_quoted(group) for group in user.groups)}}}" if user.groups else "[]string(nil)"
    extra = "map[string][]string(nil)"
    if user.extra:
        pairs = (
            f"{_quoted(key)}:[]string{{{', '.join(map(_quoted, values))}}}"
            for key, values in sorted(user.extra.items())
        )
        extra = f"map[string][]string{{{', '.join(pairs)}}}"
    return f'&user.DefaultInfo{{Name:"", UID:{_quoted(user.uid)}, Groups:{groups}, Extra:{extra}}}'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


async def impersonate(attributes: Attributes, wanted: User, authorizer: Authorizer) -> User:
    """The user to go on as. Raises 403 if the asking user may not."""
    if not await _allowed(attributes, wanted, authorizer, "impersonate"):
        await _check_narrow(attributes, wanted, authorizer)
    groups = wanted.groups
    account = wanted.service_account
    if account and not groups:
        groups = (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{account[0]}")
    if wanted.name == ANONYMOUS.name:
        added = UNAUTHENTICATED
    else:
        added = AUTHENTICATED
    if added not in groups and not {AUTHENTICATED, UNAUTHENTICATED} & set(groups):
        groups = (*groups, added)
    return User(wanted.name, groups, wanted.uid, wanted.extra)


async def _allowed(attributes: Attributes, wanted: User, authorizer: Authorizer, verb: str) -> bool:
    for question in _questions(attributes.user, wanted, verb):
        if not (await authorizer.authorize(question)).allowed:
            return False
    return True


def _questions(asking: User, wanted: User, verb: str) -> Iterator[Attributes]:
    """One permission per thing that is taken over. The narrow verbs live in the authentication group throughout."""
    group = "" if verb == "impersonate" else AUTHENTICATION_GROUP
    account = wanted.service_account
    if account:
        yield Attributes(asking, verb, group, resource="serviceaccounts", namespace=account[0], name=account[1])
    elif verb == "impersonate:arbitrary-node":
        yield Attributes(asking, verb, group, resource="nodes", name=wanted.name.removeprefix(NODE_PREFIX))
    else:
        yield Attributes(asking, verb, group, resource="users", name=wanted.name)
    for name in wanted.groups:
        yield Attributes(asking, verb, group, resource="groups", name=name)
    if wanted.uid:
        yield Attributes(asking, verb, AUTHENTICATION_GROUP, resource="uids", name=wanted.uid)
    for key, values in wanted.extra.items():
        for value in values:
            yield Attributes(asking, verb, AUTHENTICATION_GROUP, resource="userextras", subresource=key, name=value)


async def _check_narrow(attributes: Attributes, wanted: User, authorizer: Authorizer) -> None:
    mode = _mode(wanted)
    on_request = replace(attributes, verb=f"impersonate-on:{mode}:{attributes.verb}")
    decision = await authorizer.authorize(on_request)
    if not decision.allowed:
        raise forbidden_error(on_request, decision)
    for question in _questions(attributes.user, wanted, f"impersonate:{mode}"):
        decision = await authorizer.authorize(question)
        if not decision.allowed:
            raise forbidden_error(question, decision)


def _mode(wanted: User) -> str:
    if wanted.service_account:
        return "serviceaccount"
    if wanted.name.startswith(NODE_PREFIX):
        return "arbitrary-node"
    return "user-info"
