"""Certificate requests: the server says who asked; approving and signing need the permission for the signer."""

import base64
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from tests.apiserver.admission.world import ADMIN, ALICE, World, grant

CSRS = "certificates.k8s.io:certificatesigningrequests"
SIGNER = "example.com/serving"


def a_certificate_request(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "r"}, "spec": {"signerName": SIGNER, "request": "eA=="}, "status": status}


def signers(verb: str, name: str = SIGNER) -> dict[str, Any]:
    return {"verbs": [verb], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [name]}


async def test_who_asked_cannot_be_claimed(world: World) -> None:
    lie = {"username": "admin", "uid": "1", "groups": ["system:masters"], "extra": {"a": ["b"]}}
    document = a_certificate_request()
    document["spec"] |= lie
    admitted = await world.admit(CSRS, document, user=ALICE)
    assert admitted is not None
    assert admitted["spec"]["username"] == "alice"
    assert admitted["spec"]["groups"] == list(ALICE.groups)
    assert "uid" not in admitted["spec"]
    assert "extra" not in admitted["spec"]


async def test_approving_needs_the_permission_for_the_signer(world: World) -> None:
    approved = a_certificate_request(conditions=[{"type": "Approved", "status": "True"}])
    refused = await world.refused(f"{CSRS}/approval", approved, a_certificate_request(), user=ALICE)
    assert refused.code == 403
    assert 'user not permitted to approve requests with signerName "example.com/serving"' in refused.message
    await grant(world, ALICE, signers("sign"))
    assert (await world.refused(f"{CSRS}/approval", approved, a_certificate_request(), user=ALICE)).code == 403
    await grant(world, ALICE, signers("approve", "example.com/*"))
    assert await world.admit(f"{CSRS}/approval", approved, a_certificate_request(), user=ALICE) is not None


async def test_signing_needs_the_permission_and_other_changes_do_not(world: World) -> None:
    signed = a_certificate_request(certificate="eA==")
    failed = a_certificate_request(conditions=[{"type": "Failed", "status": "True"}])
    for document in (signed, failed):
        refused = await world.refused(f"{CSRS}/status", document, a_certificate_request(), user=ALICE)
        assert "user not permitted to sign requests" in refused.message
    assert await world.admit(f"{CSRS}/status", signed, signed, user=ALICE) is not None
    assert await world.admit(CSRS, signed, a_certificate_request(), user=ALICE) is not None, (
        "only its own subresource can sign"
    )
    await grant(world, ALICE, signers("sign"))
    assert await world.admit(f"{CSRS}/status", signed, a_certificate_request(), user=ALICE) is not None
    assert await world.admit(f"{CSRS}/status", signed, a_certificate_request(), user=ADMIN) is not None


def a_request_for(signer: str, *groups: str) -> dict[str, Any]:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
    text = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)
    return {"metadata": {"name": "r"}, "spec": {"signerName": signer, "request": base64.b64encode(text).decode()}}


async def test_nobody_asks_for_a_certificate_of_an_administrator(world: World) -> None:
    signer = "kubernetes.io/kube-apiserver-client"
    refused = await world.refused(CSRS, a_request_for(signer, "dev", "system:masters"))
    assert (refused.code, refused.message) == (
        403,
        f'certificatesigningrequests.certificates.k8s.io "r" is forbidden: use of {signer} signer with system:masters '
        "group is not allowed",
    )
    assert await world.admit(CSRS, a_request_for(signer, "dev")) is not None
    assert await world.admit(CSRS, a_request_for(SIGNER, "system:masters")) is not None
    for text in ("eA==", "!", "\u00e4"):
        document = {"metadata": {"name": "r"}, "spec": {"signerName": signer, "request": text}}
        refused = await world.refused(CSRS, document)
        assert refused.code == 422
        assert refused.message.endswith("PEM block type must be CERTIFICATE REQUEST")


async def test_a_bundle_of_a_signer_needs_the_permission_to_attest(world: World) -> None:
    bundles = "certificates.k8s.io:clustertrustbundles"
    bundle = {"metadata": {"name": "b"}, "spec": {"signerName": SIGNER, "trustBundle": "x"}}
    why = f'user not permitted to attest for signerName "{SIGNER}"'
    assert (await world.refused(bundles, bundle, user=ALICE)).message.endswith(why)
    assert (
        await world.refused(bundles, {**bundle, "spec": {**bundle["spec"], "trustBundle": "y"}}, bundle, user=ALICE)
    ).code == 403
    owned = {**bundle, "metadata": {"name": "b", "ownerReferences": [{"uid": "u"}]}}
    assert await world.admit(bundles, owned, bundle, user=ALICE) == owned
    free = {"metadata": {"name": "b"}, "spec": {"trustBundle": "x"}}
    assert await world.admit(bundles, free, user=ALICE) == free
    await grant(world, ALICE, signers("attest"))
    assert await world.admit(bundles, bundle, user=ALICE) == bundle


async def test_a_condition_of_any_kind_is_for_the_signer(world: World) -> None:
    marked = a_certificate_request(conditions=[{"type": "Other", "status": "True"}])
    refused = await world.refused(f"{CSRS}/status", marked, a_certificate_request(), user=ALICE)
    assert "user not permitted to sign requests" in refused.message
