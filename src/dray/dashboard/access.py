"""Access to the dashboard: only from this machine, and only with the token.

The token comes in the printed address and is exchanged for a cookie that scripts cannot read, so that it does not stay in
the address bar. Programs send it as a bearer token. Requests from other machines are turned away even with the token.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping


def new_token() -> str:
    return secrets.token_urlsafe(24)


def dashboard_url(server_url: str, token: str) -> str:
    """What to print: opens the page and signs in. The server may listen everywhere; the page is for this machine."""
    return f"{server_url.replace('://0.0.0.0:', '://127.0.0.1:').replace('://[::]:', '://[::1]:')}/ui?token={token}"


class DashboardAccess:
    def __init__(self, token: str) -> None:
        if len(token) < 16:
            raise ValueError("the dashboard's token has fewer than 16 characters")
        self._token = token.encode()
        # The cookie is not the token: who reads a cookie file cannot sign in anew. Cookies ignore ports, so its name
        # tells dashboards on one machine apart.
        self._session = hashlib.sha256(b"dray dashboard session " + self._token).hexdigest()
        self.cookie_name = f"dray-ui-{hashlib.sha256(self._token).hexdigest()[:10]}"

    def is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token)

    def admits(self, headers: Mapping[str, str]) -> bool:
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(credentials.strip()):
            return True
        value = _cookies(headers.get("cookie", "")).get(self.cookie_name, "")
        return hmac.compare_digest(value.encode("utf-8", "replace"), self._session.encode())

    def cookie(self, path: str, *, is_secure: bool) -> str:
        """Lasts as long as the browser runs; other sites cannot make the browser send it with their requests."""
        secure = "; Secure" if is_secure else ""
        return f"{self.cookie_name}={self._session}; Path={path}; HttpOnly; SameSite=Lax{secure}"


def is_on_this_machine(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _cookies(header: str) -> dict[str, str]:
    """By hand: a strange cookie of another server on this machine must not hide ours."""
    pairs = (each.strip().partition("=") for each in header.split(";"))
    return {name: value for name, _, value in pairs}
