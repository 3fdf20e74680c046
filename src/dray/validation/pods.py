"""Pods: the parts that ask for devices, and the ground rules without which no pod can be placed or run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dray.api import names
from dray.api.dra.qos import is_pod_level_resource
from dray.api.quantity import Quantity
from dray.validation import pod_fields
from dray.validation.equality import same
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.quotas import STANDARD_NAMES, check_amount, is_extended
from dray.validation.security_contexts import check_container_context, check_pod_context

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
RESTART_POLICIES = ("Always", "OnFailure", "Never")
ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
DEVICE_ATTRIBUTE_SOURCE = "resourceSliceAttributeRef"


@dataclass(frozen=True, slots=True)
class _Known:
    """Names that containers may refer to."""

    claims: set[str]
    volumes: set[str]
    # Root of the pod is nobody on the node.
    has_own_users: bool = False


def check_pod(document: Document, context: ValidationContext, errors: Errors) -> None:
    spec = document.get("spec") or {}
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    claims = spec.get("resourceClaims") or []
    mirrored = annotations.get(MIRROR_ANNOTATION) is not None
    check_pod_spec(spec, "spec", context, errors, mirrored=mirrored)
    if mirrored and claims:
        errors.forbidden("[]", "static pods do not support resource claims")
    if mirrored and not spec.get("nodeName"):
        here = f"metadata.annotations[{MIRROR_ANNOTATION}]"
        detail = "must set spec.nodeName if mirror pod annotation is set"
        errors.invalid(here, annotations[MIRROR_ANNOTATION], detail)


def check_pod_spec(
    spec: Document, path: str, context: ValidationContext, errors: Errors, *, mirrored: bool = False
) -> None:
    """Also for the pod templates of the kinds that make pods. The claims of a mirror pod are refused as a whole."""
    volumes = pod_fields.check_volumes(spec.get("volumes") or [], f"{path}.volumes", errors)
    claims = spec.get("resourceClaims") or []
    if mirrored:
        claim_names = {name for claim in claims if (name := claim.get("name"))}
    else:
        claim_names = check_claim_entries(claims, f"{path}.resourceClaims", errors)
    _check_volume_items(spec.get("volumes") or [], claim_names, f"{path}.volumes", context, errors)
    _check_containers(spec, path, _Known(claim_names, volumes, spec.get("hostUsers") is False), context, errors)
    if level := spec.get("resources"):
        if references := level.get("claims"):
            errors.forbidden(f"{path}.resources.claims", "claims may not be set for Resources at pod-level")
        _check_amounts(level, f"{path}.resources", errors, _check_pod_level_name)
        _check_references(references or [], claim_names, f"{path}.resources.claims", errors)
        check_budget(spec, path, errors)
    policy = spec.get("restartPolicy")
    if policy and policy not in RESTART_POLICIES:
        errors.not_supported(f"{path}.restartPolicy", policy, RESTART_POLICIES)
    pod_fields.check_dns_policy(spec, path, errors)
    pod_fields.check_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector", errors)
    pod_fields.check_scheduling_gates(spec.get("schedulingGates") or [], f"{path}.schedulingGates", errors)
    for field in ("nodeName", "serviceAccountName"):
        if name := spec.get(field):
            errors.each_invalid(f"{path}.{field}", name, names.subdomain_problems(name))
    check_pod_context(spec.get("securityContext") or {}, f"{path}.securityContext", errors)
    pod_fields.check_deadline(spec, path, errors)
    pod_fields.check_tolerations(spec.get("tolerations") or [], f"{path}.tolerations", errors)
    check_overhead(spec.get("overhead") or {}, f"{path}.overhead", errors)
    if (group := spec.get("schedulingGroup")) is not None:
        _check_scheduling_group(group, f"{path}.schedulingGroup", errors)


def _check_scheduling_group(group: Document, path: str, errors: Errors) -> None:
    name = group.get("podGroupName")
    if name is None:
        errors.invalid(path, "", "must specify one of: `podGroupName`", declarative=True)
    else:
        problems = names.subdomain_problems(name)
        errors.each_invalid(f"{path}.podGroupName", name, problems, declarative=True)


# --- claims ----------------------------------------------------------------------------------------------------------


def check_claim_entries(claims: list[Document], path: str, errors: Errors) -> set[str]:
    known: set[str] = set()
    for i, claim in enumerate(claims):
        here = f"{path}[{i}]"
        name = claim.get("name") or ""
        if not name:
            errors.required(f"{here}.name")
        elif name in known:
            errors.duplicate(f"{here}.name", name)
        else:
            errors.each_invalid(f"{here}.name", name, names.label_problems(name))
            known.add(name)
        _check_claim_source(claim, here, errors)
    return known


def _check_claim_source(claim: Document, path: str, errors: Errors) -> None:
    direct, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
    shown = {"Name": claim.get("name") or "", "ResourceClaimName": direct, "ResourceClaimTemplateName": template}
    if direct is not None and template is not None:
        detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        errors.invalid(path, shown, detail)
    if direct is None and template is None:
        errors.invalid(path, shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
    for field, name in (("resourceClaimName", direct), ("resourceClaimTemplateName", template)):
        if name is not None:
            errors.each_invalid(f"{path}.{field}", name, names.subdomain_problems(name))


def _check_references(references: list[Document], known: set[str], path: str, errors: Errors) -> None:
    """Which claims, or which of their requests, a container uses."""
    seen: set[str] = set()
    parts: set[str] = set()
    for i, reference in enumerate(references):
        here = f"{path}[{i}]"
        name, request = reference.get("name") or "", reference.get("request") or ""
        if not name:
            errors.required(here)
            continue
        mark = f"{name}/{request}" if request else name
        if mark in seen or name in seen or (not request and name in parts):
            errors.duplicate(here, mark)
        if request:
            errors.each_invalid(f"{here}.request", request, names.label_problems(request))
            parts.add(name)
        seen.add(mark)
        if name not in known:
            rest = f": {', '.join(sorted(known))}" if known else " which is empty"
            errors.not_found(here, name, f"must be one of the names in pod.spec.resourceClaims{rest}")


# --- containers ------------------------------------------------------------------------------------------------------


def _check_containers(spec: Document, path: str, known: _Known, context: ValidationContext, errors: Errors) -> None:
    if not spec.get("containers"):
        errors.required(f"{path}.containers")
    seen: set[str] = set()
    for here, container in containers_of(spec, path):
        name = container.get("name") or ""
        _check_container(container, here, known, context, errors)
        if name in seen:
            errors.duplicate(f"{here}.name", name)
        seen.add(name)


def _check_container(container: Document, path: str, known: _Known, context: ValidationContext, errors: Errors) -> None:
    name, image = container.get("name") or "", container.get("image") or ""
    if not name:
        errors.required(f"{path}.name")
    else:
        errors.each_invalid(f"{path}.name", name, names.label_problems(name))
    if not image:
        errors.required(f"{path}.image")
    elif image != image.strip():
        errors.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    pod_fields.check_ports(container.get("ports") or [], f"{path}.ports", errors)
    for i, variable in enumerate(container.get("env") or ()):
        _check_variable(variable, known.claims, f"{path}.env[{i}]", context, errors)
    pod_fields.check_mounts(container.get("volumeMounts") or [], known.volumes, f"{path}.volumeMounts", errors)
    pod_fields.check_pull_policy(container, path, errors)
    resources = container.get("resources") or {}
    _check_amounts(resources, f"{path}.resources", errors, _check_resource_name)
    _check_references(resources.get("claims") or [], known.claims, f"{path}.resources.claims", errors)
    own = container.get("securityContext") or {}
    check_container_context(own, f"{path}.securityContext", errors, has_own_users=known.has_own_users)


def containers_of(spec: Document, path: str = "spec") -> Iterator[tuple[str, Document]]:
    """Regular containers, then init containers, each with its path."""
    for field in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(field) or ()):
            yield f"{path}.{field}[{i}]", container


def _check_amounts(
    resources: Document, path: str, errors: Errors, check_name: Callable[[str, str, Errors], None]
) -> None:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, amount in limits.items():
        check_name(name, f"{path}.limits", errors)
        check_amount(name, amount, f"{path}.limits[{name}]", errors)
    for name, amount in requests.items():
        check_name(name, f"{path}.requests", errors)
        check_amount(name, amount, f"{path}.requests[{name}]", errors)
        _check_against_limit(name, amount, limits.get(name), path, errors)
    if any(name.startswith("hugepages-") for name in (*limits, *requests)) and not {"cpu", "memory"} & {
        *limits,
        *requests,
    }:
        errors.forbidden(path, "HugePages require cpu or memory")


def check_overhead(overhead: Document, path: str, errors: Errors) -> None:
    """What a runtime takes for each pod: amounts as the limits of a container have them."""
    _check_amounts({"limits": overhead}, path, errors, _check_resource_name)


def _check_against_limit(name: str, amount: str, limit: str | None, path: str, errors: Errors) -> None:
    fixed = is_extended(name) or name.startswith("hugepages-")
    if limit is None:
        if fixed:
            errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        return
    wanted, most = Quantity.parse(amount), Quantity.parse(limit)
    if fixed and wanted != most:
        errors.invalid(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
    elif wanted > most:
        errors.invalid(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limit}")


CONTAINER_NAMES = ("cpu", "memory", "ephemeral-storage")


def _check_resource_name(name: str, path: str, errors: Errors) -> None:
    errors.each_invalid(f"{path}[{name}]", name, names.qualified_name_problems(name))
    if "/" not in name and name not in CONTAINER_NAMES and not name.startswith("hugepages-"):
        errors.invalid(f"{path}[{name}]", name, "must be a standard resource for containers")


POD_LEVEL_NAMES = ("cpu", "hugepages-", "memory")


def _check_pod_level_name(name: str, path: str, errors: Errors) -> None:
    problems = names.qualified_name_problems(name)
    errors.each_invalid(f"{path}[{name}]", name, problems)
    if not problems and "/" not in name and name not in STANDARD_NAMES and not is_pod_level_resource(name):
        errors.invalid(f"{path}[{name}]", name, "must be a standard resource type or fully qualified")
    elif not problems and not is_pod_level_resource(name):
        errors.not_supported(f"{path}[{name}]", name, POD_LEVEL_NAMES)


def _check_variable(
    variable: Document, claims: set[str], path: str, context: ValidationContext, errors: Errors
) -> None:
    if not variable.get("name"):
        errors.required(f"{path}.name")
    source = variable.get("valueFrom")
    if source is None:
        return
    possible: tuple[str, ...] = ENV_SOURCES
    if context.enabled("DRADownwardDeviceAttributes"):
        possible = (*ENV_SOURCES, DEVICE_ATTRIBUTE_SOURCE)
    said = [name for name in (*ENV_SOURCES, DEVICE_ATTRIBUTE_SOURCE) if source.get(name) is not None]
    here = f"{path}.valueFrom"
    if DEVICE_ATTRIBUTE_SOURCE in said and DEVICE_ATTRIBUTE_SOURCE not in possible:
        errors.forbidden(f"{here}.{DEVICE_ATTRIBUTE_SOURCE}", "needs the feature gate DRADownwardDeviceAttributes")
    elif not said:
        errors.invalid(here, "", "must specify one of: " + ", ".join(f"`{name}`" for name in possible))
    elif variable.get("value"):
        errors.invalid(here, "", "may not be specified when `value` is not empty")
    elif len(said) > 1:
        errors.invalid(here, "", "may not have more than one field specified at a time")
    elif said == [DEVICE_ATTRIBUTE_SOURCE]:
        _check_attribute_source(source[DEVICE_ATTRIBUTE_SOURCE], claims, f"{here}.{DEVICE_ATTRIBUTE_SOURCE}", errors)


def _check_volume_items(
    volumes: list[Document], claims: set[str], path: str, context: ValidationContext, errors: Errors
) -> None:
    """Files of downward API volumes that refer to attributes of devices."""
    for i, volume in enumerate(volumes):
        sources = [(f"{path}[{i}].downwardAPI", volume.get("downwardAPI"))]
        projections = (volume.get("projected") or {}).get("sources") or []
        for j, each in enumerate(projections):
            sources.append((f"{path}[{i}].projected.sources[{j}].downwardAPI", each.get("downwardAPI")))
        for here, source in sources:
            for k, item in enumerate((source or {}).get("items") or []):
                if item.get(DEVICE_ATTRIBUTE_SOURCE) is not None:
                    _check_attribute_item(item, claims, f"{here}.items[{k}]", context, errors)


def _check_attribute_item(
    item: Document, claims: set[str], path: str, context: ValidationContext, errors: Errors
) -> None:
    here = f"{path}.{DEVICE_ATTRIBUTE_SOURCE}"
    if not context.enabled("DRADownwardDeviceAttributes"):
        errors.forbidden(here, "needs the feature gate DRADownwardDeviceAttributes")
    elif item.get("fieldRef") is not None or item.get("resourceFieldRef") is not None:
        errors.invalid(path, "", "may not have more than one field specified at a time")
    else:
        _check_attribute_source(item[DEVICE_ATTRIBUTE_SOURCE], claims, here, errors)
    if not item.get("path"):
        errors.required(f"{path}.path")
    elif item["path"].startswith("/") or ".." in item["path"].split("/"):
        errors.invalid(f"{path}.path", item["path"], "must be a relative path without '..'")


def _check_attribute_source(source: Document, claims: set[str], path: str, errors: Errors) -> None:
    """KEP-5304: an attribute of the devices that a request of one of the pod's claims was given."""
    for field in ("claimName", "requestName"):
        name = source.get(field) or ""
        if not name:
            errors.required(f"{path}.{field}")
        else:
            errors.each_invalid(f"{path}.{field}", name, names.label_problems(name))
    if not source.get("attribute"):
        errors.required(f"{path}.attribute")
    claim = source.get("claimName") or ""
    if claim and claim not in claims:
        errors.not_found(f"{path}.claimName", claim, "must be one of the names in pod.spec.resourceClaims")


