"""Rules for pod templates, and for the template and the selector of the kinds that make pods."""

from __future__ import annotations

import msgspec

from dray.api.matching import matches_labels
from dray.api.meta import LabelSelector
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.label_selectors import check_label_selector
from dray.validation.metadata import check_annotations, check_labels
from dray.validation.pods import check_pod_spec

MISMATCH = "`selector` does not match template `labels`"


def check_template(template: Document, path: str, context: ValidationContext, errors: Errors) -> None:
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    # Kubernetes leaves out `metadata` in these two paths.
    check_labels(metadata.get("labels") or {}, f"{path}.labels", errors)
    check_annotations(metadata.get("annotations") or {}, f"{path}.annotations", errors)
    check_pod_spec(pod, f"{path}.spec", context, errors)
    if pod.get("ephemeralContainers"):
        errors.forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")


def check_pod_template(document: Document, context: ValidationContext, errors: Errors) -> None:
    """A PodTemplate, which is nothing but a template."""
    check_template(document.get("template") or {}, "template", context, errors)


def check_runs_forever(pod: Document, kind: str, errors: Errors) -> None:
    """Controllers that replace pods that ended cannot use pods that may end by themselves."""
    policy = pod.get("restartPolicy") or "Always"
    if policy != "Always":
        errors.not_supported("spec.template.spec.restartPolicy", policy, ("Always",))
    if pod.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        errors.forbidden("spec.template.spec.activeDeadlineSeconds", detail)


def check_matches(selector: Document | None, template: Document, path: str, errors: Errors) -> None:
    """No selector matches nothing, and an empty one everything."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector is None or not matches_labels(msgspec.convert(selector, LabelSelector), labels):
        errors.invalid(f"{path}.metadata.labels", labels or None, MISMATCH)


def is_valid_selector(selector: Document | None, path: str, errors: Errors) -> bool:
    """Checks a selector and says whether it can be matched with labels."""
    before = len(errors)
    if selector is not None:
        check_label_selector(selector, path, errors)
    return len(errors) == before


def is_empty(selector: Document | None) -> bool:
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")
