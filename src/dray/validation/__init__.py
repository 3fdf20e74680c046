"""Is this object acceptable, and if not, which fields are wrong and why? In Kubernetes' words.

    validate_create(document, context) -> list[FieldError]
    validate_update(new, old, context) -> list[FieldError]
    validate_status_update(new, old, context) -> list[FieldError]
    validate_approval(new, old, context) -> list[FieldError]

Rules read *documents* in their storage version, shaped and defaulted, because only a document tells an absent list from an
empty one, and rules ask.

| module | has the rules for |
| --- | --- |
| `dispatch` | choosing the rules of a request |
| `claims`, `claim_status`, `device_classes`, `device_taint_rules`, `pool_status` | the kinds of resource.k8s.io |
| `slices`, `devices`, `capacity_policy`, `node_allocatable`, `node_selector` | ResourceSlice and what is in it |
| `pods`, `pod_fields`, `pod_details`, `pod_status`, `pod_groups`, `pod_templates`, `workloads`, `jobs`, `schedules` | pods, and the kinds that make pods |
| `volumes`, `persistent_volumes`, `ingresses`, `autoscalers`, `certificate_requests`, `signer_names`, `pem`, `cluster_kinds` | volumes, ingresses, network policies, autoscalers, certificate requests and other kinds that Dray stores for others |
| `core_kinds`, `key_values`, `services`, `network_objects`, `disruption_budgets`, `events`, `quotas`, `limit_ranges`, `rbac` | the other kinds |
| `metadata`, `conditions`, `formats`, `shares`, `equality`, `expressions`, `errors` | parts that many kinds share |
| `warnings` | warnings about fields that are valid |
| `lint`, `shorthand_hints` | checking a manifest without a server |

Kubernetes checks with handwritten rules first and generated ("declarative") ones after them. A client sees the difference in
three places, so errors remember it (`FieldError.declarative`): paths of v1beta1 requests, rules that pass over what an
update leaves unchanged, and items of lists that are too long.

Decoding is in `dray.api.codec`, defaults and dropped fields are in `dray.api`, authorization is in `dray.apiserver`.
"""

from dray.validation.dispatch import validate_approval, validate_create, validate_status_update, validate_update
from dray.validation.errors import FieldError, ValidationContext, invalid_message

__all__ = [
    "FieldError",
    "ValidationContext",
    "invalid_message",
    "validate_approval",
    "validate_create",
    "validate_status_update",
    "validate_update",
]
