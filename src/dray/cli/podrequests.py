"""Answers to `dray vectors podrequests`: a pod's requests, limits and QoS class by Kubernetes' rules of today."""

from typing import Any

from dray.accounting import Enforcement, RequestOptions, pod_limits, pod_requests, qos_class
from dray.api.codec import to_object
from dray.api.core import Pod
from dray.api.quantity import Quantity


def answer_podrequests(question: dict[str, Any]) -> dict[str, Any]:
    pod = to_object({"apiVersion": "v1", "kind": "Pod", **question["pod"]}, Pod)
    options = _options(question.get("options") or {})
    return {
        "name": question.get("name", ""),
        "requests": _texts(pod_requests(pod, options)),
        "limits": _texts(pod_limits(pod, options)),
        "qosClass": qos_class(pod, Enforcement.KUBERNETES),
    }


def _options(options: dict[str, Any]) -> RequestOptions:
    defaults = options.get("nonMissingContainerRequests") or {}
    return RequestOptions(
        use_claim_status=bool(options.get("useClaimStatus")),
        exclude_overhead=bool(options.get("excludeOverhead")),
        skip_pod_level_resources=bool(options.get("skipPodLevelResources")),
        skip_container_level_resources=bool(options.get("skipContainerLevelResources")),
        non_missing_container_requests={name: Quantity.parse(text) for name, text in defaults.items()},
        use_status_resources=bool(options.get("useStatusResources")),
        in_place_pod_level_resources=bool(options.get("inPlacePodLevelResources")),
    )


def _texts(quantities: dict[str, Quantity]) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in quantities.items()}
