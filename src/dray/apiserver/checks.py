"""Where the server asks `dray.validation`: documents in, field errors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.api.scheme import Resource
from dray.apiserver.errors import FieldErrorLike
from dray.features import FeatureGates

Document = dict[str, Any]


def create_errors(row: Resource, version: str, document: Document, gates: FeatureGates) -> Sequence[FieldErrorLike]:
    return ()


def update_errors(
    row: Resource, version: str, new: Document, old: Document, gates: FeatureGates, subresource: str
) -> Sequence[FieldErrorLike]:
    return ()


def create_warnings(row: Resource, document: Document) -> list[str]:
    return []
