"""The driver: publishes cards, prepares claims for them, and looks after their health."""

import argparse
import asyncio
import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dray.api.cdi import ContainerEdits, DeviceNode, Mount
from dray.driver.nvidia import host_files, mig
from dray.driver.nvidia.cards import Card, MigInstance, MigProfile, load_nvml, read_cards
from dray.driver.nvidia.claim_records import CardRecord, CardRecords, CardUse
from dray.driver.nvidia.devices import counter_set_of, devices_of, largest_share, partition_name
from dray.driver.nvidia.health import HealthMonitor
from dray.driver.nvidia.mps import CONTROL, MpsDaemon, client_environment, thread_percentage
from dray.driver.nvidia.parameters import MpsLimits, mps_limits
from dray.driver.nvidia.usage import (
    PROC,
    CardUsage,
    CardUser,
    add_usage_metrics,
    claim_variable,
    labels_in_common,
    read_usage,
)
from dray.driver.plugin import (
    AllocatedDevice,
    ClaimReference,
    ClaimToPrepare,
    DeviceHealth,
    Driver,
    Pool,
    PreparedDevice,
    PrepareError,
)
from dray.driver.sysfs import SYSFS
from dray.telemetry import Registry

log = logging.getLogger(__name__)

LOOK_FOR_CARDS_EVERY = 10
"""Rounds of the watch, about a second each, between two looks for MIG instances that came or went."""
JOINED_PREFIX = "DRA_LIST_CUDA_VISIBLE_DEVICES__"
"""Where containers are local processes, the node agent joins these into CUDA_VISIBLE_DEVICES."""
_SHARED_MEMORY = "/dev/shm"


@dataclass(frozen=True, slots=True)
class GpuPart:
    """What a published device is: a card, or a partition of one that exists or can be made."""

    card: Card
    profile: MigProfile | None = None
    start: int = 0
    instance: MigInstance | None = None