# --- update ----------------------------------------------------------------------------------------------------------

_UPDATE_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_new_pod(document: Document, context: ValidationContext, errors: Errors) -> None:
    check_pod(document, context, errors)
    if (document.get("spec") or {}).get("ephemeralContainers"):
        errors.forbidden("spec.ephemeralContainers", "cannot be set on create")


def check_pod_update(new: Document, old: Document, context: ValidationContext, errors: Errors) -> None:
    """Checks the new spec, and that only a few of its fields changed."""
    check_pod(new, context, errors)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    gated = bool(before.get("schedulingGates"))
    counts_differ = [
        field
        for field in ("containers", "initContainers")
        if len(spec.get(field) or ()) != len(before.get(field) or ())
    ]
    if counts_differ:
        for field in counts_differ:
            errors.forbidden(f"spec.{field}", "pod updates may not add or remove containers")
        return
    if not same(_fixed_parts(spec, gated), _fixed_parts(before, gated)):
        changed = sorted(k for k in spec.keys() | before.keys() if not same(spec.get(k), before.get(k)))
        errors.forbidden("spec", f"{_UPDATE_RULE}; changed: {', '.join(changed)}")
    _check_tolerations_kept(spec, before, errors)
    _check_gates_only_removed(spec, before, errors)
    _check_deadline(spec, before, errors)


