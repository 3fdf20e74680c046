"""What is decided about a CertificateSigningRequest stays decided, and its certificate stays the same."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.certificate_texts import a_certificate, a_signing_request, encoded
from tests.apiserver.conftest import Client

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
APPROVED, DENIED, FAILED = ({"type": kind, "status": "True"} for kind in ("Approved", "Denied", "Failed"))
CERTIFICATE = encoded(a_certificate())
SPEC = {"signerName": "example.com/serving", "request": encoded(a_signing_request()), "usages": ["client auth"]}


@pytest.fixture
async def server(server: Client) -> Client:
    spec = SPEC
    assert (await server.post(REQUESTS, {"metadata": {"name": "r"}, "spec": spec})).status == 201
    return server


async def update(server: Client, endpoint: str, **status: Any) -> Any:
    return await server.patch(f"{REQUESTS}/r/{endpoint}", {"status": status})


async def test_a_request_is_approved_signed_and_marked(server: Client) -> None:
    assert (await update(server, "approval", conditions=[APPROVED])).status == 200
    assert (await update(server, "status", certificate=CERTIFICATE)).status == 200
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
    assert (await update(server, "status", certificate=CERTIFICATE, conditions=[FAILED])).status == 200
    for certificate in (encoded(a_certificate(serial_number=2)), None):
        refused = await update(server, "status", certificate=certificate)
        assert "status.certificate: Forbidden: updates may not modify existing" in refused.body["message"]
    refused = await update(server, "status", conditions=[])
    assert 'updates may not remove a condition of type "Failed"' in refused.body["message"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"request": encoded(a_certificate())}, "PEM block type must be CERTIFICATE REQUEST"),
        ({"request": "eA=="}, "PEM block type must be CERTIFICATE REQUEST"),
        ({"request": encoded(a_signing_request().replace(b"MI", b"AA", 1))}, "spec.request: Invalid value"),
        ({"usages": []}, "spec.usages: Required value"),
        ({"usages": ["client auth", "any", "any"]}, 'spec.usages[2]: Duplicate value: "any"'),
        ({"usages": ["nope"]}, 'spec.usages[0]: Unsupported value: "nope": supported values: "any", "cert sign", '),
        ({"signerName": ""}, "spec.signerName: Required value"),
        ({"signerName": "x"}, "must be a fully qualified domain and path of the form 'example.com/signer-name'"),
        ({"signerName": "x/y"}, '"x": should be a domain with at least two segments separated by dots'),
        ({"signerName": "a_b.c/y"}, 'spec.signerName: Invalid value: "a_b.c": validating label "a_b": '),
        ({"signerName": "a.b/Y"}, 'spec.signerName: Invalid value: "Y": validating label "Y": '),
        ({"signerName": "kubernetes.io/legacy-unknown"}, "the legacy signerName is not allowed via this API version"),
        ({"expirationSeconds": 599}, "may not specify a duration less than 600 seconds (10 minutes)"),
    ],
)
async def test_a_request_asks_for_something_that_can_be_signed(server: Client, changes: Any, problem: str) -> None:
    refused = await server.post(REQUESTS, {"metadata": {"name": "other"}, "spec": {**SPEC, **changes}})
    assert (refused.status, problem in refused.body["message"]) == (422, True), refused.body
    assert refused.body["details"]["causes"], refused.body


async def test_a_request_stays_as_it_was_asked(server: Client) -> None:
    changed = await server.patch(f"{REQUESTS}/r", {"spec": {"signerName": "x", "usages": []}})
    assert changed.status == 200
    assert {key: changed.body["spec"][key] for key in SPEC} == SPEC


async def test_a_decision_is_only_said_at_approval(server: Client) -> None:
    refused = await update(server, "status", conditions=[DENIED])
    assert (refused.status, refused.body["message"].rpartition("Forbidden: ")[2]) == (
        422,
        'updates may not add a condition of type "Denied"',
    )
    assert (await update(server, "approval", conditions=[APPROVED])).status == 200
    said = await update(server, "status", conditions=[{**APPROVED, "reason": "Mine"}, FAILED])
    assert [entry.get("reason") for entry in said.body["status"]["conditions"]] == [None, None]
    for endpoint in ("status", "approval"):
        refused = await update(server, endpoint, conditions=[FAILED])
        assert 'updates may not remove a condition of type "Approved"' in refused.body["message"]


async def test_a_condition_keeps_the_time_of_its_transition(server: Client) -> None:
    since = "2024-01-01T00:00:00Z"
    await update(server, "approval", conditions=[{**APPROVED, "lastTransitionTime": since}])
    (again,) = (await update(server, "approval", conditions=[APPROVED])).body["status"]["conditions"]
    assert again["lastTransitionTime"] == since
    assert again["lastUpdateTime"] > since


@pytest.mark.parametrize(
    ("certificate", "problem"),
    [
        (b"x", "must contain at least one CERTIFICATE PEM block"),
        (a_signing_request(), 'only CERTIFICATE PEM blocks are allowed, found "CERTIFICATE REQUEST"'),
        (a_certificate().replace(b"-----\n", b"-----\nA: b\n\n", 1), "no PEM block headers are permitted"),
        (a_certificate() + a_certificate().replace(b"MI", b"AA", 1), "a certificate cannot be read"),
    ],
)
async def test_a_certificate_is_one(server: Client, certificate: bytes, problem: str) -> None:
    refused = await update(server, "status", certificate=encoded(certificate))
    assert f'status.certificate: Invalid value: "<certificate data>": {problem}' in refused.body["message"]
