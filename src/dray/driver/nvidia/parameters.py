"""Opaque parameters of claims and classes: GpuConfig of `resource.nvidia.com`, as far as this driver can follow it. Pure."""

from collections.abc import Iterable

import msgspec

from dray.api.quantity import Quantity, QuantityError
from dray.driver.plugin import DeviceConfig, PrepareError, wrong_parameter

API_VERSION = "resource.nvidia.com/v1beta1"


class MpsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Limits for each process that uses the card through MPS."""

    default_active_thread_percentage: int | None = None
    default_pinned_device_memory_limit: str | None = None
    default_per_device_pinned_memory_limit: dict[str, str] = {}


class TimeSlicingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    interval: str = "Default"


class Sharing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    strategy: str
    mps_config: MpsConfig | None = None
    time_slicing_config: TimeSlicingConfig | None = None


class NvidiaGpuConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api_version: str
    kind: str
    sharing: Sharing | None = None


class MpsLimits(msgspec.Struct, frozen=True):
    """What the parameters ask for: None where they set no limit."""

    thread_percentage: int | None = None
    memory_bytes: int | None = None


def mps_limits(configs: Iterable[DeviceConfig], uuid: str) -> MpsLimits | None:
    """The limits that the last parameters set for the card, or None if they ask for no sharing.

    PrepareError names the field that this driver cannot follow.
    """
    config = None
    for each in configs:
        config = _checked(each)
    if config is None or config.sharing is None or config.sharing.strategy != "MPS":
        return None
    mps = config.sharing.mps_config or MpsConfig()
    limit = mps.default_per_device_pinned_memory_limit.get(uuid, mps.default_pinned_device_memory_limit)
    return MpsLimits(mps.default_active_thread_percentage, None if limit is None else _bytes(limit, _LIMIT))


_LIMIT = "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit"
_PER_DEVICE = "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit"


def _checked(given: DeviceConfig) -> NvidiaGpuConfig:
    config = given.read(NvidiaGpuConfig)
    if config.api_version != API_VERSION:
        raise wrong_parameter("apiVersion", config.api_version, f"must be {API_VERSION}")
    if config.kind != "GpuConfig":
        raise wrong_parameter("kind", config.kind, "must be GpuConfig")
    if config.sharing is not None:
        _check_sharing(config.sharing)
    return config


def _check_sharing(sharing: Sharing) -> None:
    if sharing.strategy == "TimeSlicing":
        _check_time_slicing(sharing)
    elif sharing.strategy == "MPS":
        if sharing.time_slicing_config is not None:
            raise PrepareError("opaque parameters: sharing.timeSlicingConfig: not allowed with strategy MPS")
        _check_mps(sharing.mps_config or MpsConfig())
    else:
        raise wrong_parameter("sharing.strategy", sharing.strategy, "must be MPS or TimeSlicing")


def _check_time_slicing(sharing: Sharing) -> None:
    """Every card shares its time among processes as it is; another interval would be a setting of the card."""
    if sharing.mps_config is not None:
        raise PrepareError("opaque parameters: sharing.mpsConfig: not allowed with strategy TimeSlicing")
    interval = (sharing.time_slicing_config or TimeSlicingConfig()).interval
    if interval != "Default":
        raise wrong_parameter(
            "sharing.timeSlicingConfig.interval",
            interval,
            "must be Default: this driver does not change settings of a card",
        )


def _check_mps(config: MpsConfig) -> None:
    percentage = config.default_active_thread_percentage
    if percentage is not None and not 0 < percentage <= 100:
        raise wrong_parameter("sharing.mpsConfig.defaultActiveThreadPercentage", percentage, "must be 1 to 100")
    if config.default_pinned_device_memory_limit is not None:
        _bytes(config.default_pinned_device_memory_limit, _LIMIT)
    for device, limit in config.default_per_device_pinned_memory_limit.items():
        if not device.startswith(("GPU-", "MIG-")):
            raise wrong_parameter(_PER_DEVICE, device, "this driver knows devices by UUID only")
        _bytes(limit, f"{_PER_DEVICE}[{device}]")


def _bytes(text: str, field: str) -> int:
    try:
        amount = Quantity.parse(text).value()
    except QuantityError as error:
        raise wrong_parameter(field, text, str(error)) from error
    if amount < 1 << 20:
        raise wrong_parameter(field, text, "must be at least 1Mi")
    return amount
