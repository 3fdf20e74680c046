"""Whoever reads the store's file, or the etcd, does not read Secrets or the keys of the cluster."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.security.credentials import load_credentials
from dray.apiserver.security.encryption_config import EncryptionConfigError, providers_by_prefix
from dray.clock import RealClock
from dray.store.encryption import AesGcm, CannotDecrypt, EncryptedStore, Identity
from dray.store.interface import Put
from dray.store.sqlite import SqliteStore
from tests.apiserver.conftest import Client

SECRETS = "/api/v1/namespaces/default/secrets"
WORD = "correct-horse-battery-staple"
OLD, NEW = ("old", b"o" * 32), ("new", b"n" * 32)


def a_config(
    *keys: tuple[str, bytes], identity: bool = True, resources: tuple[str, ...] = ("secrets",)
) -> dict[str, Any]:
    listed = [{"name": name, "secret": base64.b64encode(secret).decode()} for name, secret in keys]
    providers: list[dict[str, Any]] = [{"aesgcm": {"keys": listed}}] if keys else []
    providers += [{"identity": {}}] if identity else []
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": [*resources], "providers": providers}],
    }


@asynccontextmanager
async def server(folder: Path, config: dict[str, Any] | None, **options: Any) -> AsyncIterator[Client]:
    file = None
    if config is not None:
        file = folder / "encryption.yaml"
        file.write_text(yaml.safe_dump(config))
    store = SqliteStore(folder / "dray.db")
    try:
        running = await start_server(store, ServerOptions(folder, encryption_config=file, **options))
        try:
            yield Client(running, store)
        finally:
            await running.stop()
    finally:
        await store.close()


async def with_secret(client: Client, name: str = "s") -> None:
    await client.post(SECRETS, {"metadata": {"name": name}, "stringData": {"password": WORD}})


async def password(client: Client, name: str = "s") -> str:
    body = (await client.get(f"{SECRETS}/{name}")).body
    return base64.b64decode(body["data"]["password"]).decode()


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("dray.db*"))


def holds_the_word(content: bytes) -> bool:
    return WORD.encode() in content or base64.b64encode(WORD.encode()) in content


async def test_without_a_configuration_the_file_holds_secrets(tmp_path: Path) -> None:
    async with server(tmp_path, None) as client:
        await with_secret(client)
    assert holds_the_word(on_disk(tmp_path))


async def test_secrets_and_the_servers_keys_are_encrypted(tmp_path: Path) -> None:
    async with server(tmp_path, a_config(NEW)) as client:
        await with_secret(client)
        watch = await client.watch(f"{SECRETS}?watch=true&resourceVersion=0")
        assert await watch.take(1) == [("ADDED", "s")]
        assert await password(client) == WORD
    stored = on_disk(tmp_path)
    assert not holds_the_word(stored)
    assert b"PRIVATE KEY" not in stored
    assert b"k8s:enc:aesgcm:v1:new:" in stored
    # And the next start reads them.
    async with server(tmp_path, a_config(NEW)) as client:
        assert await password(client) == WORD


async def test_existing_data_is_read_and_encrypted_at_the_next_start(tmp_path: Path) -> None:
    async with server(tmp_path, None) as client:
        await with_secret(client)
    async with server(tmp_path, a_config(NEW)) as client:
        assert await password(client) == WORD
        raw = (await client.store.list("/registry/core/secrets/")).entries
        assert raw
        assert all(entry.value.startswith(b"k8s:enc:aesgcm:v1:new:") for entry in raw)


async def test_keys_change_one_after_the_other(tmp_path: Path) -> None:
    for config in (a_config(OLD, identity=False), a_config(OLD, NEW, identity=False)):
        async with server(tmp_path, config) as client:
            await with_secret(client)
            assert await password(client) == WORD
    async with server(tmp_path, a_config(NEW, OLD, identity=False)) as client:
        assert await password(client) == WORD
        raw = (await client.store.list("/registry/core/secrets/")).entries
        assert all(entry.value.startswith(b"k8s:enc:aesgcm:v1:new:") for entry in raw)
    async with server(tmp_path, a_config(NEW, identity=False)) as client:
        assert await password(client) == WORD


@pytest.mark.parametrize("config", [None, a_config(OLD)], ids=["no-configuration", "another-key"])
async def test_a_server_without_the_key_does_not_start(tmp_path: Path, config: dict[str, Any] | None) -> None:
    async with server(tmp_path, a_config(NEW)) as client:
        await with_secret(client)
    with pytest.raises((CannotDecrypt, ValueError), match=r"encrypted") as refused:
        async with server(tmp_path, config):
            pass
    assert WORD not in str(refused.value)


async def test_a_value_moved_to_another_name_is_not_accepted(tmp_path: Path) -> None:
    """Whoever may write the store cannot make one tenant's secret another's."""
    store = SqliteStore(tmp_path / "dray.db")
    sealed = EncryptedStore(store, {"/secrets/": [AesGcm(*NEW)]})
    await sealed.create("/secrets/a/x", b"mine")
    entry = await store.get("/secrets/a/x")
    assert entry is not None
    await store.commit([Put("/secrets/b/x", entry.value)])
    with pytest.raises(CannotDecrypt):
        await sealed.get("/secrets/b/x")
    await store.commit([Put("/secrets/c/x", b"in the clear")])
    with pytest.raises(CannotDecrypt, match="not encrypted"):
        await sealed.get("/secrets/c/x")
    await store.close()


async def test_the_same_value_never_looks_the_same_twice(tmp_path: Path) -> None:
    key = AesGcm(*NEW)
    assert len({key.encrypt("/a", b"same") for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "Other"}, "apiVersion and kind"),
        ({"resources": []}, "resources: Required"),
        ({"resources": [{"resources": ["secrets"], "providers": []}]}, "providers: Required"),
        ({"resources": [{"resources": ["unicorns"], "providers": [{"identity": {}}]}]}, "unicorns"),
        ({"resources": [{"resources": ["secrets"], "providers": [{"aescbc": {}}]}]}, "aescbc"),
        ({"resources": [{"resources": ["secrets"], "providers": [{"aesgcm": {"keys": []}}]}]}, "keys: Required"),
    ],
)
def test_a_wrong_configuration_is_refused_with_the_field(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(EncryptionConfigError, match=problem):
        providers_by_prefix({**a_config(NEW), **change})
    for keys in ([("k", b"short")], [("a:b", b"n" * 32)], [("a", b"n" * 32), ("a", b"m" * 32)]):
        with pytest.raises(EncryptionConfigError, match=r"secret|name"):
            providers_by_prefix(a_config(*keys))


def test_kinds_and_everything() -> None:
    some = providers_by_prefix(a_config(NEW, resources=("configmaps", "resourceclaims.resource.k8s.io")))
    assert set(some) == {"/registry/core/configmaps/", "/registry/resource.k8s.io/resourceclaims/"}
    assert set(providers_by_prefix(a_config(NEW, resources=("*.*",)))) == {"/registry/", "/server/credentials/"}
    in_the_clear = providers_by_prefix(a_config(identity=True))
    assert in_the_clear == {"/registry/core/secrets/": [Identity()], "/server/credentials/": [Identity()]}


async def test_keys_can_live_outside_the_store(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    async with server(tmp_path, None, keys=keys) as client:
        await with_secret(client)
        first = client.running.credentials.authority
    assert b"PRIVATE KEY" not in on_disk(tmp_path)
    assert {path.name for path in keys.iterdir()} == {"ca.crt", "ca.key", "sa.key"}
    assert [oct(path.stat().st_mode & 0o077) for path in (keys, keys / "ca.key", keys / "sa.key")] == ["0o0"] * 3
    assert not (tmp_path / "pki" / "ca.key").exists()
    async with server(tmp_path, None, keys=keys) as client:
        assert client.running.credentials.authority == first


async def test_keys_that_are_in_the_store_already_are_not_forgotten_there(tmp_path: Path) -> None:
    async with server(tmp_path, None):
        pass
    store = SqliteStore(tmp_path / "dray.db")
    with pytest.raises(ValueError, match="the store holds the keys of this cluster already"):
        await load_credentials(store, tmp_path, [], RealClock().now(), tmp_path / "keys")
    await store.close()
