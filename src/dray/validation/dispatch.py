"""Chooses the rules for a request: by kind, and by whether it creates an object, changes it, or changes its status."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from dray.api.scheme import is_namespaced
from dray.api.strategies import strategy_for
from dray.validation import (
    autoscalers,
    claim_status,
    claims,
    cluster_kinds,
    core_kinds,
    device_classes,
    device_taint_rules,
    disruption_budgets,
    events,
    ingresses,
    jobs,
    key_values,
    limit_ranges,
    pod_groups,
    pod_status,
    pod_templates,
    pods,
    pool_status,
    quotas,
    rbac,
    services,
    slices,
    volumes,
    webhooks,
    workloads,
)
from dray.validation.errors import Document, Errors, FieldError, ValidationContext
from dray.validation.metadata import check_metadata, check_metadata_update

Check = Callable[[Document, Document | None, ValidationContext, Errors], None]


def _once(check: Callable[[Document, Errors], None]) -> Check:
    return lambda new, old, context, errors: check(new, errors)


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
    if old is None:
        pool_status.check_request(new, context, errors)
    else:
        pool_status.check_request_update(new, old, errors)


_CHECKS: dict[str, Check] = {
    "ResourceSlice": slices.check_slice,
    "ResourceClaim": _claims,
    "ResourceClaimTemplate": claims.check_template,
    "DeviceClass": device_classes.check_class,
    "DeviceTaintRule": lambda new, old, context, errors: device_taint_rules.check_rule(new, old, errors),
    "ResourcePoolStatusRequest": _pool_status,
    "Pod": _pods,
    "Node": lambda new, old, context, errors: core_kinds.check_node(new, old, errors),
    "ResourceQuota": lambda new, old, _, errors: quotas.check_quota(new, old, errors),
    "LimitRange": _once(limit_ranges.check_limit_range),
    "Event": events.check_event,
    "Namespace": _once(core_kinds.check_namespace),
    "Lease": _once(core_kinds.check_lease),
    "Service": lambda new, old, _, errors: services.check_service(new, old, errors),
    **dict.fromkeys(("Secret", "ConfigMap"), lambda new, old, _, errors: key_values.check_key_values(new, old, errors)),
    "PriorityClass": lambda new, old, _, errors: core_kinds.check_priority_class(new, old, errors),
    "PodGroup": lambda new, old, _, errors: pod_groups.check_group(new, old, errors),
    "Workload": lambda new, old, _, errors: pod_groups.check_workload(new, old, errors),
    **dict.fromkeys(("Role", "ClusterRole"), _once(rbac.check_role)),
    **dict.fromkeys(
        ("RoleBinding", "ClusterRoleBinding"), lambda new, old, _, errors: rbac.check_binding(new, old, errors)
    ),
    **dict.fromkeys(
        ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
        lambda new, old, _, errors: webhooks.check_webhooks(new, old, errors),
    ),
    "Deployment": workloads.check_deployment,
    "ReplicaSet": workloads.check_replica_set,
    "ReplicationController": workloads.check_replication_controller,
    "DaemonSet": workloads.check_daemon_set,
    "StatefulSet": workloads.check_stateful_set,
    "Job": jobs.check_job,
    "CronJob": jobs.check_cron_job,
    "PodTemplate": lambda new, old, context, errors: pod_templates.check_pod_template(new, context, errors),
    "PodDisruptionBudget": _once(disruption_budgets.check_budget),
    "PersistentVolumeClaim": lambda new, old, _, errors: volumes.check_volume_claim(new, old, errors),
    "StorageClass": lambda new, old, _, errors: volumes.check_storage_class(new, old, errors),
    "RuntimeClass": cluster_kinds.check_runtime_class,
    "EndpointSlice": cluster_kinds.check_endpoint_slice,
    "ControllerRevision": cluster_kinds.check_revision,
    "Ingress": lambda new, old, _, errors: ingresses.check_ingress(new, old, errors),
    "IngressClass": lambda new, old, _, errors: ingresses.check_ingress_class(new, old, errors),
    "NetworkPolicy": _once(ingresses.check_network_policy),
    "HorizontalPodAutoscaler": lambda new, old, _, errors: autoscalers.check_autoscaler(new, old, errors),
}

_STATUS_CHECKS: dict[str, Callable[[Document, Document, ValidationContext, Errors], None]] = {
    "ResourceClaim": claim_status.check_claim_status,
    "DeviceTaintRule": lambda new, old, context, errors: device_taint_rules.check_rule_status(new, errors),
    "ResourcePoolStatusRequest": lambda new, old, context, errors: pool_status.check_request_status(new, old, errors),
    "Node": lambda new, old, context, errors: core_kinds.check_node_status(new, old, errors),
    "Pod": lambda new, old, context, errors: pod_status.check_pod_status(new, old, errors, context),
    "PodGroup": lambda new, old, context, errors: pod_groups.check_group_status(new, errors),
}


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
    return _as_requested(errors, context)


def validate_status_update(new: Document, old: Document, context: ValidationContext) -> list[FieldError]:
    """The field errors of a changed status; the rest was taken over from the stored object."""
    errors = Errors()
    kind = new.get("kind", "")
    _check_metadata_update(new, old, context, errors, only_status=True)
    if check := _STATUS_CHECKS.get(kind):
        check(new, old, context, errors)
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
