"""Asks whether the API server answers. Watches do not report that it is gone, and old data must not look current."""

from __future__ import annotations

import asyncio

from dray.client import ApiError, Client, CredentialsError, ServerUnreachable
from dray.client.transport import Call

TIMEOUT_S = 5.0


async def server_problem(client: Client) -> str:
    """The problem with the server; empty if it answers."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await client.transport.request(Call("GET", "/version", timeout_s=TIMEOUT_S))
    except TimeoutError:
        return "the API server does not answer"
    except (ServerUnreachable, CredentialsError, ApiError) as error:
        return str(error)
    return f"the API server answers {answer.status}" if answer.status >= 500 else ""