class NvidiaDriver(Driver):
    """`nvml` stands for the NVML binding, and is loaded when the driver starts unless it is given."""

    name = "gpu.nvidia.com"
    leaves_traces = True

    def __init__(
        self,
        nvml: Any = None,
        *,
        is_shared: bool = False,
        has_dynamic_mig: bool = False,
        driver_root: str = "",
        event_file: Path | None = None,
        sysfs: Path = SYSFS,
        dev: Path = Path("/dev"),
        proc: Path = PROC,
    ) -> None:
        self._nvml = nvml
        self._is_shared = is_shared
        self._has_dynamic_mig = has_dynamic_mig
        self._driver_root = driver_root
        self._event_file = event_file
        self._sysfs = sysfs
        self._dev = dev
        self._proc = proc
        self._cards: tuple[Card, ...] = ()
        self._usage: dict[Card, CardUsage] = {}
        self._files = host_files.HostFiles()
        # Calls of the kubelet and the watch run in threads of their own, and both start daemons.
        self._changes_daemons = threading.Lock()

    # --- start

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--share", action="store_true", help="claims may take a part of a card, enforced by CUDA MPS"
        )
        parser.add_argument(
            "--dynamic-mig", action="store_true", help="make and remove MIG instances on cards that have MIG turned on"
        )
        parser.add_argument(
            "--driver-root", default="", help="where NVIDIA's libraries and programs lie; default: found"
        )
        parser.add_argument(
            "--event-file", type=Path, help='take made-up events from here: {"uuid": "GPU-...", "xid": 79} in a line'
        )

    def configure(self, options: argparse.Namespace) -> None:
        self._is_shared = options.share
        self._has_dynamic_mig = options.dynamic_mig
        self._driver_root = options.driver_root
        self._event_file = options.event_file

    def restore(self, data_dir: Path) -> None:
        self._nvml = self._nvml or load_nvml()
        self._files = host_files.find_host_files(self._driver_root)
        self._records = CardRecords(data_dir / "claims.json")
        self._mps_folder = data_dir / "mps"
        self._health = HealthMonitor(self._nvml, self._event_file)
        self._cards = read_cards(self._nvml, self._sysfs)
        self._restore_mps()

    def _restore_mps(self) -> None:
        """Keeps the daemons that claims need, and ends those of claims that are gone."""
        needed = self._records.cards_with_mps()
        for card in self._cards:
            if card.name in needed:
                self._try_to_run_mps(card)
            elif (self._mps_folder / card.name).exists():
                self._stop_mps(card)

    # --- what is published

    def pools(self, node_name: str) -> Iterable[Pool]:
        devices = tuple(
            device
            for card in self._cards
            for device in devices_of(
                card,
                is_shared=self._is_shared,
                has_partitions=self._has_dynamic_mig,
                taints=self._health.of(card.uuid).taints,
            )
        )
        partitioned = (card for card in self._cards if self._has_dynamic_mig and card.is_mig_on)
        return [Pool(node_name, devices, tuple(map(counter_set_of, partitioned)))]

    def _parts(self) -> dict[str, GpuPart]:
        parts: dict[str, GpuPart] = {}
        for card in self._cards:
            if not card.is_mig_on:
                parts[card.name] = GpuPart(card)
            elif self._has_dynamic_mig:
                parts |= {
                    partition_name(card, profile, start): GpuPart(card, profile, start)
                    for profile in card.profiles
                    for start in profile.starts
                }
            else:
                parts |= {
                    partition_name(card, each.profile, each.start): GpuPart(card, each.profile, each.start, each)
                    for each in card.instances
                }
        return parts

    # --- claims

    def prepare(self, claim: ClaimToPrepare) -> Iterable[PreparedDevice]:
        parts = self._parts()
        chosen = [(device, self._part(parts, device)) for device in claim.devices]
        limits = [self._limits(device, part) for device, part in chosen]
        if len({part.card.name for (_, part), limit in zip(chosen, limits, strict=True) if limit is not None}) > 1:
            raise PrepareError("a claim can share one card only: CUDA MPS serves one card for each daemon")
        self._records.put(claim.uid, _record(claim, chosen, limits))
        return [
            PreparedDevice(device, self._edits(claim.uid, device, part, limit))
            for (device, part), limit in zip(chosen, limits, strict=True)
        ]

    def _part(self, parts: Mapping[str, GpuPart], device: AllocatedDevice) -> GpuPart:
        part = parts.get(device.device)
        if part is None:
            raise PrepareError(f"device {device.device} is not on this machine any more")
        return part

    def _limits(self, device: AllocatedDevice, part: GpuPart) -> MpsLimits | None:
        """The limits under which a claim uses the card through MPS; None for a card of its own."""
        uuid = part.instance.uuid if part.instance is not None else part.card.uuid
        asked = mps_limits(device.config, uuid)
        if asked is not None and part.profile is not None:
            raise PrepareError("opaque parameters: sharing.strategy 'MPS': MIG devices are not shared any further")
        if device.admin_access or part.profile is not None or device.share_id is None:
            return asked
        return _share_limits(device, part.card, asked)

    def _edits(self, claim: str, device: AllocatedDevice, part: GpuPart, limits: MpsLimits | None) -> ContainerEdits:
        uuid, nodes = self._opened(part)
        base = self._files.edits()
        key = device.device.upper().replace("-", "_")
        environment = [
            *base.env,
            "NVIDIA_VISIBLE_DEVICES=void",
            f"{JOINED_PREFIX}{key}={uuid}",
            claim_variable(claim, device.device, part.card.name),
        ]
        mounts = base.mounts
        if limits is not None:
            with self._changes_daemons:
                daemon = self._running_mps(part.card)
            client = client_environment(daemon.pipe_folder, limits.memory_bytes, limits.thread_percentage)
            environment += [f"{name}={value}" for name, value in client.items()]
            mounts += (_read_write(str(daemon.pipe_folder)), _read_write(_SHARED_MEMORY))
        return ContainerEdits(env=tuple(environment), device_nodes=nodes, mounts=mounts, hooks=base.hooks)

    def _opened(self, part: GpuPart) -> tuple[str, tuple[DeviceNode, ...]]:
        """The UUID by which CUDA knows the device, and the nodes that open it; a partition is made if need be."""
        nodes = host_files.device_nodes(part.card.minor, self._dev)
        if part.profile is None:
            return part.card.uuid, nodes
        instance = part.instance or mig.make_instance(self._nvml, part.card, part.profile, part.start)
        own = host_files.capability_nodes(instance.gpu_instance, instance.compute_instance, part.card.minor, self._dev)
        return instance.uuid, nodes + own

    def unprepare(self, claim: ClaimReference) -> None:
        record = self._records.get(claim.uid)
        if record is None:
            return
        if self._has_dynamic_mig:
            parts = self._parts()
            for use in record.uses:
                part = parts.get(use.device)
                if part is not None and part.profile is not None:
                    mig.remove_instance(self._nvml, part.card, part.profile, part.start)
        with self._changes_daemons:
            self._records.remove(claim.uid)
            needed = self._records.cards_with_mps()
            for card in self._cards:
                if card.name not in needed and any(use.uses_mps and use.card == card.name for use in record.uses):
                    self._stop_mps(card)

    # --- MPS

    def _running_mps(self, card: Card) -> MpsDaemon:
        daemon = self._mps(card)
        if daemon is None:
            raise PrepareError(
                f"a share of card {card.name} needs CUDA MPS, and {CONTROL} is not among the driver's programs; "
                "see --driver-root"
            )
        daemon.ensure_running()
        return daemon

    def _mps(self, card: Card) -> MpsDaemon | None:
        program = self._files.program(CONTROL)
        return None if program is None else MpsDaemon(program, self._mps_folder / card.name, card.uuid)

    def _try_to_run_mps(self, card: Card) -> None:
        try:
            self._running_mps(card)
        except PrepareError as error:
            log.warning("card %s: %s", card.name, error)

    def _stop_mps(self, card: Card) -> None:
        daemon = self._mps(card)
        if daemon is not None:
            daemon.stop()
        shutil.rmtree(self._mps_folder / card.name, ignore_errors=True)

    # --- health and use

    def health(self) -> Iterable[DeviceHealth]:
        cards = {device: part.card for device, part in self._parts().items()}
        return [
            self._device_health(pool.name, device.name, cards.get(device.name))
            for pool in self.published_pools
            for device in pool.devices
        ]

    def _device_health(self, pool: str, device: str, card: Card | None) -> DeviceHealth:
        if card is None:
            return DeviceHealth(pool, device, "Unhealthy", "the device is not on this machine any more")
        problem = self._health.of(card.uuid).message
        return DeviceHealth(pool, device, "Unhealthy" if problem else "Healthy", problem)

    async def watch(self, republish: Callable[[], None]) -> None:
        await asyncio.to_thread(self._health.register, self._cards)
        rounds = 0
        while True:
            rounds += 1
            if await asyncio.to_thread(self._look, looks_for_cards=rounds % LOOK_FOR_CARDS_EVERY == 0):
                republish()

    def _look(self, looks_for_cards: bool) -> bool:
        """One round of the watch, which waits a second for events; whether the devices changed."""
        has_changed = self._health.wait_for_events()
        if self._health.look(self._cards):
            has_changed = True
        if looks_for_cards and self._read_cards_again():
            has_changed = True
        self._read_usage()
        self._restart_ended_daemons()
        return has_changed

    def _restart_ended_daemons(self) -> None:
        """A daemon that ended takes its clients with it; the pods' next containers need a new one."""
        with self._changes_daemons:
            for card in self._cards:
                daemon = self._mps(card)
                if daemon is not None and daemon.was_started and not daemon.is_alive:
                    log.warning("CUDA MPS of card %s has ended and is started again", card.name)
                    self._try_to_run_mps(card)

    def _read_cards_again(self) -> bool:
        """MIG instances come and go; a card that is lost keeps its last description."""
        try:
            cards = read_cards(self._nvml, self._sysfs)
        except self._nvml.NVMLError:
            return False
        has_changed = cards != self._cards
        self._cards = cards
        return has_changed

    def _read_usage(self) -> None:
        readings = {}
        users = self._users()
        for card in self._cards:
            try:
                readings[card] = read_usage(self._nvml, card, users.get(card.name, ()), self._proc)
            except self._nvml.NVMLError:
                continue
        self._usage = readings

    def add_metrics(self, registry: Registry) -> None:
        add_usage_metrics(registry, lambda: self._usage)

    def _users(self) -> dict[str, list[CardUser]]:
        users: dict[str, list[CardUser]] = {}
        for uid, record in self._records.by_uid().items():
            labels = labels_in_common(record.metric_labels)
            for card in dict.fromkeys(use.card for use in record.uses):
                users.setdefault(card, []).append(CardUser(uid, labels, record.memory_limit(card)))
        return users


