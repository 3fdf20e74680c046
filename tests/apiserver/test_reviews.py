"""Reviews of tokens, and reviews that make no sense, in the words of Kubernetes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver import manifests
from tests.apiserver.conftest import Client

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.request.authentication.service_account_tokens import ISSUER
from dray.store.sqlite import SqliteStore

ACCESS = "/apis/authorization.k8s.io/v1"
LOCAL = f"{ACCESS}/namespaces/default/localsubjectaccessreviews"
PODS = {"verb": "get", "resource": "pods", "namespace": "default"}
PATH = {"path": "/x", "verb": "get"}
TOKEN = "/api/v1/namespaces/default/serviceaccounts/default/token"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


@pytest.mark.parametrize(
    ("path", "review", "expected"),
    [
        pytest.param(
            f"{ACCESS}/subjectaccessreviews",
            {"spec": {"user": "a", "resourceAttributes": PODS, "nonResourceAttributes": PATH}},
            'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: cannot be specified in combination with '
            "resourceAttributes",
            id="both",
        ),
        pytest.param(
            f"{ACCESS}/subjectaccessreviews",
            {"spec": {}},
            "[spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, "
            'spec.user: Invalid value: "": at least one of user or group must be specified]',
            id="neither-and-nobody",
        ),
        pytest.param(
            f"{ACCESS}/selfsubjectaccessreviews",
            {"metadata": {"labels": {"a": "b"}, "managedFields": []}, "spec": {"nonResourceAttributes": PATH}},
            "must be empty",
            id="metadata",
        ),
        pytest.param(
            LOCAL,
            {"spec": {"user": "a", "resourceAttributes": {**PODS, "namespace": "other"}}},
            'spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace',
            id="another-namespace",
        ),
        pytest.param(
            LOCAL,
            {"spec": {"user": "a", "nonResourceAttributes": PATH}},
            'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on this kind of request',
            id="path-in-a-namespace",
        ),
    ],
)
async def test_access_reviews(server: Client, path: str, review: dict[str, Any], expected: str) -> None:
    refused = await server.post(path, review)
    assert refused.status == 422
    assert refused.body["message"].startswith('.authorization.k8s.io "" is invalid: ')
    assert refused.body["message"].endswith(expected)


async def test_a_token_review_needs_a_token(server: Client) -> None:
    refused = await server.post(TOKEN_REVIEWS, {"spec": {}})
    assert (refused.status, refused.body["message"]) == (400, "token is required for TokenReview in authentication")


@pytest.fixture
async def with_tokens(tmp_path: Path) -> AsyncIterator[Client]:
    """A server that knows a token from a file."""
    file = tmp_path / "tokens"
    file.write_text("secret,ada,7,builders\n")
    store = SqliteStore(tmp_path / "store.db")
    running = await start_server(store, ServerOptions(tmp_path, token_file=file))
    yield Client(running, store)
    await running.stop()
    await store.close()


async def reviewed(server: Client, token: str, *audiences: str) -> dict[str, Any]:
    answer = await server.post(TOKEN_REVIEWS, {"spec": {"token": token, "audiences": list(audiences)}})
    assert answer.status == 201
    status: dict[str, Any] = answer.body["status"]
    return status


async def test_a_token_of_a_file_is_good_for_the_server_itself(with_tokens: Client) -> None:
    ada = {"username": "ada", "uid": "7", "groups": ["builders", "system:authenticated"]}
    assert await reviewed(with_tokens, "secret") == {"authenticated": True, "user": ada, "audiences": [ISSUER]}
    refused = {"user": {}, "error": "invalid bearer token"}
    assert await reviewed(with_tokens, "secret", "elsewhere") == refused
    assert await reviewed(with_tokens, "guess") == refused


async def test_a_token_of_an_account_is_good_for_its_audiences(with_tokens: Client) -> None:
    await with_tokens.post("/api/v1/namespaces/default/serviceaccounts", manifests.service_account())
    made = await with_tokens.post(TOKEN, {"spec": {"audiences": ["a", "b"]}})
    token = made.body["status"]["token"]
    found = await reviewed(with_tokens, token, "b", "c")
    assert found["user"]["username"] == "system:serviceaccount:default:default"
    assert (found["authenticated"], found["audiences"]) == (True, ["b"])
    assert "authenticated" not in await reviewed(with_tokens, token)
    assert "authenticated" not in await reviewed(with_tokens, token, "c")


async def test_a_token_request_names_its_own_account(server: Client) -> None:
    missing = await server.post(TOKEN, {"spec": {"expirationSeconds": 1}})
    assert (missing.status, missing.body["message"]) == (404, 'serviceaccounts "default" not found')
    await server.post("/api/v1/namespaces/default/serviceaccounts", manifests.service_account())
    refused = await server.post(TOKEN, {"metadata": {"name": "other"}, "spec": {}})
    assert refused.body["message"] == (
        'TokenRequest.authentication.k8s.io "default" is invalid: metadata.name: Invalid value: "other": '
        "must match the service account name if specified"
    )
    assert (await server.post(TOKEN, {"metadata": {"name": "default", "namespace": "default"}})).status == 201


async def test_reviews_have_no_table(server: Client) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    review = {"spec": {"nonResourceAttributes": PATH}}
    refused = await server.post(f"{ACCESS}/selfsubjectaccessreviews", review, accept=accept)
    assert (refused.status, refused.body["reason"]) == (406, "NotAcceptable")
    either = f"{accept}, application/json"
    assert (await server.post(f"{ACCESS}/selfsubjectaccessreviews", review, accept=either)).status == 201


@pytest.mark.parametrize(
    ("verb", "groups", "allowed"),
    [("list", ["system:serviceaccounts"], True), ("create", ["system:serviceaccounts"], False), ("list", [], False)],
)
async def test_service_accounts_may_read_trust_bundles(
    server: Client, verb: str, groups: list[str], allowed: bool
) -> None:
    asked = {"verb": verb, "group": "certificates.k8s.io", "resource": "clustertrustbundles"}
    spec = {"user": "bot", "groups": groups, "resourceAttributes": asked}
    answer = await server.post(f"{ACCESS}/subjectaccessreviews", {"spec": spec})
    assert answer.body["status"]["allowed"] is allowed
