"""Is the API server there? Watches do not say when it is gone, and what is shown must not look alive then."""

from __future__ import annotations

import asyncio

from dray.client import ApiError, Client, CredentialsError, ServerUnreachable
from dray.client.transport import Call

PROBE_TIMEOUT_S = 5.0


async def problem_with(client: Client) -> str:
    """What is wrong with the server; empty if it answers."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            answer = await client.transport.request(Call("GET", "/version", timeout_s=PROBE_TIMEOUT_S))
    except TimeoutError:
        return "the API server does not answer"
    except (ServerUnreachable, CredentialsError, ApiError) as error:
        return str(error)
    return f"the API server answers {answer.status}" if answer.status >= 500 else ""
