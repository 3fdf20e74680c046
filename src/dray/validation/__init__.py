"""Is this object acceptable, and if not, which fields are wrong and why? In Kubernetes' words.

    validate_create(document, context) -> list[FieldError]
    validate_update(new, old, context) -> list[FieldError]
    validate_status_update(new, old, context) -> list[FieldError]

Rules read *documents* in their storage version, shaped and defaulted, because only a document tells an absent list from an
empty one, and rules ask. One file per kind; formats, metadata, node selectors and conditions have their own.

Kubernetes checks with handwritten rules first and generated ("declarative") ones after them. A client sees the difference in
three places, so errors remember it (`FieldError.declarative`): paths of v1beta1 requests, rules that pass over what an
update leaves unchanged, and items of lists that are too long.

What is not here: decoding (`dray.api.codec`), defaults and dropped fields (`dray.api`), who may do what (`dray.apiserver`).
"""

from dray.validation.dispatch import validate_create, validate_status_update, validate_update
from dray.validation.errors import Context, FieldError, invalid_message

__all__ = [
    "Context",
    "FieldError",
    "invalid_message",
    "validate_create",
    "validate_status_update",
    "validate_update",
]
