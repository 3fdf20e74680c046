"""Tokens that others can check by themselves: the issuer's documents, and the key in them."""

from __future__ import annotations

import base64
import json

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from tests.apiserver import manifests
from tests.apiserver.conftest import Client

from dray.apiserver.request.authentication.service_account_tokens import ISSUER
from dray.apiserver.request.request_info import AUTHENTICATED, SERVICE_ACCOUNTS_GROUP, User

ROBOT = User("system:serviceaccount:default:robot", (SERVICE_ACCOUNTS_GROUP, AUTHENTICATED))
ALICE = User("alice", (AUTHENTICATED,))


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


async def test_a_token_is_checked_with_nothing_but_the_published_key(server: Client) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await server.post(accounts, manifests.service_account())
    answer = await server.post(f"{accounts}/default/token", {"spec": {}})
    body, _, signature = answer.body["status"]["token"].rpartition(".")
    header, claims = (json.loads(decoded(part)) for part in body.split("."))
    configuration = (await server.get("/.well-known/openid-configuration", host="evil.example.com")).body
    assert configuration["issuer"] == claims["iss"]
    assert configuration["jwks_uri"] == f"{ISSUER}/openid/v1/jwks"
    assert configuration["id_token_signing_alg_values_supported"] == [header["alg"]]
    keys = await server.get("/openid/v1/jwks")
    assert keys.headers["content-type"] == "application/jwk-set+json"
    (key,) = json.loads(keys.body)["keys"]
    assert (key["kid"], key["kty"], key["crv"]) == (header["kid"], "EC", "P-256")
    x, y = (int.from_bytes(decoded(key[name])) for name in "xy")
    raw = decoded(signature)
    halves = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    public.verify(halves, body.encode(), ec.ECDSA(hashes.SHA256()))


async def test_service_accounts_may_read_them_and_others_may_not(server: Client) -> None:
    for path in ("/.well-known/openid-configuration", "/openid/v1/jwks"):
        assert (await server.send("GET", path, user=ROBOT)).status == 200
        assert (await server.send("GET", path, user=ALICE)).status == 403
