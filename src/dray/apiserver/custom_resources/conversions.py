"""Conversion webhooks: another version of an object, made by a server outside.

Reading and writing objects is plain code that cannot wait. So conversions are made beforehand: `CustomKind.converted` takes them from
`PreparedConversions`, or raises `NotPrepared`; `ConversionWebhooks.run` then asks the webhook and runs the work once more. What is remembered is found by
content, so that a conversion is asked for once however often an object is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from dray.api.errors import DecodeError
from dray.api.jsontext import go_json, read_json
from dray.api.safe_get import mapping, part, strings, text
from dray.apiserver import errors
from dray.apiserver.core import in_thread_if_large
from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.webhooks.calling import CallFailed, ClientConfig, WebhookCaller

Result = TypeVar("Result")
GROUP, KIND = "apiextensions.k8s.io", "ConversionReview"
TIMEOUT_S = 30
MAX_BYTES = 64 * 1024 * 1024
# Of the objects that are sent in one question.
PORTION_BYTES = 1024 * 1024
# Objects that one piece of work may need one after the other.
MOST_ROUNDS = 64
# Metadata that a webhook may change.
CHANGEABLE = ("labels", "annotations")
_canonical = msgspec.json.Encoder(order="deterministic").encode


class NotPrepared(Exception):
    """An object is needed in a version that nobody has asked the webhook for yet."""

    def __init__(self, conversions: PreparedConversions, document: Document, api_version: str) -> None:
        super().__init__(f"{document.get('apiVersion')} to {api_version}")
        self.conversions = conversions
        self.document = document
        self.api_version = api_version


class PreparedConversions:
    """The conversions of one kind: the newest, up to a number of bytes."""

    def __init__(self, kind: str, conversion: Document) -> None:
        self.kind = kind
        self.client = ClientConfig.of(mapping(conversion, "webhook", "clientConfig"))
        self.review_versions = strings(conversion, "webhook", "conversionReviewVersions")
        self._made: dict[bytes, bytes] = {}
        self._size = 0

    def find(self, document: Document, api_version: str) -> Document:
        """The document in another version, with the metadata that it has now; raises NotPrepared."""
        found = self._made.get(_key(document, api_version))
        if found is None:
            raise NotPrepared(self, document, api_version)
        made: Document = msgspec.json.decode(found)
        metadata = {name: value for name, value in document["metadata"].items() if name not in CHANGEABLE}
        metadata |= {name: made["metadata"][name] for name in CHANGEABLE if made["metadata"].get(name)}
        return {**made, "metadata": metadata}

    def has(self, document: Document, api_version: str) -> bool:
        return document.get("apiVersion") == api_version or _key(document, api_version) in self._made

    def put(self, document: Document, api_version: str, made: Document) -> None:
        value = _canonical(made)
        self._made[_key(document, api_version)] = value
        self._size += len(value)
        while self._size > MAX_BYTES and len(self._made) > 1:
            self._size -= len(self._made.pop(next(iter(self._made))))


def _key(document: Document, api_version: str) -> bytes:
    """What a conversion depends on: all but the metadata that a webhook may not change."""
    metadata = {name: document["metadata"].get(name) for name in (*CHANGEABLE, "name", "namespace")}
    return hashlib.blake2b(_canonical([api_version, {**document, "metadata": metadata}]), digest_size=20).digest()


class ConversionWebhooks:
    def __init__(self, caller: WebhookCaller, new_uid: Callable[[], str]) -> None:
        self._caller = caller
        self._new_uid = new_uid

    async def run(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Does the work, as often as it needs a conversion that has to be asked for first."""
        for _ in range(MOST_ROUNDS):
            try:
                return await work()
            except NotPrepared as missing:
                await self._convert(missing.conversions, [missing.document], missing.api_version)
        raise errors.internal("the request needs too many conversions")

    async def prepare(self, conversions: PreparedConversions, documents: Iterable[Document], api_version: str) -> None:
        """Asks for the conversions of many objects at once, but not of so many that the answer would be too large."""
        missing = [document for document in documents if not conversions.has(document, api_version)]
        for portion in _portions(missing):
            await self._convert(conversions, portion, api_version)

    async def _convert(self, conversions: PreparedConversions, documents: Sequence[Document], api_version: str) -> None:
        source = f"{documents[0].get('apiVersion')}, Kind={conversions.kind}"
        version = next((name for name in conversions.review_versions if name in ("v1", "v1beta1")), "v1")
        uid = self._new_uid()
        request = {"uid": uid, "desiredAPIVersion": api_version, "objects": list(documents)}
        question = _canonical({"kind": KIND, "apiVersion": f"{GROUP}/{version}", "request": request})
        try:
            answer = await self._caller.post(conversions.client, question, TIMEOUT_S)
        except CallFailed as error:
            raise _failed(f"conversion webhook for {source} failed: {error}") from None
        made = await in_thread_if_large(len(answer), lambda: _converted_or_why_not(answer, uid, version))
        if isinstance(made, str):
            raise _failed(f"conversion webhook for {source} failed: {made}")
        if len(made) != len(documents):
            raise _failed(f"conversion webhook for {source} returned {len(made)} objects, expected {len(documents)}")
        for at, (document, found) in enumerate(zip(documents, made, strict=True)):
            if problem := _problem(document, found, conversions.kind, api_version):
                raise _failed(
                    f"conversion webhook for {source} returned invalid converted object at index {at}: {problem}"
                )
            conversions.put(document, api_version, found)


