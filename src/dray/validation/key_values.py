"""Rules for Secrets and ConfigMaps: keys, size, what a type of Secret must hold, and what may not change."""

from __future__ import annotations

import base64

import msgspec

from dray.api.names import byte_length
from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE

_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_MOST_DATA = 1 << 20
_FIXED = "field is immutable when `immutable` is set"


# The keys that a Secret of this type must have.
_REQUIRED_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_LOGIN = "kubernetes.io/basic-auth"
_SSH = "kubernetes.io/ssh-auth"
_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
_ACCOUNT_NAME = "kubernetes.io/service-account.name"
# Types whose content is JSON.
_JSON_TYPES = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson")
_REDACTED = "<secret contents redacted>"


def check_key_values(new: Document, old: Document | None, errors: Errors) -> None:
    is_secret = new.get("kind") == "Secret"
    if old is not None:
        _check_kept(new, old, errors)
    for field in ("data", "stringData", "binaryData"):
        for key in new.get(field) or {}:
            _check_key(f"{field}[{key}]", key, errors)
            if field == "data" and not is_secret and key in (new.get("binaryData") or {}):
                errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    texts = () if is_secret else (new.get("data") or {}).values()
    encoded = ((new.get("data") if is_secret else new.get("binaryData")) or {}).values()
    size = sum(byte_length(text) for text in texts) + sum(len(text) * 3 // 4 - text[-2:].count("=") for text in encoded)
    if size > _MOST_DATA:
        errors.too_long("data" if is_secret else "[]", _MOST_DATA)
    if is_secret:
        _check_content(new, errors)


def _check_kept(new: Document, old: Document, errors: Errors) -> None:
    if new.get("kind") == "Secret" and new.get("type") != old.get("type"):
        errors.invalid("type", new.get("type"), IMMUTABLE)
    if old.get("immutable"):
        if not new.get("immutable"):
            errors.forbidden("immutable", _FIXED)
        for field in ("data", "binaryData"):
            if (new.get(field) or {}) != (old.get(field) or {}):
                errors.forbidden(field, _FIXED)


def _check_content(secret: Document, errors: Errors) -> None:
    """What clients of a type of Secret rely on."""
    kind, data = secret.get("type") or "", secret.get("data") or {}
    for key in _REQUIRED_KEYS.get(kind, ()):
        if key not in data:
            errors.required(f"data[{key}]")
        elif kind in _JSON_TYPES and (problem := _json_problem(data[key])):
            errors.invalid(f"data[{key}]", _REDACTED, problem)
    if kind == _LOGIN and "username" not in data and "password" not in data:
        errors.required("data[username]")
        errors.required("data[password]")
    if kind == _SSH and not data.get("ssh-privatekey"):
        errors.required("data[ssh-privatekey]")
    annotations = (secret.get("metadata") or {}).get("annotations") or {}
    if kind == _ACCOUNT_TOKEN and not annotations.get(_ACCOUNT_NAME):
        errors.required(f"metadata.annotations[{_ACCOUNT_NAME}]")


def _json_problem(encoded: str) -> str:
    """Why this is no JSON object; the wording for text that does not begin like JSON is the one that clients know."""
    content = base64.b64decode(encoded)
    try:
        if isinstance(msgspec.json.decode(content), dict):
            return ""
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        text = content.decode(errors="replace").lstrip()
        if not text:
            return "unexpected end of JSON input"
        if text[0] not in '{["-0123456789tfn':
            return f"invalid character '{text[0]}' looking for beginning of value"
    return "must be a valid JSON object"


def _check_key(path: str, key: str, errors: Errors) -> None:
    if byte_length(key) > 253:
        errors.invalid(path, key, "must be no more than 253 characters")
    if not key or not key.isascii() or not all(c.isalnum() or c in "-_." for c in key):
        errors.invalid(path, key, _KEY_RULE)
    elif key in (".", "..") or key.startswith(".."):
        errors.invalid(path, key, f"must not be '{key}'" if key in (".", "..") else "must not start with '..'")
