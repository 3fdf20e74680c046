"""Certificates: who asked for one is written by the server; who approves or signs, or attests a bundle of authorities, needs a permission for
the signer; and no request asks the cluster's own authority for an administrator."""

import base64
from typing import Any

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from dray.api.safe_get import mapping, text
from dray.apiserver import errors
from dray.apiserver.core import in_thread_if_large
from dray.apiserver.request.request_info import MASTERS, Authorizer
from dray.apiserver.write.admission.chain import CREATE, UPDATE, Admission, AdmissionPlugin, forbidden, row_of
from dray.validation.errors import FieldError

GROUP = "certificates.k8s.io"
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


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
        subresource = admission.attributes.subresource
        if not subresource and admission.operation in (CREATE, UPDATE):
            await _check_subject(admission)
        if admission.operation != UPDATE or admission.document is None:
            return
        signer = text(admission.old, "spec", "signerName")
        if subresource == "approval":
            why = f'user not permitted to approve requests with signerName "{signer}"'
            await _require(self._authorizer, admission, "approve", signer, why)
        elif subresource == "status" and _signed(admission.document) != _signed(admission.old or {}):
            why = f'user not permitted to sign requests with signerName "{signer}"'
            await _require(self._authorizer, admission, "sign", signer, why)


async def _require(authorizer: Authorizer, admission: Admission, verb: str, signer: str, why: str) -> None:
    for name in (signer, f"{signer.partition('/')[0]}/*"):
        wanted = msgspec.structs.replace(
            admission.attributes, verb=verb, resource="signers", subresource="", name=name, group=GROUP, version="*"
        )
        if (await authorizer.authorize(wanted)).allowed:
            return
    raise forbidden(admission, why)


def _signed(document: dict[str, Any]) -> tuple[Any, Any]:
    status = document.get("status") or {}
    return status.get("certificate"), status.get("conditions") or []


async def _check_subject(admission: Admission) -> None:
    """(`CertificateSubjectRestriction` in Kubernetes.)"""
    if text(admission.document, "spec", "signerName") != CLIENT_SIGNER:
        return
    request = text(admission.document, "spec", "request")
    try:
        groups = await in_thread_if_large(len(request), lambda: _organizations(request))
    except (ValueError, x509.InvalidVersion):
        unread = FieldError("FieldValueInvalid", "spec.request", request, "PEM block type must be CERTIFICATE REQUEST")
        raise errors.invalid_object(row_of(admission), admission.name, [unread]) from None
    if MASTERS in groups:
        raise forbidden(admission, f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")


def _organizations(request: str) -> list[str | bytes]:
    """Those of the subject: the groups of a user."""
    subject = x509.load_pem_x509_csr(base64.b64decode(request, validate=True)).subject
    return [attribute.value for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


# Of metadata: the server's own, and what the garbage collector and finalizers change.
_ANYBODYS = ("ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation")


class ClusterTrustBundleAttest(AdmissionPlugin):
    name = "ClusterTrustBundleAttest"
    resources = frozenset({(GROUP, "clustertrustbundles")})

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def validate(self, admission: Admission) -> None:
        if admission.operation not in (CREATE, UPDATE):
            return
        signer = text(admission.document, "spec", "signerName")
        if not signer or (admission.old is not None and _content(admission.document) == _content(admission.old)):
            return
        why = f'user not permitted to attest for signerName "{signer}"'
        await _require(self._authorizer, admission, "attest", signer, why)


def _content(bundle: dict[str, Any] | None) -> tuple[Any, ...]:
    metadata = {key: value for key, value in mapping(bundle, "metadata").items() if key not in _ANYBODYS}
    return mapping(bundle, "spec"), metadata
