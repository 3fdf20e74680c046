"""The OIDC discovery documents: the issuer of service account tokens and its public key, for services that check tokens themselves."""

from dataclasses import dataclass

from dray.apiserver.request.authentication.json_web_token import (
    ALGORITHM,
    SigningKey,
)
from dray.apiserver.request.authentication.service_account_tokens import ISSUER
from dray.apiserver.request.request_info import Request
from dray.apiserver.watch.stored_object import encode
from dray.http.responses import Response

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
CACHED = (("Cache-Control", "public, max-age=3600"),)


@dataclass(frozen=True, slots=True)
class TokenIssuer:
    key: SigningKey

    def answer(self, request: Request) -> Response | None:
        """None for a path that is none of the two."""
        path = request.path.rstrip("/")
        if path == CONFIGURATION:
            return _cached(self._configuration(request.local), "application/json")
        if path == KEYS:
            return _cached({"keys": [self.key.public_jwk()]}, "application/jwk-set+json")
        return None

    def _configuration(self, address: str) -> dict[str, object]:
        return {
            "issuer": ISSUER,
            "jwks_uri": f"https://{address}{KEYS}" if address else f"{ISSUER}{KEYS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }


def _cached(document: object, content_type: str) -> Response:
    return Response(200, encode(document), content_type, headers=CACHED)
