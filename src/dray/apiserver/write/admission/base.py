"""What every plugin starts from."""

from dray.api.scheme import Resource, by_plural
from dray.apiserver import errors
from dray.apiserver.errors import ApiError
from dray.apiserver.request.attributes import (
    Admission,
    Attributes,
)

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


class AdmissionPlugin:
    """Does nothing in either round; a plugin overrides the round it lives in."""

    name = ""
    # Group and plural of the resources it looks at; None: of all.
    resources: frozenset[tuple[str, str]] | None = None

    async def mutate(self, admission: Admission) -> None:
        return None

    async def validate(self, admission: Admission) -> None:
        return None


def row_of(attributes: Attributes) -> Resource:
    row = by_plural(attributes.group, attributes.resource)
    if row is None:
        raise LookupError(f"{attributes.group}/{attributes.resource} is not served")
    return row


def forbidden(admission: Admission, why: str) -> ApiError:
    """403 about the object being written."""
    return errors.forbidden(row_of(admission.attributes), admission.name, why)


def concerns(admission: Admission, group: str, resource: str, subresource: str = "") -> bool:
    attributes = admission.attributes
    return (attributes.group, attributes.resource, attributes.subresource) == (group, resource, subresource)
