"""Acting as someone else: the Impersonate-* headers.

Two ways to be allowed. The old one: the verb `impersonate` on the user, on every group, on the uid and on every extra value.
The narrow one: `impersonate:<mode>` on the same, and `impersonate-on:<mode>:<verb>` on what the request itself asks,
where the mode is `serviceaccount`, `arbitrary-node` or `user-info`.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from msgspec.structs import replace

from dray.apiserver import errors
from dray.apiserver.request.authorization.authorizer import forbidden_error
from dray.apiserver.request.request_info import (
    ANONYMOUS,
    AUTHENTICATED,
    NODE_PREFIX,
    SERVICE_ACCOUNTS_GROUP,
    UNAUTHENTICATED,
    Attributes,
    Authorizer,
    User,
)

USER_HEADER = "impersonate-user"
GROUP_HEADER = "impersonate-group"
UID_HEADER = "impersonate-uid"
EXTRA_PREFIX = "impersonate-extra-"
AUTHENTICATION_GROUP = "authentication.k8s.io"


def requested_user(headers: Mapping[str, str]) -> User | None:
    """Who the headers ask to be; None without such headers. A header sent several times is joined by commas."""
    for name in headers:
        if name.startswith("impersonate-"):
            break
    else:
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
