"""JSON web tokens signed with P-256 (ES256), the only algorithm that is made or accepted here."""

import base64
import binascii
from collections import OrderedDict
from hashlib import sha256
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

ALGORITHM = "ES256"
_HALF = 32
MAX_TOKEN = 16 * 1024
# Tokens whose signature was found good; checking one costs as much as a small request.
KNOWN_TOKENS = 1024


class InvalidToken(Exception):
    """The token is malformed, or its signature is not ours."""


class SigningKey:
    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        self.key_id = _encode(sha256(self.public_der()).digest())
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()

    @staticmethod
    def create() -> "SigningKey":
        return SigningKey(ec.generate_private_key(ec.SECP256R1()))

    @staticmethod
    def load(pem: bytes) -> "SigningKey":
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
        point = self._public.public_numbers()
        x, y = (_encode(number.to_bytes(_HALF, "big")) for number in (point.x, point.y))
        return {"use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": ALGORITHM, "x": x, "y": y}

    def sign(self, claims: dict[str, Any]) -> str:
        header = _encode(msgspec.json.encode({"alg": ALGORITHM, "kid": self.key_id}))
        body = f"{header}.{_encode(msgspec.json.encode(claims))}"
        r, s = decode_dss_signature(self._key.sign(body.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{body}.{_encode(r.to_bytes(_HALF, 'big') + s.to_bytes(_HALF, 'big'))}"

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
        if len(token) > MAX_TOKEN or token.count(".") != 2:
            raise InvalidToken("not a token")
        body, _, signature_text = token.rpartition(".")
        header_text, _, claims_text = body.partition(".")
        header, claims = _object(header_text), _object(claims_text)
        signature = _decode(signature_text)
        # The algorithm is ours to choose, never the token's: "none" and everything else is refused.
        if header.get("alg") != ALGORITHM or len(signature) != 2 * _HALF:
            raise InvalidToken("not signed as expected")
        r, s = int.from_bytes(signature[:_HALF], "big"), int.from_bytes(signature[_HALF:], "big")
        try:
            self._public.verify(encode_dss_signature(r, s), body.encode(), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise InvalidToken("the signature does not fit") from None
        return claims


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        raise InvalidToken("not base64") from None


def _object(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(_decode(text))
    except msgspec.DecodeError:
        raise InvalidToken("not JSON") from None
    if not isinstance(found, dict):
        raise InvalidToken("not an object")
    return found
