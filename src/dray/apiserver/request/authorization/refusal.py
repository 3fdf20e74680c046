"""A "no" of authorization in the words users know."""

from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import Attributes, Decision


def refusal(attributes: Attributes, decision: Decision) -> ApiError:
    """403, for a resource or for a plain path."""
    user = attributes.user.name
    because = f": {decision.reason}" if decision.reason else ""
    if not attributes.is_resource:
        message = f'forbidden: User "{user}" cannot {attributes.verb} path "{attributes.path}"{because}'
        return ApiError(403, "Forbidden", message, {})
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    plural = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    subject = f'{plural} "{attributes.name}"' if attributes.name else plural
    message = (
        f'{subject} is forbidden: User "{user}" cannot {attributes.verb} resource "{attributes.full_resource}" '
        f'in API group "{attributes.group}" {where}{because}'
    )
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    return ApiError(403, "Forbidden", message, {key: value for key, value in details.items() if value})