def _fixed_parts(spec: Document, gated: bool) -> Document:
    """The spec without the fields that an update may change. A gated pod may still change its node selection."""
    free = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if gated:
        free |= {"nodeSelector", "affinity"}
    made = {key: value for key, value in spec.items() if key not in free}
    for field in ("containers", "initContainers"):
        if made.get(field):
            made[field] = [{k: v for k, v in c.items() if k != "image"} for c in made[field]]
    if (made.get("terminationGracePeriodSeconds") or 0) in (-1, 1):
        made["terminationGracePeriodSeconds"] = 1
    return made


def _check_tolerations_kept(spec: Document, before: Document, errors: Errors) -> None:
    tolerations = spec.get("tolerations") or []
    for toleration in before.get("tolerations") or []:
        loose = {k: v for k, v in toleration.items() if k != "tolerationSeconds"}
        if not any({k: v for k, v in t.items() if k != "tolerationSeconds"} == loose for t in tolerations):
            errors.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
            return


def _check_gates_only_removed(spec: Document, before: Document, errors: Errors) -> None:
    known = {gate.get("name") for gate in before.get("schedulingGates") or ()}
    for gate in spec.get("schedulingGates") or ():
        if gate.get("name") not in known:
            detail = "only deletion is allowed, but found new scheduling gate"
            errors.forbidden("spec.schedulingGates", f"{detail} '{gate.get('name')}'")


