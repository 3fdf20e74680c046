"""An admission webhook that checks opaque parameters when claims, templates and classes are written.

Without it the user learns of a mistake only when a pod starts: the API server does not know what the parameters of a driver mean.
`review` answers one AdmissionReview; `ParameterWebhook` serves it over HTTPS for any number of drivers, each asked through `Driver.check_config`.
It works with any Kubernetes API server.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dray.api.safe_get import mapping, mappings, part, text
from dray.driver.plugin import DeviceConfig, Driver, PrepareError
from dray.http.connection import HttpRequest
from dray.http.responses import TEXT, Response
from dray.http.server import HttpServer, server_tls

Document = dict[str, Any]
# Where each kind has its list of configurations, and who writes it.
CONFIGS = {
    "ResourceClaim": (("spec", "devices", "config"), "FromClaim"),
    "ResourceClaimTemplate": (("spec", "spec", "devices", "config"), "FromClaim"),
    "DeviceClass": (("spec", "config"), "FromClass"),
}


def review(question: Document, drivers: Mapping[str, Driver]) -> Document:
    """The answer to an AdmissionReview. Parameters of drivers that are not among `drivers` are nobody's business here."""
    request = mapping(question, "request")
    problems = list(_problems(mapping(request, "object"), mapping(request, "oldObject"), drivers))
    response: Document = {"uid": text(request, "uid"), "allowed": not problems}
    if problems:
        response["status"] = {"code": 422, "reason": "Invalid", "message": "; ".join(problems)}
    return {"kind": "AdmissionReview", "apiVersion": text(question, "apiVersion"), "response": response}


def _problems(new: Document, old: Document, drivers: Mapping[str, Driver]) -> Iterator[str]:
    """What an update leaves alone is not judged again: it may be older than the rule."""
    path, source = CONFIGS.get(text(new, "kind"), ((), ""))
    if not source or part(new, *path) == part(old, *path):
        return
    for position, entry in enumerate(mappings(new, *path)):
        driver = drivers.get(text(entry, "opaque", "driver"))
        if driver is None:
            continue
        where = f"{'.'.join(path)}[{position}].opaque.parameters"
        parameters = part(entry, "opaque", "parameters")
        if not isinstance(parameters, dict):
            yield f"{where}: must be an object"
            continue
        try:
            driver.check_config(DeviceConfig("FromClass" if source == "FromClass" else "FromClaim", parameters))
        except PrepareError as error:
            yield f"{where}: {error}"


class ParameterWebhook:
    def __init__(self, drivers: Iterable[Driver], certificate: Path, key: Path) -> None:
        self._drivers = {driver.name: driver for driver in drivers}
        self._server = HttpServer(self._answer, _tls(certificate, key))

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Starts to listen; returns the address. Port 0 takes a free one."""
        return await self._server.start(host, port)

    async def stop(self) -> None:
        await self._server.stop()

    async def _answer(self, request: HttpRequest) -> Response:
        if request.method != "POST":
            return Response(405, b"send an AdmissionReview\n", TEXT)
        try:
            question = msgspec.json.decode(request.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Response(400, f"the body is not JSON: {error}\n".encode(), TEXT)
        if not isinstance(question, dict) or not text(question, "request", "uid"):
            return Response(400, b"the body is not an AdmissionReview\n", TEXT)
        return Response(200, msgspec.json.encode(review(question, self._drivers)))


def _tls(certificate: Path, key: Path) -> ssl.SSLContext:
    context = server_tls()
    context.load_cert_chain(certificate, key)
    return context
