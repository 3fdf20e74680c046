"""The certificate of the API server: kept over restarts, and replaced before it ends, also while the server runs."""

import asyncio
import ssl
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from tests.waiting import eventually

from dray.apiserver.security.certificates import LIFETIME
from dray.apiserver.security.credentials import RENEW_BEFORE, Credentials, load_credentials
from dray.clock import SimulatedClock
from dray.store.sqlite import SqliteStore
from dray.tasks import cancelled


async def credentials_at(folder: Path, now: datetime) -> Credentials:
    store = SqliteStore(folder / "dray.db")
    try:
        return await load_credentials(store, folder, (), now)
    finally:
        await store.close()


async def end_of_served_certificate(context: ssl.SSLContext) -> datetime:
    """What a client sees that connects now."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    return x509.load_der_x509_certificate(found).not_valid_after_utc


async def test_a_server_that_runs_for_a_year_replaces_its_certificate(tmp_path: Path) -> None:
    clock = SimulatedClock()
    credentials = await credentials_at(tmp_path, clock.now())
    context = credentials.server_context()
    before = await end_of_served_certificate(context)
    renewing = asyncio.create_task(credentials.keep_serving_certificate(context, clock))
    await clock.advance((LIFETIME - RENEW_BEFORE - timedelta(days=1)).total_seconds())
    assert await end_of_served_certificate(context) == before
    await clock.advance(timedelta(days=2).total_seconds())

    async def is_newer() -> bool:
        return await end_of_served_certificate(context) > before + timedelta(days=300)

    await eventually(is_newer, "the new certificate")
    await cancelled(renewing)


@pytest.mark.parametrize("hours", [-20, 0])
async def test_a_certificate_made_with_a_clock_that_was_ahead_is_not_kept(tmp_path: Path, hours: int) -> None:
    now = SimulatedClock().now()
    before = (await credentials_at(tmp_path, now)).server
    after = (await credentials_at(tmp_path, now + timedelta(hours=hours))).server
    assert (after == before) == (hours == 0)


async def test_a_certificate_without_its_key_is_not_kept(tmp_path: Path) -> None:
    now = SimulatedClock().now()
    credentials = await credentials_at(tmp_path, now)
    (tmp_path / "pki" / "apiserver.key").write_bytes(credentials.admin.key_pem)
    (await credentials_at(tmp_path, now)).server_context()
