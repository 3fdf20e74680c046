"""Everything that decides who may do what, put together for one server."""

import secrets
import string
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dray.apiserver.guard.guarded_commit import GuardedCommit
from dray.apiserver.request.authentication.authenticator import Authenticator, StaticTokens
from dray.apiserver.request.authentication.service_accounts import ServiceAccountTokens
from dray.apiserver.request.authentication.token_requests import TokenRequests
from dray.apiserver.request.authorization.authorizer import ServerAuthorizer
from dray.apiserver.request.authorization.reviews import Reviews
from dray.apiserver.security.bootstrap import bootstrap
from dray.apiserver.security.credentials import (
    Credentials,
    load_credentials,
)
from dray.apiserver.watch.object_reader import Objects
from dray.apiserver.watch.store_mirror import Mirror
from dray.apiserver.write.admission.chain import Chain
from dray.apiserver.write.admission.default_plugins import (
    Surroundings,
    default_chain,
)
from dray.apiserver.write.policies.index import PolicyIndex
from dray.clock import Clock
from dray.features import FeatureGates
from dray.store.interface import Store

# As Kubernetes appends them to generated names: no vowels, no look-alikes.
_SUFFIX_LETTERS = "".join(sorted(set(string.ascii_lowercase + string.digits) - set("aeiou013y")))


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """`anonymous`: whether a request without credentials is `system:anonymous` (which may do next to nothing) or 401."""

    anonymous: bool = True
    token_file: Path | None = None
    quota_counts_claims: bool = False


@dataclass(frozen=True, slots=True)
class Security:
    credentials: Credentials
    authenticator: Authenticator
    authorizer: ServerAuthorizer
    admission: Chain
    guard: GuardedCommit
    reviews: Reviews
    token_requests: TokenRequests
    mirrors: tuple[Mirror, ...] = ()

    async def stop(self) -> None:
        for mirror in self.mirrors:
            await mirror.stop()
        await self.guard.stop()
        await self.authorizer.stop()


async def prepare_store(store: Store, data: Path, clock: Clock, hosts: Iterable[str] = ()) -> Credentials:
    """First-start objects and credentials; to be called before the server's caches are filled."""
    credentials = await load_credentials(store, data, hosts, clock.now())
    await bootstrap(store, clock, _new_uid)
    return credentials


async def start_security(
    store: Store,
    objects: Objects,
    credentials: Credentials,
    clock: Clock,
    gates: FeatureGates,
    options: SecurityOptions,
) -> Security:
    authorizer = await ServerAuthorizer.start(store)
    guard = await GuardedCommit.start(store)
    policies, policy_mirror = await PolicyIndex.start(store)
    tokens = ServiceAccountTokens(credentials.token_key, objects, clock, _new_uid)
    static = StaticTokens.read(options.token_file) if options.token_file else None
    authenticator = Authenticator(clock, tokens, static, anonymous=options.anonymous)
    surroundings = Surroundings(
        store=store,
        objects=objects,
        authorizer=authorizer,
        policies=policies,
        gates=gates,
        new_suffix=_new_suffix,
        quota_counts_claims=options.quota_counts_claims,
    )
    return Security(
        credentials=credentials,
        authenticator=authenticator,
        authorizer=authorizer,
        admission=default_chain(surroundings),
        guard=guard,
        reviews=Reviews(authorizer, authorizer.rbac, authenticator, tokens, clock),
        token_requests=TokenRequests(tokens, objects),
        mirrors=(policy_mirror,),
    )


def _new_uid() -> str:
    return str(uuid.uuid4())


def _new_suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5))
