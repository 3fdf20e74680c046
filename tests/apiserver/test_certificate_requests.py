"""What is decided about a CertificateSigningRequest stays decided, and its certificate stays the same."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.conftest import Client

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
APPROVED, DENIED, FAILED = ({"type": kind, "status": "True"} for kind in ("Approved", "Denied", "Failed"))


@pytest.fixture
async def server(server: Client) -> Client:
    spec = {"signerName": "example.com/serving", "request": "eA==", "usages": ["client auth"]}
    assert (await server.post(REQUESTS, {"metadata": {"name": "r"}, "spec": spec})).status == 201
    return server


async def update(server: Client, endpoint: str, **status: Any) -> Any:
    return await server.patch(f"{REQUESTS}/r/{endpoint}", {"status": status})


async def test_a_request_is_approved_signed_and_marked(server: Client) -> None:
    assert (await update(server, "approval", conditions=[APPROVED])).status == 200
    assert (await update(server, "status", certificate="eA==")).status == 200
    seen = {"type": "Seen", "status": "Unknown"}
    assert (await update(server, "status", conditions=[APPROVED, seen])).status == 200
    assert (await server.patch(f"{REQUESTS}/r", {"metadata": {"labels": {"a": "b"}}})).status == 200


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (
            [APPROVED],
            [APPROVED, DENIED],
            'status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive',
        ),
        ([DENIED], [], 'status.conditions: Forbidden: updates may not remove a condition of type "Denied"'),
        (
            [],
            [{"type": "Approved", "status": "False"}],
            'status.conditions[0].status: Unsupported value: "False": supported values: "True"',
        ),
        ([], [{"type": "Approved", "status": ""}], "status.conditions[0].status: Required value"),
        ([], [{"type": "", "status": "True"}], "status.conditions[0].type: Required value"),
        ([], [APPROVED, APPROVED], 'status.conditions[1].type: Duplicate value: "Approved"'),
    ],
)
async def test_a_decision_is_one_and_stays(server: Client, before: Any, after: Any, problem: str) -> None:
    if before:
        assert (await update(server, "approval", conditions=before)).status == 200
    refused = await update(server, "approval", conditions=after)
    assert (refused.status, problem in refused.body["message"]) == (422, True), refused.body
    kept = (await server.get(f"{REQUESTS}/r")).body["status"].get("conditions") or []
    assert [each["type"] for each in kept] == [each["type"] for each in before]


async def test_a_certificate_and_a_failure_stay(server: Client) -> None:
    assert (await update(server, "status", certificate="eA==", conditions=[FAILED])).status == 200
    for certificate in ("eQ==", None):
        refused = await update(server, "status", certificate=certificate)
        assert "status.certificate: Forbidden: updates may not modify existing" in refused.body["message"]
    refused = await update(server, "status", conditions=[])
    assert 'updates may not remove a condition of type "Failed"' in refused.body["message"]
