"""The webhook for opaque parameters: as a process of its own, called by a real API server."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually_blocking

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.apiserver.security.certificates import Authority
from dray.driver.example import DRIVERS
from dray.driver.parameter_webhook import review
from dray.store.sqlite import SqliteStore

Document = dict[str, Any]
GPU = DRIVERS["gpu"]().name


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("webhook")
    authority = Authority.create("webhook-ca")
    pair = authority.issue_server("webhook", ("127.0.0.1",))
    (folder / "tls.crt").write_bytes(pair.certificate_pem)
    (folder / "tls.key").write_bytes(pair.key_pem)
    process = subprocess.Popen(
        [
            sys.executable, "-m", "dray", "driver", "webhook", "--ready-file", str(folder / "ready"),
            "--tls-cert-file", str(folder / "tls.crt"), "--tls-private-key-file", str(folder / "tls.key"),
        ],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    ready = folder / "ready"
    eventually_blocking(lambda: ready.exists() and bool(ready.read_text()), "the webhook to be ready")
    yield {"url": ready.read_text(), "caBundle": base64.b64encode(authority.certificate_pem).decode()}
    process.terminate()
    assert process.wait(10) == 0


@pytest.fixture
async def send(webhook: Document, tmp_path: Path) -> AsyncIterator[Any]:

    store = SqliteStore(tmp_path / "store.db")
    running = await start_server(store, ServerOptions(tmp_path))

    async def call(path: str, body: Document, method: str = "POST") -> tuple[int, Document]:

        headers = {"content-type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        response = await running.server.handle(
            Request(method, path, "", headers, json.dumps(body).encode(), user=LOOPBACK)
        )
        return response.status, json.loads(response.body)

    rule = {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "resources": ["resourceclaims", "resourceclaimtemplates", "deviceclasses"],
    }
    hook = {
        "name": "parameters.gpu.example.com",
        "clientConfig": webhook,
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    status, body = await call(path, {"metadata": {"name": "parameters"}, "webhooks": [hook]})
    assert status == 201, body
    await running.server.core.fresh()
    yield call
    await running.stop()
    await store.close()


def a_claim_spec(parameters: Document, driver: str = GPU) -> Document:
    return {
        "devices": {
            "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}],
            "config": [{"opaque": {"driver": driver, "parameters": parameters}}],
        }
    }


ROOT = "/apis/resource.k8s.io/v1"


async def test_parameters_are_checked_when_they_are_written(send: Any) -> None:
    claims, templates = (f"{ROOT}/namespaces/default/{kind}" for kind in ("resourceclaims", "resourceclaimtemplates"))
    good, bad = {"kind": "GpuConfig", "timeSlice": "Short"}, {"kind": "GpuConfig", "timeSlice": "Eternal"}
    assert (await send(claims, {"metadata": {"name": "good"}, "spec": a_claim_spec(good)}))[0] == 201
    status, body = await send(claims, {"metadata": {"name": "bad"}, "spec": a_claim_spec(bad)})
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["message"] == (
        'admission webhook "parameters.gpu.example.com" denied the request: spec.devices.config[0].opaque.parameters: '
        "opaque parameters: timeSlice 'Eternal': must be one of Default, Short, Medium, Long"
    )
    status, body = await send(templates, {"metadata": {"name": "bad"}, "spec": {"spec": a_claim_spec(bad)}})
    assert "spec.spec.devices.config[0].opaque.parameters" in body["message"]
    others = await send(claims, {"metadata": {"name": "other"}, "spec": a_claim_spec(bad, "fan.example.com")})
    assert others[0] == 201


async def test_parameters_of_drivers_of_real_devices_are_checked_too(send: Any) -> None:
    spec = a_claim_spec({"interface": {"dhcp": True}}, "dra.net")
    status, body = await send(f"{ROOT}/namespaces/default/resourceclaims", {"metadata": {"name": "bad"}, "spec": spec})
    assert status == 422
    assert "Object contains unknown field `dhcp` - at `$.interface`" in body["message"]


async def test_a_class_may_say_more_than_a_claim(send: Any) -> None:
    debugging = {"kind": "GpuConfig", "debugging": True}
    config = [{"opaque": {"driver": GPU, "parameters": debugging}}]
    assert (await send(f"{ROOT}/deviceclasses", {"metadata": {"name": "debug"}, "spec": {"config": config}}))[0] == 201
    claims = f"{ROOT}/namespaces/default/resourceclaims"
    status, body = await send(claims, {"metadata": {"name": "c"}, "spec": a_claim_spec(debugging)})
    assert status == 422
    assert "debugging can be set only by a DeviceClass" in body["message"]


def test_an_update_that_leaves_parameters_alone_is_not_judged_again() -> None:
    bad = {"kind": "ResourceClaim", "spec": a_claim_spec({"kind": "GpuConfig", "timeSlice": "Eternal"})}
    drivers = {GPU: DRIVERS["gpu"]()}
    asked = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "object": bad, "oldObject": bad}}
    assert review(asked, drivers)["response"] == {"uid": "u", "allowed": True}
    asked["request"]["oldObject"] = None  # type: ignore[index]
    assert review(asked, drivers)["response"]["allowed"] is False


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"request": {}}', b"nonsense", b'"\xe4"', b"[" * 5000])
async def test_questions_that_are_none(webhook: Document, body: bytes) -> None:
    import aiohttp

    from dray.apiserver.write.webhooks.calling import tls_context

    context = await tls_context(base64.b64decode(webhook["caBundle"]))
    async with aiohttp.ClientSession() as session, session.post(webhook["url"], data=body, ssl=context) as answer:
        assert answer.status == 400
