"""Conversion webhooks: the versions of a custom resource that a server outside makes of each other."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.apiserver.conftest import Client
from tests.apiserver.test_custom_resources import GROUP, TABS, a_definition, a_version, define
from tests.apiserver.webhook_server import WebhookServer
from tests.security.loop_stalls import loop_stalls
from tests.security.test_loop_stalls import LONGEST_S

from dray.api.jsontext import read_json
from dray.apiserver.security.certificates import Authority
from dray.http.connection import HttpRequest
from dray.http.responses import Response

Document = dict[str, Any]
BETA = TABS.replace("/v1/", "/v1beta1/")
AUTHORITY = Authority.create("webhook-ca")


class Converter(WebhookServer):
    """v1 has `spec.host` and `spec.port`, v1beta1 has `spec.address`, both in one text."""

    def __init__(self) -> None:
        super().__init__(AUTHORITY)
        self.respond = self._convert
        self.spoil: Any = lambda response: response
        self.asked: list[Document] = []

    async def _convert(self, request: HttpRequest) -> Response:
        review = json.loads(request.body)
        asked = review["request"]
        self.asked.append(asked)
        made = [_converted(found, asked["desiredAPIVersion"]) for found in asked["objects"]]
        response = {"uid": asked["uid"], "result": {"status": "Success"}, "convertedObjects": made}
        body = {"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": self.spoil(response)}
        return Response(200, json.dumps(body).encode())


def _converted(found: Document, api_version: str) -> Document:
    spec = dict(found.get("spec") or {})
    if api_version.endswith("v1"):
        host, _, port = spec.pop("address", "").partition(":")
        spec |= {"host": host, "port": port}
    else:
        spec["address"] = f"{spec.pop('host', '')}:{spec.pop('port', '')}"
    return {**found, "apiVersion": api_version, "spec": spec}


@pytest.fixture
async def converter() -> AsyncIterator[Converter]:
    server = Converter()
    await server.start()
    yield server
    await server.stop()


def a_spec(*fields: str) -> Document:
    return {"type": "object", "properties": {name: {"type": "string"} for name in (*fields, "note")}}


@pytest.fixture
async def converting(server: Client, converter: Converter) -> Client:
    versions = (a_version("v1", a_spec("host", "port")), a_version("v1beta1", a_spec("address"), storage=False))
    webhook = {"clientConfig": converter.client_config, "conversionReviewVersions": ["v1"]}
    await define(server, a_definition(*versions, conversion={"strategy": "Webhook", "webhook": webhook}))
    return server


def a_tab(version: str, name: str = "t", **spec: str) -> Document:
    return {"apiVersion": f"{GROUP}/{version}", "kind": "CronTab", "metadata": {"name": name}, "spec": spec}


async def test_an_object_is_written_and_read_in_either_version(converting: Client, converter: Converter) -> None:
    made = await converting.post(BETA, a_tab("v1beta1", address="here:80"))
    assert (made.status, made.body["spec"]) == (201, {"address": "here:80"}), made.body
    assert (await converting.get(f"{TABS}/t")).body["spec"] == {"host": "here", "port": "80"}
    assert (await converting.get(f"{BETA}/t")).body["spec"] == {"address": "here:80"}
    assert converter.asked[0]["desiredAPIVersion"] == f"{GROUP}/v1"
    patched = await converting.patch(f"{BETA}/t", {"spec": {"address": "there:81"}})
    assert (patched.status, patched.body["spec"]) == (200, {"address": "there:81"}), patched.body
    assert (await converting.get(f"{TABS}/t")).body["spec"] == {"host": "there", "port": "81"}
    replaced = await converting.send("PUT", f"{BETA}/t", {**patched.body, "spec": {"address": "far:82"}})
    assert (replaced.status, replaced.body["spec"]) == (200, {"address": "far:82"}), replaced.body
    assert (await converting.send("DELETE", f"{BETA}/t")).status == 200


async def test_applying_in_one_version_keeps_what_another_owns(converting: Client) -> None:
    one = await converting.patch(f"{TABS}/t?fieldManager=one", a_tab("v1", host="h", port="1"), "apply")
    assert one.status == 201, one.body
    two = await converting.patch(f"{BETA}/t?fieldManager=two", a_tab("v1beta1", note="n"), "apply")
    assert (two.status, two.body["spec"]) == (200, {"address": "h:1", "note": "n"}), two.body
    assert (await converting.get(f"{TABS}/t")).body["spec"] == {"host": "h", "port": "1", "note": "n"}
    owners = {entry["manager"]: entry["apiVersion"] for entry in two.body["metadata"]["managedFields"]}
    assert owners == {"one": f"{GROUP}/v1", "two": f"{GROUP}/v1beta1"}


async def test_a_list_is_converted_in_one_call_and_remembered(converting: Client, converter: Converter) -> None:
    for name in ("a", "b", "c"):
        await converting.post(TABS, a_tab("v1", name, host=name, port="1"))
    assert converter.asked == []
    for _ in range(2):
        listed = (await converting.get(BETA)).body
        assert [item["spec"]["address"] for item in listed["items"]] == ["a:1", "b:1", "c:1"]
    assert [len(asked["objects"]) for asked in converter.asked] == [3]


async def test_a_large_list_is_converted_in_portions(converting: Client, converter: Converter) -> None:
    """One answer with all of it would be larger than an answer may be."""
    for number in range(6):
        made = await converting.post(TABS, a_tab("v1", f"t{number}", host="h", port="1", note="x" * 1_600_000))
        assert made.status == 201, made.body
    listed = await converting.get(BETA)
    assert [item["spec"]["address"] for item in listed.body["items"]] == ["h:1"] * 6
    assert [len(asked["objects"]) for asked in converter.asked] == [1] * 6


async def test_a_large_answer_does_not_stop_the_loop(converting: Client, converter: Converter) -> None:
    for name in ("first", "t"):
        await converting.post(TABS, a_tab("v1", name, host="h", port="1"))
    assert (await converting.get(f"{BETA}/first")).status == 200  # loads what loads once
    text = b"[" + b"{}," * 2_000_000 + b"{}]"

    async def respond(request: HttpRequest) -> Response:
        asked = json.loads(request.body)["request"]
        body = b'{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"%b","x":%b}}'
        return Response(200, body % (asked["uid"].encode(), text))

    converter.respond = respond
    with loop_stalls() as stalls:
        answer = await asyncio.create_task(converting.get(f"{BETA}/t"), name="the request")
    assert answer.status == 500
    assert "not 'Success'" in answer.body["message"]
    # Measured here and now, since machines differ: the loop has not read the answer.
    started = time.thread_time()
    read_json(text)
    assert stalls.of_task_s["the request"] < min(LONGEST_S, (time.thread_time() - started) / 2)


async def test_only_the_storage_version_can_be_watched(converting: Client) -> None:
    refused = await converting.get(f"{BETA}?watch=true")
    assert (refused.status, refused.body["reason"]) == (405, "MethodNotAllowed")
    events = await converting.watch(f"{TABS}?watch=true")
    await converting.post(BETA, a_tab("v1beta1", address="x:1"))
    assert await events.take(1) == [("ADDED", "t")]


def _with(**changes: Any) -> Any:
    return lambda response: {**response, **changes}


def _each(**changes: Any) -> Any:
    def spoil(response: Document) -> Document:
        objects = [
            {**found, **changes, "metadata": {**found["metadata"], **changes.get("metadata", {})}}
            for found in response["convertedObjects"]
        ]
        return {**response, "convertedObjects": objects}

    return spoil


LIES: list[tuple[Any, str]] = [
    (_with(uid="lie"), "failed: expected response.uid="),
    (_with(convertedObjects=[]), "returned 0 objects, expected 1"),
    (_with(result={"status": "Failure", "message": "cannot do that"}), "failed: cannot do that"),
    (_with(result={}), "failed: response.result.status was '', not 'Success'"),
    (_each(apiVersion="x/v1"), f"invalid groupVersion (expected {GROUP}/v1, received x/v1)"),
    (_each(kind="Other"), "invalid kind (expected CronTab, received Other)"),
    (_each(metadata={"name": "other"}), "must have the same name: t != other"),
    (_each(metadata={"uid": "other"}), "must have the same UID: "),
    (_with(convertedObjects=["text"]), "missing metadata in converted object"),
]


async def test_a_converter_that_lies(converting: Client, converter: Converter) -> None:
    for spoil, problem in LIES:
        converter.spoil = spoil
        answer = await converting.post(BETA, a_tab("v1beta1", address="here:80"))
        assert answer.status == 500
        assert answer.body["message"].startswith(f"conversion webhook for {GROUP}/v1beta1, Kind=CronTab ")
        assert problem in answer.body["message"]
        assert (await converting.get(TABS)).body["items"] == []


async def test_a_converter_that_is_not_there(converting: Client, converter: Converter) -> None:
    await converting.post(TABS, a_tab("v1", host="h", port="1"))
    await converter.stop()
    answer = await converting.get(f"{BETA}/t")
    assert answer.status == 500
    assert "connection refused" in answer.body["message"]
    assert (await converting.get(f"{TABS}/t")).status == 200


async def test_the_storage_version_cannot_change_under_a_webhook(converting: Client) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/crontabs.{GROUP}"
    definition = (await converting.get(path)).body
    for version in definition["spec"]["versions"]:
        version["storage"] = not version["storage"]
    answer = await converting.send("PUT", path, definition)
    assert answer.status == 422
    assert "the storage version cannot change while a webhook converts between versions" in answer.body["message"]