def _share_limits(device: AllocatedDevice, card: Card, asked: MpsLimits | None) -> MpsLimits | None:
    """A claim that consumes all memory has the card for itself and needs no MPS."""
    memory = device.consumed_capacity.get("memory")
    taken = device.consumed_capacity.get("multiprocessors")
    percentage = thread_percentage(taken.value(), card.multiprocessors) if taken and card.multiprocessors else None
    if asked is not None:
        percentage = min(filter(None, (percentage, asked.thread_percentage)), default=None)
    if memory is None or memory.value() >= largest_share(card):
        return asked
    limit = memory.value()
    if asked is not None and asked.memory_bytes is not None:
        limit = min(limit, asked.memory_bytes)
    return MpsLimits(percentage, limit)


def _record(
    claim: ClaimToPrepare, chosen: Iterable[tuple[AllocatedDevice, GpuPart]], limits: Iterable[MpsLimits | None]
) -> CardRecord:
    uses = tuple(
        CardUse(device.device, part.card.name, limit is not None, limit.memory_bytes if limit is not None else None)
        for (device, part), limit in zip(chosen, limits, strict=True)
    )
    return CardRecord(claim.reference.namespace, claim.reference.name, claim.pods, uses)


def _read_write(path: str) -> Mount:
    return Mount(host_path=path, container_path=path, options=("rw", "nosuid", "nodev", "bind"))
