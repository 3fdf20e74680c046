"""Does a node selector of a slice or device match this node? Same rules as pod node affinity."""

from collections.abc import Callable

from dray.allocator.types import FatalError
from dray.api.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

NAME_FIELD = "metadata.name"


def node_matches(selector: NodeSelector, node: Node) -> bool:
    """Whether any term matches; a selector that makes no sense is fatal even if another term would match."""
    matching = [_term_matches(term, node) for term in selector.node_selector_terms]
    return any(matching)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    labels = node.metadata.labels
    by_label = [_requirement_matches(wanted, labels.get(wanted.key)) for wanted in term.match_expressions]
    by_field = [_field_matches(wanted, node) for wanted in term.match_fields]
    return all(by_label) and all(by_field)


def _field_matches(wanted: NodeSelectorRequirement, node: Node) -> bool:
    if wanted.key != NAME_FIELD or wanted.operator not in ("In", "NotIn") or len(wanted.values) != 1:
        raise _unusable(wanted)
    return (wanted.values[0] == node.metadata.name) == (wanted.operator == "In")


def _requirement_matches(wanted: NodeSelectorRequirement, value: str | None) -> bool:
    test = OPERATORS.get(wanted.operator)
    if test is None:
        raise _unusable(wanted)
    return test(wanted, value)


def _in(wanted: NodeSelectorRequirement, value: str | None) -> bool:
    if not wanted.values:
        raise _unusable(wanted)
    return value is not None and value in wanted.values


def _not_in(wanted: NodeSelectorRequirement, value: str | None) -> bool:
    if not wanted.values:
        raise _unusable(wanted)
    return value is None or value not in wanted.values


def _exists(wanted: NodeSelectorRequirement, value: str | None) -> bool:
    if wanted.values:
        raise _unusable(wanted)
    return value is not None


def _does_not_exist(wanted: NodeSelectorRequirement, value: str | None) -> bool:
    return not _exists(wanted, value)


def _greater(wanted: NodeSelectorRequirement, value: str | None) -> bool:
    limit, amount = _limit(wanted), _whole(value)
    return amount is not None and amount > limit


def _less(wanted: NodeSelectorRequirement, value: str | None) -> bool:
    limit, amount = _limit(wanted), _whole(value)
    return amount is not None and amount < limit


OPERATORS: dict[str, Callable[[NodeSelectorRequirement, str | None], bool]] = {
    "In": _in,
    "NotIn": _not_in,
    "Exists": _exists,
    "DoesNotExist": _does_not_exist,
    "Gt": _greater,
    "Lt": _less,
}


def _limit(wanted: NodeSelectorRequirement) -> int:
    limit = _whole(wanted.values[0]) if len(wanted.values) == 1 else None
    if limit is None:
        raise _unusable(wanted)
    return limit


def _whole(text: str | None) -> int | None:
    digits = text.removeprefix("-").removeprefix("+") if text else ""
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def _unusable(wanted: NodeSelectorRequirement) -> FatalError:
    return FatalError(
        "unsupported",
        f"node selector: key {wanted.key!r}: operator {wanted.operator!r} with values {list(wanted.values)} is not usable",
    )
