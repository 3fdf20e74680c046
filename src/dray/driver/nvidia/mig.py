"""Makes and removes MIG instances on a card on which an administrator has turned MIG on. Only used with `--dynamic-mig`."""

import contextlib
from typing import Any

from dray.driver.nvidia.cards import Card, MigInstance, MigProfile, read_cards
from dray.driver.plugin import PrepareError


def make_instance(nvml: Any, card: Card, profile: MigProfile, start: int) -> MigInstance:
    """The instance at this place, made unless it is there; a half-made one is removed again."""
    found = _find(nvml, card, profile, start)
    if found is not None:
        return found
    handle = nvml.nvmlDeviceGetHandleByUUID(card.uuid)
    place = nvml.c_nvmlGpuInstancePlacement_t(start, profile.size)
    try:
        gpu_instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile.id, place)
    except nvml.NVMLError as error:
        raise PrepareError(
            f"card {card.name}: MIG instance {profile.name} at {start} cannot be made: {error}"
        ) from error
    try:
        whole = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
            gpu_instance, _whole_compute_profile(nvml, profile), nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
        )
        nvml.nvmlGpuInstanceCreateComputeInstance(gpu_instance, whole.id)
    except nvml.NVMLError as error:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlGpuInstanceDestroy(gpu_instance)
        raise PrepareError(f"card {card.name}: MIG instance {profile.name} cannot compute: {error}") from error
    made = _find(nvml, card, profile, start)
    if made is None:
        raise PrepareError(f"card {card.name}: MIG instance {profile.name} at {start} was made and is not there")
    return made


def remove_instance(nvml: Any, card: Card, profile: MigProfile, start: int) -> None:
    """Removes the instance at this place; one that is not there is fine."""
    found = _find(nvml, card, profile, start)
    if found is None:
        return
    handle = nvml.nvmlDeviceGetHandleByUUID(card.uuid)
    gpu_instance = nvml.nvmlDeviceGetGpuInstanceById(handle, found.gpu_instance)
    try:
        nvml.nvmlComputeInstanceDestroy(
            nvml.nvmlGpuInstanceGetComputeInstanceById(gpu_instance, found.compute_instance)
        )
        nvml.nvmlGpuInstanceDestroy(gpu_instance)
    except nvml.NVMLError as error:
        raise PrepareError(
            f"card {card.name}: MIG instance {profile.name} at {start} cannot be removed: {error}"
        ) from error


def _find(nvml: Any, card: Card, profile: MigProfile, start: int) -> MigInstance | None:
    now = next((each for each in read_cards(nvml) if each.uuid == card.uuid), None)
    instances = now.instances if now is not None else ()
    return next((each for each in instances if each.profile.id == profile.id and each.start == start), None)


def _whole_compute_profile(nvml: Any, profile: MigProfile) -> int:
    """The compute instance that takes all slices of its GPU instance: `3g.71gb` has three."""
    slices = int(profile.name.partition("g")[0])
    return int(getattr(nvml, f"NVML_COMPUTE_INSTANCE_PROFILE_{slices}_SLICE"))
