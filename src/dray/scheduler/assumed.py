"""The newest known version of each claim: from the watch, or from the answer to our own write."""

from collections.abc import Callable, Iterator

from dray.api.resource import ResourceClaim

ClaimChange = Callable[[ResourceClaim | None, ResourceClaim | None], None]
"""Told the claim before and after; None where there is none."""


def revision_of(claim: ResourceClaim) -> int:
    text = claim.metadata.resource_version
    return int(text) if text.isdigit() else 0


class AssumedClaims:
    """Keeps the version with the higher revision, whether the watch or our own write brought it."""

    def __init__(self, on_change: ClaimChange) -> None:
        self._watched: dict[tuple[str, str], ResourceClaim] = {}
        self._latest: dict[tuple[str, str], ResourceClaim] = {}
        self._on_change = on_change

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        return self._latest.get((namespace, name))

    def __iter__(self) -> Iterator[ResourceClaim]:
        return iter(self._latest.values())

    def __len__(self) -> int:
        return len(self._latest)

    def watched(self, claim: ResourceClaim) -> None:
        """The watch shows this version. It is ignored where our own write is newer."""
        key = (claim.metadata.namespace, claim.metadata.name)
        self._watched[key] = claim
        known = self._latest.get(key)
        if known is not None and known.metadata.uid == claim.metadata.uid and revision_of(claim) <= revision_of(known):
            return
        self._replace(key, claim)

    def gone(self, claim: ResourceClaim) -> None:
        key = (claim.metadata.namespace, claim.metadata.name)
        self._watched.pop(key, None)
        known = self._latest.get(key)
        # A write of ours may have created the next claim of that name already.
        if known is not None and (known.metadata.uid == claim.metadata.uid or not claim.metadata.uid):
            del self._latest[key]
            self._on_change(known, None)

    def wrote(self, claim: ResourceClaim) -> None:
        """The API server answered our write with this version."""
        key = (claim.metadata.namespace, claim.metadata.name)
        known = self._latest.get(key)
        if known is None or revision_of(claim) > revision_of(known):
            self._replace(key, claim)

    def restore(self, claim: ResourceClaim) -> None:
        """Go back to the version of the watch, after our own write turned out to be outdated."""
        key = (claim.metadata.namespace, claim.metadata.name)
        watched = self._watched.get(key)
        known = self._latest.get(key)
        if watched is known:
            return
        if watched is None:
            del self._latest[key]
            self._on_change(known, None)
        else:
            self._replace(key, watched)

    def _replace(self, key: tuple[str, str], claim: ResourceClaim) -> None:
        known = self._latest.get(key)
        self._latest[key] = claim
        if known is not None and known.metadata.uid != claim.metadata.uid:
            self._on_change(known, None)
            known = None
        self._on_change(known, claim)
