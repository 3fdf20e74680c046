"""LabelSelector objects (`matchLabels`, `matchExpressions`) against labels."""

from collections.abc import Mapping

from dray.apiserver.request.attributes import Document
from dray.apiserver.safe_get import (
    mappings,
    strings,
    text,
    texts,
)


def selects(selector: Document | None, labels: Mapping[str, str]) -> bool:
    """An absent or empty selector selects everything; an unknown operator nothing."""
    if not selector:
        return True
    if any(labels.get(key) != value for key, value in texts(selector, "matchLabels").items()):
        return False
    return all(_fits(expression, labels) for expression in mappings(selector, "matchExpressions"))


def _fits(expression: Document, labels: Mapping[str, str]) -> bool:
    key, operator, values = text(expression, "key"), text(expression, "operator"), strings(expression, "values")
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    return operator == "DoesNotExist" and key not in labels
