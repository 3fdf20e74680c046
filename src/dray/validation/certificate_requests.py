"""Rules for CertificateSigningRequests: what may be asked for, and that a decision and a certificate stay."""

from __future__ import annotations

import base64
import binascii
from collections import Counter

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from dray.api.safe_get import mapping, mappings, strings, text
from dray.validation.conditions import STATUSES
from dray.validation.errors import Document, Errors
from dray.validation.pem import pem_blocks
from dray.validation.signer_names import check_signer_name

APPROVED, DENIED = "Approved", "Denied"
DECISIONS = (APPROVED, DENIED)
# Conditions that say something for good.
FINAL = (*DECISIONS, "Failed")
CONDITIONS, CERTIFICATE = "status.conditions", "status.certificate"
LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
SHORTEST_S = 600
USAGES = tuple(
    sorted(
        (
            "signing", "digital signature", "content commitment", "key encipherment", "key agreement",
            "data encipherment", "cert sign", "crl sign", "encipher only", "decipher only", "any", "server auth",
            "client auth", "code signing", "email protection", "s/mime", "ipsec end system", "ipsec tunnel",
            "ipsec user", "timestamping", "ocsp signing", "microsoft sgc", "netscape sgc",
        )
    )
)  # fmt: skip


def check_request(new: Document, old: Document | None, errors: Errors) -> None:
    """A request that is stored keeps its spec and, by this endpoint, its status."""
    if old is None:
        _check_spec(mapping(new, "spec"), errors)


def _check_spec(spec: Document, errors: Errors) -> None:
    if problem := _request_problem(text(spec, "request")):
        errors.invalid("spec.request", text(spec, "request"), problem)
    usages = strings(spec, "usages")
    if not usages:
        errors.required("spec.usages")
    for i, usage in enumerate(usages):
        if usage not in USAGES:
            errors.not_supported(f"spec.usages[{i}]", usage, USAGES)
    seen: set[str] = set()
    for i, usage in enumerate(usages):
        if usage in seen:
            errors.duplicate(f"spec.usages[{i}]", usage)
        seen.add(usage)
    signer = text(spec, "signerName")
    if signer == LEGACY_SIGNER:
        errors.invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    else:
        check_signer_name(signer, "spec.signerName", errors)
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < SHORTEST_S:
        problem = "may not specify a duration less than 600 seconds (10 minutes)"
        errors.invalid("spec.expirationSeconds", seconds, problem)


def _request_problem(request: str) -> str:
    """Why this is no PKCS#10 request that its own key has signed."""
    try:
        block = next(pem_blocks(base64.b64decode(request, validate=True)), None)
    except (ValueError, binascii.Error):
        block = None
    if block is None or block.type != "CERTIFICATE REQUEST":
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        is_signed = x509.load_der_x509_csr(block.der).is_signature_valid
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        return f"the request cannot be read: {error}"
    return "" if is_signed else "the request is not signed with its own key"


def check_status(new: Document, old: Document, errors: Errors) -> None:
    """Of a signer: whether the request is approved is said at /approval."""
    _check_outcome(new, old, errors)
    before, after = _types(old), _types(new)
    for kind in DECISIONS:
        if after[kind] > before[kind]:
            errors.forbidden(CONDITIONS, f'updates may not add a condition of type "{kind}"')
    signed, certificate = text(old, "status", "certificate"), text(new, "status", "certificate")
    if certificate != signed and signed:
        errors.forbidden(CERTIFICATE, "updates may not modify existing certificate content")


def check_approval(new: Document, old: Document, errors: Errors) -> None:
    """Of an approver: the certificate is said at /status."""
    _check_outcome(new, old, errors)


def _check_outcome(new: Document, old: Document, errors: Errors) -> None:
    before, after = _types(old), _types(new)
    _check_conditions(new, before, errors)
    if {APPROVED, DENIED} <= after.keys() and not {APPROVED, DENIED} <= before.keys():
        last = next(kind for kind in reversed([*after]) if kind in DECISIONS)
        errors.invalid(CONDITIONS, last, "Approved and Denied conditions are mutually exclusive")
    certificate, signed = text(new, "status", "certificate"), text(old, "status", "certificate")
    is_new = certificate != signed and not _certificate_problem(signed)
    if is_new and (problem := _certificate_problem(certificate)):
        errors.invalid(CERTIFICATE, "<certificate data>", problem)
    for kind in FINAL:
        if after[kind] < before[kind]:
            errors.forbidden(CONDITIONS, f'updates may not remove a condition of type "{kind}"')


def _certificate_problem(encoded: str) -> str:
    if not encoded:
        return ""
    blocks = list(pem_blocks(base64.b64decode(encoded)))
    for block in blocks:
        if block.type != "CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{block.type}"'
        if block.has_headers:
            return "no PEM block headers are permitted"
        if not block.der:
            return "found CERTIFICATE PEM block containing 0 certificates"
        try:
            x509.load_der_x509_certificate(block.der)
        except (ValueError, x509.InvalidVersion) as error:
            return f"a certificate cannot be read: {error}"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def _types(request: Document) -> Counter[str]:
    """How often there is a condition of each type, in the order of the list."""
    return Counter(text(condition, "type") for condition in mappings(request, "status", "conditions"))


def _check_conditions(request: Document, before: Counter[str], errors: Errors) -> None:
    had_twice = any(count > 1 for count in before.values())
    seen: set[str] = set()
    for i, condition in enumerate(mappings(request, "status", "conditions")):
        kind, status = text(condition, "type"), text(condition, "status")
        allowed = ("True",) if kind in FINAL else STATUSES
        if not kind and not before[""]:
            errors.required(f"{CONDITIONS}[{i}].type")
        if not status:
            errors.required(f"{CONDITIONS}[{i}].status")
        elif status not in allowed:
            errors.not_supported(f"{CONDITIONS}[{i}].status", status, allowed)
        if kind in seen and not had_twice:
            errors.duplicate(f"{CONDITIONS}[{i}].type", kind)
        seen.add(kind)
