"""AdmissionReview: the question to a webhook about one write, and its answer.

An answer is believed only as far as it can be checked: it must be an AdmissionReview about this request.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api.errors import DecodeError
from dray.api.jsontext import go_json, read_json
from dray.api.safe_get import mapping
from dray.api.scalars import Shaping
from dray.api.shaping import shape_of
from dray.apiserver.errors import ApiError, bad_request
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.admission.chain import Admission
from dray.apiserver.write.go_json_errors import complaint
from dray.apiserver.write.policies.admission_request import request_document
from dray.apiserver.write.policies.request_matching import MatchedResource

GROUP = "admission.k8s.io"
KIND = "AdmissionReview"
VERSIONS = ("v1", "v1beta1")
GO_HEAD = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_encode = msgspec.json.Encoder().encode


class InvalidAnswer(Exception):
    """The webhook answered with something else than a review of this request."""


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    allowed: bool
    # Operations of a JSON patch, not yet looked at; empty if the webhook changes nothing.
    patch: bytes
    patch_type: str
    status: Document
    warnings: tuple[str, ...]
    annotations: dict[str, str]


def question(
    admission: Admission, matched: MatchedResource, shown: Document | None, old: Document | None, uid: str, version: str
) -> bytes:
    """The review to send; `shown` and `old` are the object in the version of `matched`."""
    request = {"uid": uid, **request_document(admission, matched), "object": shown, "oldObject": old}
    return _encode({"kind": KIND, "apiVersion": f"{GROUP}/{version}", "request": request})


def review_version(accepted: list[str]) -> str | None:
    """The first of the versions that a webhook accepts that we know, too."""
    return next((version for version in accepted if version in VERSIONS), None)


# --- the answer


def read_answer(body: bytes, uid: str, version: str, *, mutating: bool) -> WebhookAnswer:
    """Raises InvalidAnswer for anything that is not a review of the request `uid`, DecodeError for what cannot be read."""
    review = _decoded(body, version)
    response = review.get("response")
    if not isinstance(response, dict):
        raise InvalidAnswer("webhook response was absent")
    if version == "v1":
        if response.get("uid") != uid:
            raise InvalidAnswer(f"expected response.uid={go_json(uid)}, got {go_json(response.get('uid') or '')}")
        _check_patch(response, mutating=mutating)
    patch = base64.b64decode(response.get("patch") or "") if mutating else b""
    return WebhookAnswer(
        allowed=bool(response.get("allowed")),
        patch=patch,
        # The older version did not have to name the type.
        patch_type=response.get("patchType") or ("JSONPatch" if version != "v1" and patch else ""),
        status=mapping(response, "status"),
        warnings=tuple(response.get("warnings") or ()),
        annotations=response.get("auditAnnotations") or {},
    )


def _decoded(body: bytes, version: str) -> Document:
    try:
        tree: Any = read_json(body)
    except DecodeError:
        raise DecodeError(f"couldn't get version/kind; json parse error: {complaint(body)}") from None
    except RecursionError:
        raise DecodeError("the answer is nested too deeply") from None
    if not isinstance(tree, dict):
        found = {list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(tree), "number")
        raise DecodeError(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type {GO_HEAD}"
        )
    if not tree.get("kind"):
        raise DecodeError(f"Object 'Kind' is missing in '{body[:1024].decode('utf-8', 'replace')}'")
    if tree["kind"] != KIND or tree.get("apiVersion") not in [f"{GROUP}/{version}" for version in VERSIONS]:
        named = f'no kind "{tree["kind"]}" is registered for version "{tree.get("apiVersion") or ""}"'
        raise DecodeError(f'{named} in scheme "k8s.io/apiserver/pkg/util/webhook/client.go:74"')
    if tree["apiVersion"] != f"{GROUP}/{version}":
        said = tree["apiVersion"].rpartition("/")[2]
        raise DecodeError(f"converting ({said}.{KIND}) to ({version}.{KIND}): unknown conversion")
    return shape_of("admission.v1.AdmissionReview")(tree, KIND, None, Shaping())


def _check_patch(response: Document, *, mutating: bool) -> None:
    patch, patch_type = response.get("patch"), response.get("patchType")
    if not mutating:
        if patch:
            raise InvalidAnswer("validating webhook may not return response.patch")
        if patch_type is not None:
            raise InvalidAnswer("validating webhook may not return response.patchType")
        return
    if patch and patch_type is None:
        raise InvalidAnswer("webhook returned response.patch but not response.patchType")
    if not patch and patch_type is not None:
        raise InvalidAnswer("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        raise InvalidAnswer('webhook returned invalid response.patchType of ""')


# --- refusals


def denial(webhook_name: str, status: Document) -> ApiError:
    """The answer to the client: the webhook's own words, with a code that means refusal."""
    code = status.get("code") or 0
    refused_by = f'admission webhook "{webhook_name}" denied the request'
    said = status.get("message") or status.get("reason")
    message = f"{refused_by}: {said}" if said else f"{refused_by} without explanation"
    return ApiError(
        code if 400 <= code < 600 else 400,
        status.get("reason") or "",
        message,
        status.get("details"),
    )


def dry_run_unsupported(webhook_name: str) -> ApiError:
    return bad_request(f'admission webhook "{webhook_name}" does not support dry run')
