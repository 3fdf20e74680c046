"""A container's environment: literal values, and references to the pod, its resources, config, secrets and devices. Pure.

What a reference needs is looked up by the caller and handed in as `EnvironmentSources`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dray.api.core import (
    Container,
    DownwardAPIVolumeFile,
    EnvVar,
    EnvVarSource,
    Pod,
    ResourceFieldSelector,
    ResourceSliceAttributeSelector,
)
from dray.api.quantity import Quantity
from dray.api.resource import Device, DeviceAttribute, ResourceClaim
from dray.kubelet.errors import ContainerError

CONFIG_ERROR = "CreateContainerConfigError"
# Characters. Linux starts no program with more than 2 MiB of arguments and environment.
MOST_EXPANDED = 2**21
# A driver that restarts publishes its devices again within this time, and so does one whose node agent has restarted.
MISSING_DEVICE_FINAL_AFTER_S = 60.0
_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")

FindDevice = Callable[[str, str, str], Device | None]
"""The published device of (driver, pool, name), or None."""


@dataclass(frozen=True, slots=True)
class EnvironmentSources:
    """What environment variables may refer to."""

    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    claims: Mapping[str, ResourceClaim] = field(default_factory=dict)
    """Claims by their name in the pod spec."""
    find_device: FindDevice = lambda driver, pool, name: None
    node_allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    pod_ip: str = ""
    host_ip: str = ""
    device_attributes_enabled: bool = True


def container_environment(pod: Pod, container: Container, sources: EnvironmentSources) -> dict[str, str]:
    """Every variable of the container, in order; ContainerError says which reference cannot be resolved."""
    environment: dict[str, str] = {}
    for source in container.env_from:
        for reference, maps, kind in (
            (source.config_map_ref, sources.config_maps, "configmap"),
            (source.secret_ref, sources.secrets, "secret"),
        ):
            if reference is None:
                continue
            values = maps.get(reference.name)
            if values is None and not reference.optional:
                raise ContainerError(CONFIG_ERROR, f'{kind} "{reference.name}" not found')
            environment |= {f"{source.prefix}{key}": value for key, value in (values or {}).items()}
    size = sum(map(len, environment.values()))
    for variable in container.env:
        if size > MOST_EXPANDED:
            break
        value = _value_of(pod, container, variable, environment, sources)
        if value is not None:
            environment[variable.name] = value
            size += len(value)
    if size > MOST_EXPANDED:
        raise _too_long()
    return environment


def expand(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` by its value, `$$` by a dollar; unknown names stay as they are. Variables that name variables can double each time."""
    length = 0

    def replacement(match: re.Match[str]) -> str:
        nonlocal length
        if match.group(1) == "$":
            return "$"
        value = environment.get(match.group(2), match.group(0))
        length += len(value)
        if length > MOST_EXPANDED:
            raise _too_long()
        return value

    return _REFERENCE.sub(replacement, text)


def _too_long() -> ContainerError:
    return ContainerError(CONFIG_ERROR, f"environment and arguments must not be longer than {MOST_EXPANDED} characters")


def _value_of(
    pod: Pod, container: Container, variable: EnvVar, environment: Mapping[str, str], sources: EnvironmentSources
) -> str | None:
    source = variable.value_from
    if source is None:
        return expand(variable.value, environment)
    if source.field_ref or source.resource_field_ref or source.resource_slice_attribute_ref:
        return downward_value(pod, container, source, sources)
    for reference, maps, kind in (
        (source.config_map_key_ref, sources.config_maps, "configmap"),
        (source.secret_key_ref, sources.secrets, "secret"),
    ):
        if reference is None:
            continue
        values = maps.get(reference.name)
        if values is not None and reference.key in values:
            return values[reference.key]
        if reference.optional:
            return None
        missing = (
            f'{kind} "{reference.name}" not found'
            if values is None
            else f"couldn't find key {reference.key} in {kind} {pod.metadata.namespace}/{reference.name}"
        )
        raise ContainerError(CONFIG_ERROR, missing)
    raise ContainerError(CONFIG_ERROR, f"environment variable {variable.name}: its source is not supported here")


