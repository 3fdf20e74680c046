"""Webhooks that administrators register: mutating ones change a write one after the other, validating ones judge it side by side."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import msgspec

from dray.api.errors import DecodeError
from dray.api.jsontext import go_json
from dray.apiserver import errors
from dray.apiserver.core import in_thread_if_large
from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import Document, add_warning
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.apiserver.write.admission.chain import Admission, AdmissionPlugin, log_for_audit, namespace_of_request
from dray.apiserver.write.admission.policies_and_webhooks import POLICY_GROUP
from dray.apiserver.write.go_json_errors import complaint
from dray.apiserver.write.patching import json_patch
from dray.apiserver.write.policies.authorizer_library import Decide
from dray.apiserver.write.policies.request_matching import MatchedResource
from dray.apiserver.write.webhooks.admission_review import (
    InvalidAnswer,
    WebhookAnswer,
    denial,
    dry_run_unsupported,
    question,
    read_answer,
    review_version,
)
from dray.apiserver.write.webhooks.calling import BadAuthorities, CallFailed, WebhookCaller
from dray.apiserver.write.webhooks.configurations import Webhook, WebhookIndex
from dray.apiserver.write.webhooks.invocation import invocation_of, shown, taken_back
from dray.telemetry import Registry

log = logging.getLogger(__name__)

# All webhooks of one round together, as long as Kubernetes gives a whole request.
DEADLINE_S = 60.0


class WebhookFailed(Exception):
    """A webhook gave no answer that can be used; its failure policy decides what happens to the write."""


@dataclass(frozen=True, slots=True)
class WebhookParts:
    """What both plugins need."""

    index: WebhookIndex
    caller: WebhookCaller
    objects: ObjectLookup
    decide: Decide
    new_uid: Callable[[], str]
    now: Callable[[], str]
    metrics: WebhookMetrics


class WebhookMetrics:
    """Calls of webhooks under Kubernetes' names."""

    def __init__(self, registry: Registry) -> None:
        labels = ("name", "type", "operation")
        self._durations = registry.histogram(
            "apiserver_admission_webhook_admission_duration_seconds",
            "Time of calls of admission webhooks, and whether the request was refused.",
            (*labels, "rejected"),
        )
        self._rejections = registry.counter(
            "apiserver_admission_webhook_rejection_count",
            "Requests refused by admission webhooks, or because calling them failed.",
            (*labels, "error_type", "rejection_code"),
        )
        self._requests = registry.counter(
            "apiserver_admission_webhook_request_total",
            "Calls of admission webhooks by HTTP status of the webhook's answer.",
            (*labels, "code", "rejected"),
        )
        self._open = registry.counter(
            "apiserver_admission_webhook_fail_open_count",
            "Calls of admission webhooks that failed and were ignored, as the failure policy says.",
            ("name", "type"),
        )

    def observe(self, call: WebhookCall, seconds: float, refusal: ApiError | WebhookFailed | None) -> None:
        rejected = refusal is not None and (call.webhook.fails_closed or isinstance(refusal, ApiError))
        shown = str(rejected).lower()
        self._durations.observe(seconds, *call.labels, shown)
        self._requests.inc(*call.labels, str(refusal.code if isinstance(refusal, ApiError) else 200), shown)
        if isinstance(refusal, ApiError):
            self._rejections.inc(*call.labels, "no_error", str(refusal.code))
        elif rejected:
            self._rejections.inc(*call.labels, "calling_webhook_error", "0")
        elif refusal is not None:
            self._open.inc(*call.labels[:2])


@dataclass(frozen=True, slots=True)
class WebhookCall:
    webhook: Webhook
    kind: str
    operation: str

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.webhook.name, self.kind, self.operation


