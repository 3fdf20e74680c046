"""Certificate requests: who asked is written by the server; who approves or signs needs a permission for the signer."""

from typing import Any

import msgspec

from dray.apiserver import errors
from dray.apiserver.request.request_info import Authorizer
from dray.apiserver.write.admission.chain import CREATE, UPDATE, Admission, AdmissionPlugin, row_of

GROUP = "certificates.k8s.io"


class CertificateRequests(AdmissionPlugin):
    name = "CertificateApproval"
    resources = frozenset({(GROUP, "certificatesigningrequests")})

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def mutate(self, admission: Admission) -> None:
        if admission.operation != CREATE or admission.document is None:
            return
        user, spec = admission.user, admission.document.setdefault("spec", {})
        for field in ("username", "uid", "groups", "extra"):
            spec.pop(field, None)
        asked_by: dict[str, Any] = {
            "username": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra.items()},
        }
        spec.update({field: value for field, value in asked_by.items() if value})

    async def validate(self, admission: Admission) -> None:
        if admission.operation != UPDATE or admission.document is None:
            return
        subresource = admission.attributes.subresource
        if subresource == "approval":
            await self._require(admission, "approve")
        elif subresource == "status" and _signed(admission.document) != _signed(admission.old or {}):
            await self._require(admission, "sign")

    async def _require(self, admission: Admission, verb: str) -> None:
        signer = str((admission.old or {}).get("spec", {}).get("signerName") or "")
        for name in (signer, f"{signer.partition('/')[0]}/*"):
            wanted = msgspec.structs.replace(
                admission.attributes, verb=verb, resource="signers", subresource="", name=name, group=GROUP, version="*"
            )
            if (await self._authorizer.authorize(wanted)).allowed:
                return
        raise errors.forbidden(
            row_of(admission),
            admission.name,
            f'user not permitted to {verb} requests with signerName "{signer}"',
        )


def _signed(document: dict[str, Any]) -> tuple[Any, Any]:
    status = document.get("status") or {}
    failed = [entry for entry in status.get("conditions") or () if entry.get("type") == "Failed"]
    return status.get("certificate"), failed
