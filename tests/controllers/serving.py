"""An API server in the test's process: the whole one, security and all."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from dray.apiserver.assembly import RunningServer, ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.client import Connection, InProcessTransport
from dray.client.credentials import NoCredentials
from dray.client.https import HttpsTransport
from dray.clock import Clock
from dray.features import FeatureGates
from dray.store.sqlite import SqliteStore


class EmbeddedServer:
    def __init__(self, store: SqliteStore, running: RunningServer) -> None:
        self._store = store
        self.running = running
        self.url = ""

    @classmethod
    async def start(
        cls, directory: Path, clock: Clock | None = None, gates: FeatureGates | None = None
    ) -> EmbeddedServer:
        directory.mkdir(parents=True, exist_ok=True)
        store = SqliteStore(directory / "state.db")
        options = ServerOptions(
            directory, gates or FeatureGates.default(), runtime_config="api/all=true", hosts=["127.0.0.1"]
        )
        return cls(store, await start_server(store, options, clock))

    def in_process(self) -> InProcessTransport:
        return InProcessTransport(self.running.server.handle, partial(Request, user=LOOPBACK))

    async def https(
        self, port: int = 0, user: str = "tester", groups: tuple[str, ...] = ("system:masters",)
    ) -> HttpsTransport:
        self.url = self.url or await self.running.listen("127.0.0.1", port)
        authority = self.running.credentials.authority
        pair = authority.issue_client(user, groups)
        return HttpsTransport(
            Connection(
                self.url,
                NoCredentials(),
                ca=authority.certificate_pem,
                client_certificate=pair.certificate_pem,
                client_key=pair.key_pem,
            )
        )

    async def stop(self) -> None:
        await self.running.stop()
        await self._store.close()
