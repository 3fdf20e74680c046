"""Opaque parameters of a claim: which CPUs it wants, in the shape of dra-driver-cpu."""

from collections.abc import Iterable

import msgspec

from dray.api.cpuset import parse_cpu_list
from dray.driver.plugin import DeviceConfig, PrepareError, wrong_parameter

API_VERSION = "v1alpha1"


class CpuChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpuset: str = ""


class CpuParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api_version: str
    cpu_config: CpuChoice = CpuChoice()


def wanted_cpus(configs: Iterable[DeviceConfig]) -> set[int] | None:
    """The CPUs that the last parameters name; None if they leave the choice to the driver. PrepareError names the field."""
    wanted = None
    for config in configs:
        wanted = read_parameters(config)
    return wanted


def read_parameters(config: DeviceConfig) -> set[int] | None:
    if config.is_from_class:
        raise PrepareError("opaque parameters: a class cannot choose CPUs, which one claim at a time can have")
    parameters = config.read(CpuParameters)
    if parameters.api_version != API_VERSION:
        raise wrong_parameter("apiVersion", parameters.api_version, f"must be {API_VERSION}")
    text = parameters.cpu_config.cpuset
    try:
        return parse_cpu_list(text) or None
    except ValueError:
        raise wrong_parameter("cpuConfig.cpuset", text, "must be a list such as 2-5,8") from None