def _check_deadline(spec: Document, before: Document, errors: Errors) -> None:
    deadline, old = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if old is not None and deadline is None:
        errors.invalid(path, None, "must not update from a positive integer to nil value")
    elif isinstance(old, int) and isinstance(deadline, int) and deadline > old:
        errors.invalid(path, deadline, "must be less than or equal to previous value")
    if isinstance(deadline, int) and deadline != old and not 0 < deadline < 2**31:
        errors.invalid(path, deadline, "must be between 1 and 2147483647, inclusive")


def requested_resources(container: Document) -> dict[str, Any]:
    """Requests of a container; what it only limits, it asks for as well."""
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


Amounts = dict[str, Quantity]


def check_budget(spec: Document, path: str, errors: Errors) -> None:
    resources = spec.get("resources") or {}
    requests, limits = _amounts(resources, "requests"), _amounts(resources, "limits")
    for name, asked in sorted(_aggregated(spec, "requests").items()):
        if name in requests and asked > requests[name]:
            detail = f"must be greater than or equal to aggregate container requests of {asked}"
            errors.invalid(f"{path}.resources.requests[{name}]", str(requests[name]), detail)
    for name, asked in sorted(_aggregated(spec, "limits").items()):
        if name.startswith("hugepages-") and name in limits and asked > limits[name]:
            detail = f"must be greater than or equal to aggregate container limits of {asked}"
            errors.invalid(f"{path}.resources.limits[{name}]", str(limits[name]), detail)
    for field in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(field) or ()):
            for name, own in sorted(_amounts(container.get("resources") or {}, "limits").items()):
                if name in limits and own > limits[name]:
                    here = f"{path}.{field}[{i}].resources.limits[{name}]"
                    errors.invalid(here, str(own), f"must be less than or equal to pod limits of {limits[name]}")


def _amounts(resources: Document, field: str) -> Amounts:
    return {name: Quantity.parse(amount) for name, amount in (resources.get(field) or {}).items()}


def _aggregated(spec: Document, field: str) -> Amounts:
    """The requests of all containers: the sum of those that run together, or the largest init container if that is more."""
    together: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container.get("resources") or {}, field)
        if container.get("restartPolicy") == "Always":
            together = _merged(together, own, Quantity.__add__)
            most = _merged(most, together, max)
        else:
            most = _merged(most, _merged(together, own, Quantity.__add__), max)
    for container in spec.get("containers") or ():
        together = _merged(together, _amounts(container.get("resources") or {}, field), Quantity.__add__)
    return _merged(most, together, max)


def _merged(one: Amounts, other: Amounts, combine: Callable[[Quantity, Quantity], Quantity]) -> Amounts:
    both = {name: combine(one[name], other[name]) for name in one if name in other}
    return one | other | both
