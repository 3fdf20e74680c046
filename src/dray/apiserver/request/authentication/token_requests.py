"""`serviceaccounts/token`: a TokenRequest answered with a token."""

from dataclasses import dataclass

from dray.api.safe_get import (
    mapping,
    strings,
    text,
)
from dray.api.scheme import by_kind
from dray.apiserver import errors
from dray.apiserver.errors import ApiError, OptionError
from dray.apiserver.request.authentication.service_account_tokens import (
    BOUND_PLURALS,
    ISSUER,
    BoundObject,
    ServiceAccountTokens,
    TokenWish,
)
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.clock import rfc3339

GROUP = "authentication.k8s.io"
DEFAULT_LIFETIME_S = 3600
MIN_LIFETIME_S = 600
MAX_LIFETIME_S = 1 << 32
# Longer wishes are granted only this much.
LONGEST_S = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class TokenRequests:
    tokens: ServiceAccountTokens
    objects: ObjectLookup

    async def answer(self, namespace: str, account: str, request: Document) -> Document:
        """The TokenRequest with its token. Raises 404, 409 or 422."""
        spec = mapping(request, "spec")
        _check_identity(mapping(request, "metadata"), namespace, account)
        found = await self.objects.get("", "serviceaccounts", namespace, account)
        if found is None:
            raise errors.not_found(by_kind("ServiceAccount"), account)
        lifetime = _checked_lifetime(spec)
        reference = mapping(spec, "boundObjectRef") or None
        bound, node = await self._bound(namespace, account, reference)
        audiences = tuple(strings(spec, "audiences")) or (ISSUER,)
        uid = found["metadata"]["uid"]
        wish = TokenWish(namespace, account, uid, min(lifetime, LONGEST_S), audiences, bound, node)
        token, expires = self.tokens.issue(wish)
        metadata = {
            **mapping(request, "metadata"),
            "name": account,
            "namespace": namespace,
            "uid": uid,
            "creationTimestamp": found["metadata"].get("creationTimestamp"),
        }
        return {
            **request,
            "metadata": metadata,
            "spec": {"audiences": list(audiences), "expirationSeconds": lifetime, "boundObjectRef": reference},
            "status": {"token": token, "expirationTimestamp": rfc3339(expires)},
        }

    async def _bound(
        self, namespace: str, account: str, reference: Document | None
    ) -> tuple[BoundObject | None, BoundObject | None]:
        if not reference:
            return None, None
        kind, name = text(reference, "kind"), text(reference, "name")
        if kind not in BOUND_PLURALS or reference.get("apiVersion") not in ("v1", None, ""):
            what = f"{kind}.{reference.get('apiVersion')}" if reference.get("apiVersion") else kind
            raise errors.bad_request(f'cannot bind token for serviceaccount "{account}" to object type {what}')
        row = by_kind(kind)
        found = await self.objects.get("", row.plural, "" if kind == "Node" else namespace, name)
        if found is None:
            raise errors.not_found(row, name)
        uid = found["metadata"]["uid"]
        if reference.get("uid") and reference["uid"] != uid:
            raise errors.conflict(
                row,
                name,
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
            )
        if kind != "Pod":
            return BoundObject(kind, name, uid), None
        if text(found, "spec", "serviceAccountName") != account:
            raise errors.bad_request(
                f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            )
        return BoundObject(kind, name, uid), await self._node(text(found, "spec", "nodeName"))

    async def _node(self, name: str) -> BoundObject | None:
        """The node of a pod; one that is not there yet is named without uid."""
        if not name:
            return None
        found = await self.objects.get("", "nodes", "", name)
        return BoundObject("Node", name, found["metadata"]["uid"] if found else "")


def _check_identity(metadata: Document, namespace: str, account: str) -> None:
    """What a request says about itself must be what its path says."""
    for field, expected in (("name", account), ("namespace", namespace)):
        said = text(metadata, field)
        if said and said != expected:
            why = f'Invalid value: "{said}": must match the service account {field} if specified'
            raise errors.invalid(GROUP, "TokenRequest", account, [OptionError("Invalid", f"metadata.{field}", why)])


def _checked_lifetime(spec: Document) -> int:
    wanted = spec.get("expirationSeconds")
    lifetime = DEFAULT_LIFETIME_S if wanted is None else wanted
    if not isinstance(lifetime, int) or isinstance(lifetime, bool):
        raise errors.bad_request("spec.expirationSeconds is not a number")
    if lifetime < MIN_LIFETIME_S:
        raise _invalid(lifetime, "may not specify a duration less than 10 minutes")
    if lifetime > MAX_LIFETIME_S:
        raise _invalid(lifetime, "may not specify a duration larger than 2^32 seconds")
    return lifetime


def _invalid(value: int, why: str) -> ApiError:
    problem = OptionError("Invalid", "spec.expirationSeconds", f"Invalid value: {value}: {why}")
    return errors.invalid(GROUP, "TokenRequest", "", [problem])