class WebhookPlugin(AdmissionPlugin):
    def __init__(self, parts: WebhookParts) -> None:
        self._parts = parts

    async def _ask(
        self, webhook: Webhook, matched: MatchedResource, admission: Admission, *, mutating: bool
    ) -> WebhookAnswer:
        """Raises WebhookFailed where there is no usable answer, and ApiError where the webhook says no."""
        call = WebhookCall(webhook, "admit" if mutating else "validating", admission.operation)
        begun = perf_counter()
        refusal: ApiError | WebhookFailed | None = None
        try:
            return await self._answer_of(webhook, matched, admission, mutating=mutating)
        except (ApiError, WebhookFailed) as error:
            refusal = error
            raise
        finally:
            self._parts.metrics.observe(call, perf_counter() - begun, refusal)

    async def _answer_of(
        self, webhook: Webhook, matched: MatchedResource, admission: Admission, *, mutating: bool
    ) -> WebhookAnswer:
        if admission.attributes.dry_run and not webhook.allows_dry_run:
            raise dry_run_unsupported(webhook.name)
        version = review_version(webhook.review_versions)
        if version is None:
            raise WebhookFailed(
                "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            )
        uid = self._parts.new_uid()
        new, old = shown(admission, matched, admission.document), shown(admission, matched, admission.old)
        body = question(admission, matched, new, old, uid, version)
        try:
            answer = await self._parts.caller.post(webhook.client, body, webhook.timeout_s)
        except BadAuthorities as error:
            raise WebhookFailed(f"could not get REST client: {error}") from None
        except CallFailed as error:
            raise WebhookFailed(f"failed to call webhook: {error}") from None
        try:
            read = await in_thread_if_large(len(answer), lambda: read_answer(answer, uid, version, mutating=mutating))
        except DecodeError as error:
            raise WebhookFailed(f"failed to call webhook: {error.answer}") from None
        except InvalidAnswer as error:
            raise WebhookFailed(f"received invalid webhook response: {error}") from None
        for key, value in read.annotations.items():
            log_for_audit(admission, f"{webhook.name}/{key}={value}")
        for warning in read.warnings:
            add_warning(admission.warnings, warning)
        if not read.allowed:
            raise denial(webhook.name, read.status)
        return read

    def _after_failure(self, webhook: Webhook, admission: Admission, failure: WebhookFailed) -> None:
        """Raises 500, unless the webhook's failures are to be ignored."""
        text = f'failed calling webhook "{webhook.name}": {failure}'
        if webhook.fails_closed:
            raise errors.internal(text)
        log.warning("%s; the failure policy in %s lets the request pass", text, webhook.configuration)
        log_for_audit(admission, f"failed open: {webhook.name}")


@asynccontextmanager
async def _deadline() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield
    except TimeoutError:
        raise ApiError(504, "Timeout", "Timeout: request did not complete within requested timeout", {}) from None


def _is_exempt(admission: Admission) -> bool:
    """Webhooks and policies do not judge webhooks and policies: a bad one could not be taken back otherwise."""
    return admission.attributes.group == POLICY_GROUP


# --- validating ------------------------------------------------------------------------------------------------------


class ValidatingAdmissionWebhook(WebhookPlugin):
    name = "ValidatingAdmissionWebhook"

    @property
    def has_work(self) -> bool:
        return bool(self._parts.index.validating)

    async def validate(self, admission: Admission) -> None:
        if _is_exempt(admission):
            return
        parts = self._parts
        namespace = await namespace_of_request(admission, parts.objects)
        called = [
            (webhook, matched)
            for webhook in parts.index.validating
            if (matched := invocation_of(webhook, admission, namespace, parts.decide))
        ]
        if not called:
            return
        async with _deadline():
            answers = await asyncio.gather(
                *(self._call(webhook, matched, admission) for webhook, matched in called), return_exceptions=True
            )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _call(self, webhook: Webhook, matched: MatchedResource, admission: Admission) -> None:
        try:
            await self._ask(webhook, matched, admission, mutating=False)
        except WebhookFailed as failure:
            self._after_failure(webhook, admission, failure)


# --- mutating --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Reinvocation:
    """Which webhooks see an object again, since something changed it after them."""

    # Called in this round, with `reinvocationPolicy: IfNeeded`, and nothing has changed the object since.
    called: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    # What the webhooks of the first round left.
    output: Document | None = None

    def object_changed(self) -> None:
        self.again |= self.called
        self.called.clear()


class Patched(NamedTuple):
    document: Document
    changed: bool


class MutatingAdmissionWebhook(WebhookPlugin):
    name = "MutatingAdmissionWebhook"

    @property
    def has_work(self) -> bool:
        return bool(self._parts.index.mutating)

    async def mutate(self, admission: Admission) -> None:
        if _is_exempt(admission):
            return
        state: Reinvocation = admission.memory.setdefault(self.name, Reinvocation())
        if admission.is_second_round and admission.document != state.output:
            state.object_changed()
        async with _deadline():
            await self._call_all(admission, state)
        if not admission.is_second_round and state.called | state.again:
            # A copy: plugins of the second round change the document in place.
            state.output = msgspec.json.decode(msgspec.json.encode(admission.document))

    async def _call_all(self, admission: Admission, state: Reinvocation) -> None:
        parts = self._parts
        namespace = await namespace_of_request(admission, parts.objects)
        for webhook in parts.index.mutating:
            matched = invocation_of(webhook, admission, namespace, parts.decide)
            if matched is None or (admission.is_second_round and webhook.identity not in state.again):
                continue
            if await self._call(webhook, matched, admission):
                state.object_changed()
                admission.wants_second_round = True
            if webhook.is_reinvoked:
                state.called.add(webhook.identity)

    async def _call(self, webhook: Webhook, matched: MatchedResource, admission: Admission) -> bool:
        """Whether the webhook changed the object."""
        try:
            answer = await self._ask(webhook, matched, admission, mutating=True)
            operations = _operations(answer)
        except WebhookFailed as failure:
            self._after_failure(webhook, admission, failure)
            return False
        if not operations:
            return False
        if admission.document is None:
            raise errors.internal(
                f'admission webhook "{webhook.name}" attempted to modify the object, which is not supported '
                "for this operation"
            )
        patched = await self._patched(admission, matched, answer, operations)
        admission.document = patched.document
        return patched.changed

    async def _patched(
        self, admission: Admission, matched: MatchedResource, answer: WebhookAnswer, operations: list[Any]
    ) -> Patched:
        before, now = admission.document, self._parts.now()
        assert before is not None

        def work() -> Patched:
            try:
                tree = json_patch.apply(shown(admission, matched, before), operations)
            except json_patch.PatchFailed as error:
                raise errors.internal(str(error)) from None
            except RecursionError:
                raise errors.internal("the patch is nested too deeply") from None
            after = taken_back(admission, matched, tree, now)
            _keep_managed_fields(after, before)
            return Patched(after, after != before)

        return await in_thread_if_large(len(answer.patch), work)


def _operations(answer: WebhookAnswer) -> list[Any]:
    """Raises WebhookFailed for what is no JSON patch."""
    if not answer.patch:
        return []
    try:
        operations = msgspec.json.decode(answer.patch)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        why = complaint(answer.patch)
        raise WebhookFailed(f"received undecodable patch in webhook response: {why}") from None
    if not operations and operations in (None, []):
        return []
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise WebhookFailed("received undecodable patch in webhook response: not a list of operations")
    if len(operations) > json_patch.MAX_OPERATIONS:
        raise WebhookFailed(
            f"received undecodable patch in webhook response: {len(operations)} operations, at most "
            f"{json_patch.MAX_OPERATIONS} are allowed"
        )
    if answer.patch_type != "JSONPatch":
        raise WebhookFailed(f"unsupported patch type {go_json(answer.patch_type)}")
    return operations


def _keep_managed_fields(document: Document, before: Document) -> None:
    """Who owns which field is the server's business, not a webhook's."""
    owners = before["metadata"].get("managedFields")
    if document["metadata"].get("managedFields") == owners:
        return
    if owners:
        document["metadata"]["managedFields"] = owners
    else:
        del document["metadata"]["managedFields"]