def downward_value(
    pod: Pod, container: Container, source: EnvVarSource | DownwardAPIVolumeFile, sources: EnvironmentSources
) -> str | None:
    """What a reference of the downward API stands for; None where a gate leaves it out."""
    if source.field_ref is not None:
        path = source.field_ref.field_path
        if isinstance(source, DownwardAPIVolumeFile) and path in ("metadata.labels", "metadata.annotations"):
            texts = pod.metadata.labels if path == "metadata.labels" else pod.metadata.annotations
            return "\n".join(f"{key}={json.dumps(texts[key], ensure_ascii=False)}" for key in sorted(texts))
        return _pod_field(pod, path, sources)
    if source.resource_field_ref is not None:
        return _resource_field(pod, container, source.resource_field_ref, sources)
    if source.resource_slice_attribute_ref is None or not sources.device_attributes_enabled:
        return None
    return device_attributes(source.resource_slice_attribute_ref, sources)


def _pod_field(pod: Pod, path: str, sources: EnvironmentSources) -> str:
    metadata = pod.metadata
    plain = {
        "metadata.name": metadata.name,
        "metadata.namespace": metadata.namespace,
        "metadata.uid": metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": sources.host_ip,
        "status.hostIPs": sources.host_ip,
        "status.podIP": sources.pod_ip,
        "status.podIPs": sources.pod_ip,
    }
    if path in plain:
        return plain[path]
    match = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if match:
        return (metadata.labels if match.group(1) == "labels" else metadata.annotations).get(match.group(2), "")
    raise ContainerError(CONFIG_ERROR, f"field {path} cannot be used in the downward API")


def _resource_field(
    pod: Pod, container: Container, reference: ResourceFieldSelector, sources: EnvironmentSources
) -> str:
    owner = container
    if reference.container_name:
        named = [
            each for each in (*pod.spec.containers, *pod.spec.init_containers) if each.name == reference.container_name
        ]
        if not named:
            raise ContainerError(CONFIG_ERROR, f"container {reference.container_name} does not exist in this pod")
        owner = named[0]
    what, _, resource = reference.resource.partition(".")
    amounts = owner.resources.limits if what == "limits" else owner.resources.requests
    amount = amounts.get(resource)
    if amount is None and what == "limits":
        amount = sources.node_allocatable.get(resource)
    divisor = reference.divisor.nanos if reference.divisor is not None and reference.divisor.nanos > 0 else 10**9
    return str(-(-(amount.nanos if amount is not None else 0) // divisor))


# --- attributes of devices -------------------------------------------------------------------------------------------


def device_attributes(reference: ResourceSliceAttributeSelector, sources: EnvironmentSources) -> str:
    """The attribute's value on each device of the request, in the order of the allocation, joined with commas.

    The allocation of a claim in use does not change, so a request without devices stays without them. Drivers may publish
    again, but a device that is published without the attribute counts as one that does not have it.
    """
    where = f"claim {reference.claim_name}, request {reference.request_name}"
    claim = sources.claims.get(reference.claim_name)
    if claim is None or claim.status.allocation is None:
        raise ContainerError(CONFIG_ERROR, f"claim {reference.claim_name}: not allocated")
    results = [
        result
        for result in claim.status.allocation.devices.results
        if reference.request_name in (result.request, result.request.partition("/")[0])
    ]
    if not results:
        raise ContainerError(CONFIG_ERROR, f"{where}: no devices are allocated for this request", final_after_s=0.0)
    values: list[str] = []
    for result in results:
        name = f"{result.driver}/{result.pool}/{result.device}"
        device = sources.find_device(result.driver, result.pool, result.device)
        if device is None:
            raise ContainerError(
                CONFIG_ERROR,
                f"{where}: no ResourceSlice of this node has device {name}",
                final_after_s=MISSING_DEVICE_FINAL_AFTER_S,
            )
        attribute = _attribute_of(device, result.driver, reference.attribute)
        if attribute is None:
            raise ContainerError(
                CONFIG_ERROR, f"{where}: device {name} has no attribute {reference.attribute}", final_after_s=0.0
            )
        values.append(_text_of(attribute))
    return ",".join(values)


def _attribute_of(device: Device, driver: str, name: str) -> DeviceAttribute | None:
    """A bare name and the same name in the driver's domain mean the same attribute."""
    if name in device.attributes:
        return device.attributes[name]
    domain, separator, bare = name.rpartition("/")
    if not separator:
        return device.attributes.get(f"{driver}/{name}")
    return device.attributes.get(bare) if domain == driver else None


def _text_of(attribute: DeviceAttribute) -> str:
    single = (attribute.string, attribute.version, attribute.int_, attribute.bool_)
    lists = (attribute.strings, attribute.versions, attribute.ints, attribute.bools)
    for value in single:
        if value is not None:
            return _scalar_text(value)
    return ",".join(_scalar_text(value) for values in lists if values is not None for value in values)


def _scalar_text(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
