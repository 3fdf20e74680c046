"""An admission webhook for tests: a real HTTPS server whose answers a test chooses."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from dray.apiserver.security.certificates import Authority
from dray.http.connection import HttpRequest
from dray.http.responses import Response
from dray.http.server import HttpServer, server_tls

Document = dict[str, Any]
Decide = Callable[[Document], Document]
Respond = Callable[[HttpRequest], Awaitable[Response]]
HOSTS = ("127.0.0.1", "localhost", "guard.default.svc")
GROUP = "admissionregistration.k8s.io"


class WebhookServer:
    """`decide` gets the request of each review and returns the response; `respond` replaces all of that."""

    def __init__(self, authority: Authority | None = None) -> None:
        self.authority = authority or Authority.create("webhook-ca")
        self.reviews: list[Document] = []
        self.requests: list[HttpRequest] = []
        self.decide: Decide = lambda request: {"allowed": True}
        self.respond: Respond = self._review
        self._server = HttpServer(self._answer, _context(self.authority), stop_after_s=0.1)
        self.port = 0

    async def start(self) -> None:
        _, self.port = await self._server.start("127.0.0.1", 0)

    async def stop(self) -> None:
        await self._server.stop()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/hook"

    @property
    def ca_bundle(self) -> str:
        return base64.b64encode(self.authority.certificate_pem).decode()

    @property
    def client_config(self) -> Document:
        return {"url": self.url, "caBundle": self.ca_bundle}

    async def _answer(self, request: HttpRequest) -> Response:
        self.requests.append(request)
        return await self.respond(request)

    async def _review(self, request: HttpRequest) -> Response:
        review = json.loads(request.body)
        self.reviews.append(review["request"])
        response = {"uid": review["request"]["uid"], **self.decide(review["request"])}
        return Response(
            200,
            json.dumps({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response}).encode(),
        )


def json_patch(*operations: Document) -> Document:
    """The part of a response that changes the object."""
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def _context(authority: Authority) -> ssl.SSLContext:
    pair = authority.issue_server("webhook", HOSTS)
    context = server_tls()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.write_bytes(pair.key_pem + pair.certificate_pem)
        context.load_cert_chain(path)
    return context


def a_webhook(config: Document, name: str = "guard.example.com", **more: Any) -> Document:
    rule = {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
        **more.pop("rule", {}),
    }
    return {
        "name": name,
        "clientConfig": config,
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
        **more,
    }


def a_configuration(*webhooks: Document, mutating: bool = False, name: str = "guards") -> Document:
    kind = f"{'Mutating' if mutating else 'Validating'}WebhookConfiguration"
    return {"kind": kind, "apiVersion": f"{GROUP}/v1", "metadata": {"name": name}, "webhooks": list(webhooks)}


def configurations_path(*, mutating: bool = False) -> str:
    return f"/apis/{GROUP}/v1/{'mutating' if mutating else 'validating'}webhookconfigurations"
