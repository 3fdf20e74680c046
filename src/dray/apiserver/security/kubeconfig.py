"""Kubeconfig files, as kubectl and every client library read them."""

import base64

import yaml

from dray.apiserver.security.certificates import Pair


def kubeconfig_text(url: str, authority_pem: bytes, user: str, *, pair: Pair | None = None, token: str = "") -> str:
    """One cluster, one user (by certificate or token), one context named after both."""
    identity: dict[str, str] = {}
    if pair:
        identity["client-certificate-data"] = _base64(pair.certificate_pem)
        identity["client-key-data"] = _base64(pair.key_pem)
    if token:
        identity["token"] = token
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "dray", "cluster": {"server": url, "certificate-authority-data": _base64(authority_pem)}}
        ],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": f"{user}@dray", "context": {"cluster": "dray", "user": user}}],
        "current-context": f"{user}@dray",
    }
    return yaml.safe_dump(config, sort_keys=False)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
