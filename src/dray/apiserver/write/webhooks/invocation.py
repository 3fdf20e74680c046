"""Decides whether a webhook is called for a write, and shows the object in the version that the webhook's rule names."""

from __future__ import annotations

from dray.api.defaults import apply_defaults
from dray.api.errors import DecodeError
from dray.api.scheme import Resource, group_version
from dray.apiserver import errors
from dray.apiserver.request.request_info import Document
from dray.apiserver.subresources.scale import scale_of, with_replicas
from dray.apiserver.watch.stored_object import from_storage, to_storage
from dray.apiserver.write.admission.chain import Admission, forbidden
from dray.apiserver.write.decoding import defaulted, shaped_object, shaped_or_fail
from dray.apiserver.write.policies.admission_request import kind_in, row_in
from dray.apiserver.write.policies.authorizer_library import Decide
from dray.apiserver.write.policies.evaluation import Scene
from dray.apiserver.write.policies.request_matching import MatchedResource, matched_resource, selects_request
from dray.apiserver.write.webhooks.configurations import MatchCondition, Webhook
from dray.cel import CelRuntimeError, CompileFailure


def invocation_of(
    webhook: Webhook, admission: Admission, namespace: Document | None, decide: Decide
) -> MatchedResource | None:
    """What the webhook is asked about, or None if it is not concerned. Raises 403 where its conditions give no answer."""
    if not selects_request(webhook.document, admission, namespace):
        return None
    matched = matched_resource(webhook.rules, admission, exact=webhook.is_exact)
    if matched is None:
        return None
    if webhook.conditions and not _conditions_hold(webhook, admission, matched, namespace, decide):
        return None
    return matched


def _conditions_hold(
    webhook: Webhook, admission: Admission, matched: MatchedResource, namespace: Document | None, decide: Decide
) -> bool:
    """One condition that is false settles it, whatever others say; the failure policy decides about one without an answer."""
    new, old = shown(admission, matched, admission.document), shown(admission, matched, admission.old)
    scene = Scene.showing(admission, new, old, namespace, decide, matched)
    problems = []
    for condition in webhook.conditions:
        answer = _answer(condition, scene)
        if answer is False:
            return False
        if answer is not True:
            problems.append(answer)
    if problems and webhook.fails_closed:
        raise forbidden(admission, problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return not problems


def _answer(condition: MatchCondition, scene: Scene) -> bool | str:
    if isinstance(condition.program, CompileFailure):
        return f"compilation error: {condition.program.message}"
    try:
        return condition.program.value_of(scene.values) is True
    except CelRuntimeError as error:
        return f"expression '{condition.expression}' resulted in error: {error.message}"


# --- the object, in the version of the rule


def shown(admission: Admission, matched: MatchedResource, document: Document | None) -> Document | None:
    """The new or the old object of a write as the webhook sees it."""
    if document is None:
        return None
    if _is_scale(admission):
        return scale_of(_row(admission, matched), document)
    kind = kind_in(admission, matched)
    row = _row(admission, matched)
    if kind["kind"] != row.kind:
        return {"kind": kind["kind"], "apiVersion": group_version(kind["group"], kind["version"]), **document}
    return from_storage(row, matched.version, document)


def taken_back(admission: Admission, matched: MatchedResource, patched: object, now: str) -> Document:
    """The object to write, from the object as a webhook changed it; raises 400 and 500."""
    kind = kind_in(admission, matched)
    api_version = group_version(kind["group"], kind["version"])
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
        raise errors.internal(f"the patch leaves no {kind['kind']}")
    if (patched.get("kind"), patched.get("apiVersion")) != (kind["kind"], api_version):
        raise errors.internal(
            f"the patch turns {api_version}, Kind={kind['kind']} into "
            f"{patched.get('apiVersion')}, Kind={patched.get('kind')}"
        )
    try:
        document = _shaped(admission, matched, patched, kind)
    except DecodeError as error:
        raise errors.internal(error.answer) from None
    _check_namespace(admission, document)
    if _is_scale(admission):
        return _with_scale(admission, _row(admission, matched), document)
    row = _row(admission, matched)
    if kind["kind"] != row.kind:
        return apply_defaults(document, now)
    return to_storage(row, defaulted(row, document, now))


def _shaped(admission: Admission, matched: MatchedResource, patched: Document, kind: dict[str, str]) -> Document:
    row = _row(admission, matched)
    if kind["kind"] == row.kind:
        return shaped_object(row, matched.version, patched).document
    return shaped_or_fail(patched, group_version(kind["group"], kind["version"]), kind["kind"]).document


def _row(admission: Admission, matched: MatchedResource) -> Resource:
    row = row_in(admission, matched)
    assert row is not None
    return row


def _is_scale(admission: Admission) -> bool:
    return admission.attributes.subresource == "scale"


def _with_scale(admission: Admission, row: Resource, scale: Document) -> Document:
    assert admission.document is not None
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    return with_replicas(row, admission.document, replicas)


def _check_namespace(admission: Admission, document: Document) -> None:
    namespace = document["metadata"].get("namespace") or ""
    before = ((admission.document or {}).get("metadata") or {}).get("namespace") or ""
    if namespace != before:
        raise errors.other_namespace()
