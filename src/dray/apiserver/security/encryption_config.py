"""Kubernetes' EncryptionConfiguration: which kinds are encrypted in the store, and with which keys."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from dray.api.safe_get import mappings, part, strings, text
from dray.api.scheme import RESOURCES
from dray.apiserver.watch.stored_object import REGISTRY, SERVER, resource_prefix
from dray.store.encryption import AesGcm, EncryptedStore, Identity, Provider
from dray.store.interface import Store

log = logging.getLogger(__name__)

API_VERSION, KIND = "apiserver.config.k8s.io/v1", "EncryptionConfiguration"
KEY_BYTES = (16, 24, 32)


class EncryptionConfigError(ValueError):
    """The file cannot be used; the text names the field."""


async def encrypted(store: Store, file: Path | None) -> Store:
    """The store with encryption as the file says, in which everything is encrypted with its first keys; without a file, the store itself."""
    if file is None:
        return store
    try:
        document = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as problem:
        raise EncryptionConfigError(f"{file}: {problem}") from None
    try:
        sealed = EncryptedStore(store, providers_by_prefix(document))
    except EncryptionConfigError as problem:
        raise EncryptionConfigError(f"{file}: {problem}") from None
    if written := await sealed.rewrite():
        log.info("%d values were encrypted anew", written)
    return sealed


def providers_by_prefix(document: Any) -> dict[str, list[Provider]]:
    """By prefix of keys in the store. Where secrets are encrypted, the server's own keys are, too."""
    if text(document, "apiVersion") != API_VERSION or text(document, "kind") != KIND:
        raise EncryptionConfigError(f"apiVersion and kind must be {API_VERSION} {KIND}")
    found: dict[str, list[Provider]] = {}
    for index, entry in enumerate(mappings(document, "resources")):
        path = f"resources[{index}]"
        providers = list(_providers(entry, path))
        for name in strings(entry, "resources"):
            for prefix in _prefixes(name, path):
                # The first entry that names a kind counts.
                found.setdefault(prefix, providers)
    if not found:
        raise EncryptionConfigError("resources: Required value")
    return found


def _prefixes(name: str, path: str) -> Iterator[str]:
    if name == "*.*":
        yield from (REGISTRY, f"{SERVER}credentials/")
        return
    plural, _, group = name.partition(".")
    row = next((row for row in RESOURCES if (row.plural, row.group) == (plural, group)), None)
    if row is None or not row.is_stored:
        raise EncryptionConfigError(f"{path}.resources: Invalid value: {name!r}: no such kind is stored here")
    yield resource_prefix(group, plural)
    if name == "secrets":
        yield f"{SERVER}credentials/"


def _providers(entry: dict[str, Any], path: str) -> Iterator[Provider]:
    listed = mappings(entry, "providers")
    if not listed:
        raise EncryptionConfigError(f"{path}.providers: Required value")
    for index, provider in enumerate(listed):
        where = f"{path}.providers[{index}]"
        if list(provider) == ["identity"]:
            yield Identity()
        elif list(provider) == ["aesgcm"]:
            yield from _keys(mappings(provider, "aesgcm", "keys"), f"{where}.aesgcm.keys")
        else:
            raise EncryptionConfigError(f"{where}: Unsupported value: {', '.join(provider)}: aesgcm or identity")


def _keys(keys: list[dict[str, Any]], path: str) -> Iterator[Provider]:
    if not keys:
        raise EncryptionConfigError(f"{path}: Required value")
    seen: set[str] = set()
    for index, key in enumerate(keys):
        name = text(key, "name")
        if not name or ":" in name:
            raise EncryptionConfigError(f"{path}[{index}].name: must not be empty or contain a colon")
        if name in seen:
            raise EncryptionConfigError(f"{path}[{index}].name: Duplicate value: {name!r}")
        seen.add(name)
        yield AesGcm(name, _secret(part(key, "secret"), f"{path}[{index}].secret"))


def _secret(value: Any, path: str) -> bytes:
    try:
        secret = base64.b64decode(value if isinstance(value, str) else "", validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) not in KEY_BYTES:
        raise EncryptionConfigError(f"{path}: must be 16, 24 or 32 bytes in base64")
    return secret
