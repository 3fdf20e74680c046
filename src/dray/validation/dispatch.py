"""Chooses the rules for a request: by kind, and by whether it creates an object, changes it, or changes its status."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module

from dray.api.safe_get import mapping
from dray.api.scheme import is_namespaced
from dray.api.strategies import strategy_for
from dray.validation import (
    claim_status,
    claims,
    cluster_kinds,
    core_kinds,
    device_classes,
    events,
    key_values,
    pod_status,
    pods,
    rbac,
    slices,
)
from dray.validation.errors import Document, Errors, FieldError, ValidationContext
from dray.validation.metadata import check_metadata, check_metadata_update
from dray.validation.pod_fields import has_details

Check = Callable[[Document, Document | None, ValidationContext, Errors], None]


def _once(check: Callable[[Document, Errors], None]) -> Check:
    return lambda new, old, context, errors: check(new, errors)


def _later(module: str, function: str) -> Callable[..., None]:
    """A function of a module that is loaded with the first object that needs it: a server that starts has no objects of most kinds."""

    @cache
    def rules() -> Callable[..., None]:
        found: Callable[..., None] = getattr(import_module(f"dray.validation.{module}"), function)
        return found

    return lambda *arguments: rules()(*arguments)


def _without_context(check: Callable[[Document, Document | None, Errors], None]) -> Check:
    return lambda new, old, context, errors: check(new, old, errors)


def _pods(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    if old is None:
        pods.check_new_pod(new, context, errors)
    else:
        pods.check_pod_update(new, old, context, errors)


def _claims(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    if old is None:
        claims.check_claim(new, context, errors)
    else:
        claims.check_claim_update(new, old, errors)


def _pool_status(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    from dray.validation import pool_status

    if old is None:
        pool_status.check_request(new, context, errors)
    else:
        pool_status.check_request_update(new, old, errors)


def _pod_template(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    from dray.validation import pod_templates

    pod_templates.check_pod_template(new, context, errors)


_CHECKS: dict[str, Check] = {
    "ResourceSlice": slices.check_slice,
    "ResourceClaim": _claims,
    "ResourceClaimTemplate": claims.check_template,
    "DeviceClass": device_classes.check_class,
    "DeviceTaintRule": _without_context(_later("device_taint_rules", "check_rule")),
    "ResourcePoolStatusRequest": _pool_status,
    "Pod": _pods,
    "Node": lambda new, old, context, errors: core_kinds.check_node(new, old, errors),
    "ResourceQuota": _without_context(_later("quotas", "check_quota")),
    "LimitRange": _once(_later("limit_ranges", "check_limit_range")),
    "Event": events.check_event,
    "Namespace": _once(core_kinds.check_namespace),
    "Lease": _once(core_kinds.check_lease),
    "Service": _without_context(_later("services", "check_service")),
    **dict.fromkeys(("Secret", "ConfigMap"), _without_context(key_values.check_key_values)),
    "PriorityClass": _without_context(core_kinds.check_priority_class),
    "PodGroup": _without_context(_later("pod_groups", "check_group")),
    "Workload": _without_context(_later("pod_groups", "check_workload")),
    **dict.fromkeys(("Role", "ClusterRole"), _without_context(rbac.check_role)),
    **dict.fromkeys(("RoleBinding", "ClusterRoleBinding"), _without_context(rbac.check_binding)),
    **dict.fromkeys(
        ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
        _without_context(_later("webhooks", "check_webhooks")),
    ),
    "Deployment": _later("workloads", "check_deployment"),
    "ReplicaSet": _later("workloads", "check_replica_set"),
    "ReplicationController": _later("workloads", "check_replication_controller"),
    "DaemonSet": _later("workloads", "check_daemon_set"),
    "StatefulSet": _later("workloads", "check_stateful_set"),
    "Job": _later("jobs", "check_job"),
    "CronJob": _later("jobs", "check_cron_job"),
    "PodTemplate": _pod_template,
    "PodDisruptionBudget": _once(_later("disruption_budgets", "check_budget")),
    "CertificateSigningRequest": _without_context(_later("certificate_requests", "check_request")),
    "PersistentVolume": _without_context(_later("persistent_volumes", "check_volume")),
    "PersistentVolumeClaim": _without_context(_later("volumes", "check_volume_claim")),
    "StorageClass": _without_context(_later("volumes", "check_storage_class")),
    "VolumeAttributesClass": _without_context(_later("volumes", "check_attributes_class")),
    "CSIDriver": _without_context(_later("volume_drivers", "check_csi_driver")),
    "CSINode": _without_context(_later("volume_drivers", "check_csi_node")),
    "CSIStorageCapacity": _without_context(_later("volume_drivers", "check_storage_capacity")),
    "VolumeAttachment": _without_context(_later("volume_drivers", "check_attachment")),
    "APIService": cluster_kinds.check_api_service,
    "FlowSchema": _without_context(_later("flow_control", "check_flow_schema")),
    "PriorityLevelConfiguration": _without_context(_later("flow_control", "check_priority_level")),
    "RuntimeClass": cluster_kinds.check_runtime_class,
    "EndpointSlice": _later("network_objects", "check_endpoint_slice"),
    "Endpoints": _without_context(_later("network_objects", "check_endpoints")),
    "IPAddress": _without_context(_later("network_objects", "check_address")),
    "ServiceCIDR": _without_context(_later("network_objects", "check_range")),
    "ControllerRevision": cluster_kinds.check_revision,
    "Ingress": _without_context(_later("ingresses", "check_ingress")),
    "IngressClass": _without_context(_later("ingresses", "check_ingress_class")),
    "NetworkPolicy": _once(_later("ingresses", "check_network_policy")),
    "HorizontalPodAutoscaler": _without_context(_later("autoscalers", "check_autoscaler")),
}

_STATUS_CHECKS: dict[str, Callable[[Document, Document, ValidationContext, Errors], None]] = {
    "ResourceClaim": claim_status.check_claim_status,
    "DeviceTaintRule": _once(_later("device_taint_rules", "check_rule_status")),
    "ResourcePoolStatusRequest": _without_context(_later("pool_status", "check_request_status")),
    "Node": lambda new, old, context, errors: core_kinds.check_node_status(new, old, errors),
    "Pod": lambda new, old, context, errors: pod_status.check_pod_status(new, old, errors, context),
    "PodGroup": _once(_later("pod_groups", "check_group_status")),
    "CertificateSigningRequest": _without_context(_later("certificate_requests", "check_status")),
    "VolumeAttachment": _without_context(_later("volume_drivers", "check_attachment_status")),
    "APIService": _without_context(cluster_kinds.check_api_service_status),
}


# Where the pod spec of each kind is.
_POD_SPECS: dict[str, tuple[str, ...]] = {
    "Pod": ("spec",),
    "PodTemplate": ("template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    **dict.fromkeys(
        ("Deployment", "ReplicaSet", "ReplicationController", "DaemonSet", "StatefulSet", "Job"),
        ("spec", "template", "spec"),
    ),
}
_check_pod_details = _later("pod_details", "check_details")


def _check_pod_spec(new: Document, old: Document | None, errors: Errors) -> None:
    """Details that few pods have. What is stored may be older than the rules, so it is checked where it changes, which it never does in pods."""
    place = _POD_SPECS.get(new.get("kind", ""))
    if place is None or (old is not None and place == ("spec",)):
        return
    spec = mapping(new, *place)
    if has_details(spec) and (old is None or spec != mapping(old, *place)):
        _check_pod_details(new, spec, ".".join(place), errors)


def validate_create(document: Document, context: ValidationContext) -> list[FieldError]:
    """The field errors of a new object."""
    errors = Errors()
    kind = document.get("kind", "")
    check = _CHECKS.get(kind, _nothing)
    claims.check_requested_admin_access(document, context, errors)
    # Errors about metadata come before those about the spec, but for device classes.
    if kind == "DeviceClass":
        check(document, None, context, errors)
    check_metadata(document, "metadata", errors, namespaced=is_namespaced(kind))
    if kind != "DeviceClass":
        check(document, None, context, errors)
    _check_pod_spec(document, None, errors)
    return _as_requested(errors, context)


def _nothing(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    """For kinds that have no rules beyond metadata."""


def validate_update(new: Document, old: Document, context: ValidationContext) -> list[FieldError]:
    """The field errors of a changed object, without its status."""
    errors = Errors()
    kind = new.get("kind", "")
    _check_metadata_update(new, old, context, errors)
    if check := _CHECKS.get(kind):
        check(new, old, context, errors)
    _check_pod_spec(new, old, errors)
    return _as_requested(errors, context)


def validate_status_update(new: Document, old: Document, context: ValidationContext) -> list[FieldError]:
    """The field errors of a changed status; the rest was taken over from the stored object."""
    errors = Errors()
    kind = new.get("kind", "")
    _check_metadata_update(new, old, context, errors, only_status=True)
    if check := _STATUS_CHECKS.get(kind):
        check(new, old, context, errors)
    return _as_requested(errors, context)


def validate_approval(new: Document, old: Document, context: ValidationContext) -> list[FieldError]:
    """The field errors of the decision about a CertificateSigningRequest."""
    from dray.validation.certificate_requests import check_approval

    errors = Errors()
    _check_metadata_update(new, old, context, errors)
    check_approval(new, old, errors)
    return _as_requested(errors, context)


def _check_metadata_update(
    new: Document, old: Document, context: ValidationContext, errors: Errors, *, only_status: bool = False
) -> None:
    api_version = context.api_version or new.get("apiVersion", "")
    strategy = strategy_for(api_version, new.get("kind", ""))
    conditional = api_version.rpartition("/")[2] in strategy.conditional_versions
    check_metadata_update(
        new,
        old,
        "metadata",
        errors,
        needs_resource_version=conditional,
        only_status=only_status,
        trusts_stored=context.trusts_stored,
    )


# --- paths as the client's version has them --------------------------------------------------------------------------

_EXACTLY = re.compile(r"(requests\[\d+\])\.exactly\.")
_DEVICE_FIELD = re.compile(r"^(spec\.devices\[\d+\])\.(?!name\b)")


def _as_requested(errors: Errors, context: ValidationContext) -> list[FieldError]:
    """Errors of handwritten rules come first. Generated rules name fields in the client's version, the others in v1."""
    if not errors.found:
        return []
    generated = [error for error in errors.found if error.declarative]
    if context.api_version.endswith("/v1beta1"):
        generated = [replace(error, field=_v1beta1_path(error.field)) for error in generated]
    return [error for error in errors.found if not error.declarative] + generated


def _v1beta1_path(path: str) -> str:
    return _DEVICE_FIELD.sub(r"\1.basic.", _EXACTLY.sub(r"\1.", path))
