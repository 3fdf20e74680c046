"""Certificate requests: the server says who asked; approving and signing need the permission for the signer."""

from typing import Any

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
