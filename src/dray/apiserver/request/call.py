"""One request being handled: what was asked, by whom, of which kind, and what has been noticed on the way."""

from __future__ import annotations

import msgspec

from dray.api.scheme import Resource
from dray.apiserver.http.exchange import Request
from dray.apiserver.request.attributes import Attributes
from dray.apiserver.request.negotiation import Wanted
from dray.apiserver.request.query_options import Query
from dray.apiserver.request.request_info import Asked
from dray.apiserver.request.user import User

MAX_MANAGER = 128
MAX_WARNINGS = 4096
WARNING_HEADERS = 50


class Call(msgspec.Struct):
    request: Request
    asked: Asked
    query: Query
    user: User
    attributes: Attributes
    row: Resource
    version: str
    wanted: Wanted
    warnings: list[str] = msgspec.field(default_factory=list)

    @property
    def namespace(self) -> str:
        return self.asked.namespace if self.row.namespaced else ""

    @property
    def name(self) -> str:
        return self.asked.name

    @property
    def content_type(self) -> str:
        return self.request.headers.get("content-type", "")

    def field_manager(self, option: str) -> str:
        """Who owns what this request writes: as named, or else the client's program."""
        if option:
            return option
        agent = self.request.headers.get("user-agent", "").partition("/")[0][:MAX_MANAGER]
        return agent if agent.isprintable() else "".join(filter(str.isprintable, agent))

    def warn(self, text: str) -> None:
        """Warnings travel as headers: no more of them than a client will read."""
        size = sum(len(known) for known in self.warnings) + len(text)
        fits = size <= MAX_WARNINGS and len(self.warnings) < WARNING_HEADERS
        if text not in self.warnings and (fits or not self.warnings):
            self.warnings.append(text[:MAX_WARNINGS])
