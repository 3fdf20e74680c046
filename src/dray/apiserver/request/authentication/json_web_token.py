"""JSON web tokens signed with P-256 (ES256), the only algorithm that is made or accepted here.

PyJWT signs and checks them. It is loaded with the first token: it brings an HTTP client along, and many clusters use certificates only.
"""

from __future__ import annotations

import base64
import re
from collections import OrderedDict
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from jwt import PyJWS

ALGORITHM = "ES256"
MAX_TOKEN = 16 * 1024
# Tokens whose signature was found good; checking one costs as much as a small request.
KNOWN_TOKENS = 1024

# PyJWT skips characters that base64 does not have; a token has only one spelling here.
_is_token = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){2}").fullmatch


class InvalidToken(Exception):
    """The token is malformed, or its signature is not ours."""


@cache
def _signatures() -> PyJWS:
    """The algorithm is ours to choose, never the token's: "none" and everything else is refused."""
    from jwt import PyJWS

    return PyJWS(algorithms=[ALGORITHM])


class SigningKey:
    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        self.key_id = base64.urlsafe_b64encode(sha256(self.public_der()).digest()).rstrip(b"=").decode()
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()

    @staticmethod
    def create() -> SigningKey:
        return SigningKey(ec.generate_private_key(ec.SECP256R1()))

    @staticmethod
    def load(pem: bytes) -> SigningKey:
        key = serialization.load_pem_private_key(pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key that signs service account tokens is not an elliptic curve key")
        return SigningKey(key)

    def pem(self) -> bytes:
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def public_der(self) -> bytes:
        return self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)

    def public_jwk(self) -> dict[str, str]:
        """What others need to check signatures."""
        from jwt.algorithms import ECAlgorithm

        point = ECAlgorithm.to_jwk(self._public, as_dict=True)
        return {"use": "sig", "kid": self.key_id, "alg": ALGORITHM, **point}

    def sign(self, claims: dict[str, Any]) -> str:
        # Kubernetes' tokens have no `typ` either.
        payload = msgspec.json.encode(claims)
        return _signatures().encode(payload, self._key, ALGORITHM, {"typ": "", "kid": self.key_id})

    def verify(self, token: str) -> dict[str, Any]:
        """The claims of a token that this key signed. Times and audiences are the caller's business."""
        known = self._known.get(token)
        if known is None:
            known = self._verified(token)
            self._known[token] = known
            if len(self._known) > KNOWN_TOKENS:
                self._known.popitem(last=False)
        return known

    def _verified(self, token: str) -> dict[str, Any]:
        if len(token) > MAX_TOKEN or not _is_token(token):
            raise InvalidToken("not a token")
        from jwt.exceptions import PyJWTError

        try:
            payload: bytes = _signatures().decode(token, self._public, [ALGORITHM])
            return msgspec.json.decode(payload, type=dict[str, Any])
        except PyJWTError as problem:
            raise InvalidToken(str(problem)) from None
        except msgspec.MsgspecError:
            raise InvalidToken("the claims are not a JSON object") from None
