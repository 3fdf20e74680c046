"""Who asks: the user a request acts for, and the names that mean something to the server itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
SERVICE_ACCOUNTS_GROUP = "system:serviceaccounts"
NODE_PREFIX = "system:node:"
NODES_GROUP = "system:nodes"

NODE_NAME_EXTRA = "authentication.kubernetes.io/node-name"
NODE_UID_EXTRA = "authentication.kubernetes.io/node-uid"
POD_NAME_EXTRA = "authentication.kubernetes.io/pod-name"
POD_UID_EXTRA = "authentication.kubernetes.io/pod-uid"
CREDENTIAL_EXTRA = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class User:
    """`extra` holds what the credentials say besides name and groups, such as the node a token is bound to."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def node_name(self) -> str:
        """The node this user is the identity of, or empty."""
        if NODES_GROUP in self.groups and self.name.startswith(NODE_PREFIX):
            return self.name.removeprefix(NODE_PREFIX)
        return ""

    @property
    def service_account(self) -> tuple[str, str] | None:
        """Namespace and name, for a service account."""
        if not self.name.startswith(SERVICE_ACCOUNT_PREFIX):
            return None
        namespace, _, name = self.name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
        return (namespace, name) if namespace and name and ":" not in name else None


def service_account_user_name(namespace: str, name: str) -> str:
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
# The caller inside the server's own process: it may do everything.
LOOPBACK = User("system:apiserver", (MASTERS, AUTHENTICATED))