def _portions(documents: Iterable[Document]) -> Iterator[list[Document]]:
    portion: list[Document] = []
    size = 0
    for document in documents:
        portion.append(document)
        size += len(_canonical(document))
        if size > PORTION_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _failed(text: str) -> ApiError:
    return ApiError(500, "", text)


def _converted_or_why_not(answer: bytes, uid: str, version: str) -> list[Any] | str:
    """No exception leaves it: that would keep the whole answer until the loop lets go of it, which takes as long as reading it."""
    try:
        return _converted(answer, uid, version)
    except (DecodeError, ValueError) as error:
        return str(error)


def _converted(answer: bytes, uid: str, version: str) -> list[Any]:
    """The objects of a ConversionReview; raises ValueError with what is wrong with it."""
    review = read_json(answer)
    if not isinstance(review, dict):
        raise ValueError("no response provided")
    expected, got = (GROUP, version, KIND), (*text(review, "apiVersion").partition("/")[::2], text(review, "kind"))
    if version == "v1" and got != expected:
        shown = ("{}/{}, Kind={}".format(*each) for each in (expected, got))
        raise ValueError("expected webhook response of {}, got {}".format(*shown))
    response = part(review, "response")
    if not isinstance(response, dict):
        raise ValueError("no response provided")
    if version == "v1" and text(response, "uid") != uid:
        raise ValueError(f"expected response.uid={go_json(uid)}, got {go_json(text(response, 'uid'))}")
    result = mapping(response, "result")
    if text(result, "status") != "Success":
        raise ValueError(
            text(result, "message") or f"response.result.status was '{text(result, 'status')}', not 'Success'"
        )
    found = part(response, "convertedObjects")
    return found if isinstance(found, list) else []


def _problem(document: Document, found: Any, kind: str, api_version: str) -> str:
    """What a webhook may not do: make another object of it."""
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        return "missing metadata in converted object"
    if found.get("apiVersion") != api_version:
        return f"invalid groupVersion (expected {api_version}, received {found.get('apiVersion')})"
    if found.get("kind") != kind:
        return f"invalid kind (expected {kind}, received {found.get('kind')})"
    for name, shown in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        before, after = document["metadata"].get(name) or "", found["metadata"].get(name) or ""
        if before != after:
            return f"must have the same {shown}: {before} != {after}"
    for name in CHANGEABLE:
        values = found["metadata"].get(name) or {}
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            return f"metadata.{name} must be texts"
    return ""
