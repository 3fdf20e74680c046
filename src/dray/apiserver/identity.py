"""Who asks: the user a request acts for."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
NODE_PREFIX = "system:node:"
NODES_GROUP = "system:nodes"


@dataclass(frozen=True, slots=True)
class User:
    """`extra` holds what the credentials say besides name and groups, such as the node a token is bound to."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = MappingProxyType({})


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
# The caller inside the server's own process: it may do everything.
LOOPBACK = User("system:apiserver", (MASTERS, AUTHENTICATED))
