"""What a PersistentVolumeClaim is filled from, said twice: `dataSource` is the older field, `dataSourceRef` the newer one. Pure."""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]

# Kind and group of what the older field may name; anything else in it was never of use.
OLDER_SOURCES = (("PersistentVolumeClaim", ""), ("VolumeSnapshot", "snapshot.storage.k8s.io"))


def with_both_sources(spec: Spec, before: Spec | None) -> Spec:
    """The spec with both fields, unless the source is in another namespace, which only the newer field can say."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        if not _has_source(before) and not _is_older_source(source):
            return {key: value for key, value in spec.items() if key != "dataSource"}
        return {**spec, "dataSourceRef": _same_source(source)}
    if source is None and reference is not None and not reference.get("namespace"):
        return {**spec, "dataSource": _same_source(reference)}
    return spec


def _has_source(spec: Spec | None) -> bool:
    return spec is not None and (spec.get("dataSource") is not None or spec.get("dataSourceRef") is not None)


def _is_older_source(source: Spec) -> bool:
    return (source.get("kind") or "", source.get("apiGroup") or "") in OLDER_SOURCES


def _same_source(source: Spec) -> Spec:
    return {"apiGroup": source.get("apiGroup"), "kind": source.get("kind") or "", "name": source.get("name") or ""}
