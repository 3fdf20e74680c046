"""Where things live in the store.

`/registry/<group>/<plural>/[<namespace>/]<name>` for objects (`core` for the core group), in the storage version and
without resourceVersion; events of both groups are one set of keys below `core`. `/guard/...` holds who has which device:
it is derived from claims and changes in the same commit as they do; in a store of several servers also who was bound to a
node last. `/server/...` holds what several servers share.
"""

REGISTRY = "/registry/"
GUARD = "/guard/"
SERVER = "/server/"


def resource_prefix(group: str, plural: str) -> str:
    """All objects of a kind. The trailing slash keeps `pods` from matching `podsets`."""
    if plural == "events":
        group = ""
    return f"{REGISTRY}{group or 'core'}/{plural}/"


def namespace_prefix(group: str, plural: str, namespace: str) -> str:
    """All objects of a namespaced kind in one namespace."""
    return f"{resource_prefix(group, plural)}{namespace}/"


def object_key(group: str, plural: str, namespace: str, name: str) -> str:
    """One object; an empty namespace means a cluster-scoped kind."""
    prefix = namespace_prefix(group, plural, namespace) if namespace else resource_prefix(group, plural)
    return prefix + name
