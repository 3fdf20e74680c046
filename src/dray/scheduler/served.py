"""Which version of a kind an API server offers."""

import logging
from typing import Any

import msgspec

from dray.client import ApiError, Client, ServerUnreachable
from dray.client.kinds import Kind

log = logging.getLogger(__name__)

NEWEST_FIRST = ("v1", "v1beta2", "v1beta1", "v1alpha3")


RETRY_S = 1.0


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


async def served_version(client: Client, kind: Kind[Any]) -> str | None:
    """The newest version under which the server lists the kind; None if it does not. Waits for a server that is not there."""
    while True:
        try:
            return await _newest(client, kind)
        except (ApiError, ServerUnreachable) as problem:
            log.warning("waiting for the API server: %s", problem)
            await client.clock.sleep(RETRY_S)


async def _newest(client: Client, kind: Kind[Any]) -> str | None:
    for version in NEWEST_FIRST:
        try:
            answer = await client.raw("GET", f"/apis/{kind.row.group}/{version}")
        except ApiError as problem:
            if not problem.is_not_found:
                raise
            continue
        listed = msgspec.json.decode(answer.body, type=_Resources)
        if any(resource.name == kind.row.plural for resource in listed.resources):
            return version
    return None
