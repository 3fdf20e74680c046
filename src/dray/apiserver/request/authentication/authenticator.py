"""Finds the user of a request: client certificate first, then bearer token (static or of a service account), then anonymous."""

import csv
import io
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from cryptography import x509

from dray.apiserver import errors
from dray.apiserver.request.authentication.json_web_token import InvalidToken
from dray.apiserver.request.authentication.service_accounts import ServiceAccountTokens
from dray.apiserver.request.request_info import ANONYMOUS, AUTHENTICATED, CREDENTIAL_EXTRA, Request, User
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
