"""The parameter objects that a binding names for a policy."""

from __future__ import annotations

from dray.api.safe_get import mapping, text
from dray.apiserver.core import QUICK, in_thread_if_large
from dray.apiserver.read.selectors import selects
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.apiserver.write.admission.chain import Admission
from dray.apiserver.write.policies.evaluation import PolicyError


async def parameters(
    policy: Document, binding: Document, admission: Admission, objects: ObjectLookup
) -> list[Document | None]:
    """Every parameter object the binding names; one None if the policy has no parameters. Raises PolicyError."""
    kind, reference = mapping(policy, "spec", "paramKind"), mapping(binding, "spec", "paramRef")
    if not kind or not reference:
        return [None]
    found = await _find(kind, reference, admission, objects)
    if not found and text(reference, "parameterNotFoundAction") != "Allow":
        raise PolicyError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return list(found)


async def _find(kind: Document, reference: Document, admission: Admission, objects: ObjectLookup) -> list[Document]:
    group = text(kind, "apiVersion").rpartition("/")[0]
    row = objects.row_of_kind(group, text(kind, "kind"))
    if row is None:
        raise PolicyError(f"failed to find resource referenced by paramKind: '{group}, Kind={text(kind, 'kind')}'")
    namespace = (text(reference, "namespace") or admission.attributes.namespace) if row.namespaced else ""
    if row.namespaced and not namespace:
        raise PolicyError("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    if name := text(reference, "name"):
        found = await objects.get(row.group, row.plural, namespace, name)
        return [found] if found else []
    everything = await objects.stored(row.group, row.plural, namespace)
    selector = mapping(reference, "selector")
    # The namespace may be that of whoever writes, with as much in it as they like.
    chosen = [stored for stored in everything if selects(selector, stored.labels())]
    size = sum(stored.size for stored in chosen) // QUICK
    return await in_thread_if_large(size, lambda: [stored.document() for stored in chosen])
