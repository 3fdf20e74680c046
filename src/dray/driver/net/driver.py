"""The driver: publishes interfaces, follows their changes, and brings them to pods and back."""

import argparse
import asyncio
import contextlib
import fcntl
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from dray.api.resource import AllocatedDeviceStatus, NetworkDeviceData
from dray.atomic_files import open_private
from dray.driver.claim_files import ClaimRecords, safe_file_part
from dray.driver.net.claim_records import InterfaceRecord, InterfaceUse
from dray.driver.net.devices import InterfaceChoice, device_of, is_offered, is_shared, names_of
from dray.driver.net.health import (
    LinkProblem,
    PodLink,
    add_traffic_metrics,
    problem_in_pod,
    problem_on_host,
    read_pod_link,
)
from dray.driver.net.hook import HookRequests
from dray.driver.net.interfaces import LARGEST_LIMIT, bring_back, bring_in, read_routes
from dray.driver.net.links import Link, read_links
from dray.driver.net.namespaces import OWN, KeptNamespaces, identity, namespace_with_processes, open_events
from dray.driver.net.parameters import LONGEST_NAME, checked, network_config
from dray.driver.plugin import (
    AllocatedDevice,
    ClaimReference,
    ClaimToPrepare,
    DeviceConfig,
    DeviceHealth,
    Driver,
    Pool,
    PreparedDevice,
    PrepareError,
)
from dray.telemetry import Registry

log = logging.getLogger(__name__)

LOOK_INTO_PODS_EVERY_S = 5.0
SETTLE_S = 0.3
"""How long changes are collected before they are published: a card that comes up changes many times."""


class NetDriver(Driver):
    """`host` is the network namespace whose interfaces are published."""

    name = "dra.net"
    leaves_traces = True

    def __init__(self, choice: InterfaceChoice | None = None, *, host: Path = OWN, sysfs: Path = Path("/sys")) -> None:
        self._choice = choice or InterfaceChoice()
        self._host = host
        self._sysfs = sysfs
        self._one_change = threading.Lock()
        self._published_problems: dict[str, LinkProblem] = {}
        self._pod_links: dict[tuple[str, int], PodLink] = {}

    # --- start

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        def patterns(name: str, text: str) -> None:
            parser.add_argument(name, action="append", default=[], metavar="PATTERN", help=text)

        patterns("--interface", "offer interfaces with such names only; may be repeated")
        patterns("--exclude", "offer no interfaces with such names; may be repeated")
        patterns("--share", "claims may have a part of interfaces with such names; may be repeated")
        parser.add_argument(
            "--default-route", action="store_true", help="offer the interface with the default route, too"
        )
        parser.add_argument(
            "--bandwidth",
            type=int,
            default=1000,
            metavar="MBIT",
            help="of shared interfaces whose speed the kernel does not know; default: 1000",
        )
        parser.add_argument(
            "--network-namespace",
            type=Path,
            default=OWN,
            help="whose interfaces are offered; default: the driver's own",
        )
        parser.add_argument("--sysfs", type=Path, default=Path("/sys"), help="default: /sys")

    def configure(self, options: argparse.Namespace) -> None:
        if options.bandwidth < 1:
            raise ValueError("--bandwidth must be at least 1")
        self._choice = InterfaceChoice(
            include=tuple(options.interface),
            exclude=tuple(options.exclude),
            shared=tuple(options.share),
            has_default_route=options.default_route,
            unknown_speed_mbit=options.bandwidth,
        )
        self._host = options.network_namespace
        self._sysfs = options.sysfs

    def restore(self, data_dir: Path) -> None:
        self._records = ClaimRecords(data_dir / "claims.json", InterfaceRecord)
        self._kept = KeptNamespaces(data_dir / "namespaces")
        self._lock_file = data_dir / "interfaces.lock"
        self._hook = HookRequests(data_dir, self.attach)
        self._hook.serve()
        for uid, record in self._records.by_uid().items():
            self._keep_again(uid, record)
            self._report(uid, record)

    def _keep_again(self, claim_uid: str, record: InterfaceRecord) -> None:
        """A driver in a container loses its mounts with the container."""
        for number, use in enumerate(record.uses):
            if use.is_touched and self._kept.get(_key(claim_uid, number)) is None:
                namespace = namespace_with_processes(use.namespace)
                if namespace is not None:
                    self._kept.keep(_key(claim_uid, number), namespace)

    # --- what is published

    def pools(self, node_name: str) -> Iterable[Pool]:
        offered, problems = self._look()
        self._published_problems = problems
        devices = (
            device_of(name, link, self._choice, (problems[name].taint,) if name in problems else ())
            for name, link in sorted(offered.items())
        )
        return [Pool(node_name, tuple(devices))]

    def _look(self) -> tuple[dict[str, Link], dict[str, LinkProblem]]:
        """What is offered, and what keeps it from carrying packets. Nothing moves meanwhile."""
        with self._exclusively():
            offered = self._offered()
            self._pod_links = self._read_pod_links()
            return offered, self._problems_of(offered)

    def _offered(self) -> dict[str, Link]:
        """Interfaces by device name: those on the host, and those that pods have now, as they were on the host."""
        there = [link for link in read_links(self._host, self._sysfs) if is_offered(link, self._choice)]
        moved = self._moved()
        marks = set(map(_mark, moved))
        found = names_of(link for link in there if link.alias not in marks)
        return found | {use.device: use.link for use in moved.values()}

    def _problems_of(self, offered: Mapping[str, Link]) -> dict[str, LinkProblem]:
        """What keeps interfaces from carrying packets, by device name: on the host, or in the pod that has the interface."""
        moved = self._moved()
        in_pods = {use.device for use in moved.values()}
        found = {
            name: problem_on_host(link, is_shared=is_shared(link, self._choice))
            for name, link in offered.items()
            if name not in in_pods
        }
        for place, use in moved.items():
            # An interface on whose way the driver was killed is in neither place.
            if use.pod_side is not None and self._kept.get(_key(*place)) is not None:
                found[use.device] = problem_in_pod(use.link.name, self._pod_links.get(place))
        return {name: problem for name, problem in found.items() if problem is not None}

    def _read_pod_links(self) -> dict[tuple[str, int], PodLink]:
        found = {}
        for uid, record in self._records.by_uid().items():
            for number, use in enumerate(record.uses):
                kept = self._kept.get(_key(uid, number)) if use.is_touched else None
                if kept is not None and (link := read_pod_link(kept, _mark((uid, number)))) is not None:
                    found[uid, number] = link
        return found

    def _moved(self) -> dict[tuple[str, int], InterfaceUse]:
        """Interfaces that are not on the host now, or not as they were, by claim and number."""
        return {
            (uid, number): use
            for uid, record in self._records.by_uid().items()
            for number, use in enumerate(record.uses)
            if use.is_touched and not use.is_shared
        }

    async def watch(self, republish: Callable[[], None]) -> None:
        """Publishes again when the kernel tells of a change; what it tells is read anew.

        It tells nothing of the networks of pods, so these are looked at every few seconds.
        """
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        with await asyncio.to_thread(open_events, self._host) as events:

            def drain() -> None:
                try:
                    while events.recv(1 << 16):
                        changed.set()
                except BlockingIOError:
                    return
                except OSError:
                    # The kernel dropped events because there were too many: something changed.
                    changed.set()

            loop.add_reader(events, drain)
            # What changed before the kernel was asked to tell of changes.
            changed.set()
            try:
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_INTO_PODS_EVERY_S):
                            await changed.wait()
                    if changed.is_set():
                        await asyncio.sleep(SETTLE_S)
                        changed.clear()
                        republish()
                    elif (await asyncio.to_thread(self._look))[1] != self._published_problems:
                        republish()
            finally:
                loop.remove_reader(events)

    # --- health and use

    def health(self) -> Iterable[DeviceHealth]:
        offered, problems = self._look()
        return [
            _health(pool.name, device.name, device.name in offered, problems.get(device.name))
            for pool in self.published_pools
            for device in pool.devices
        ]

    def add_metrics(self, registry: Registry) -> None:
        add_traffic_metrics(registry, lambda: self._records.by_uid(), lambda: self._pod_links)

    # --- claims

    def check_config(self, config: DeviceConfig) -> None:
        checked(config)

    def prepare(self, claim: ClaimToPrepare) -> Iterable[PreparedDevice]:
        """Writes down how the interfaces are now. They move when a container starts, since only then there is somewhere to go."""
        devices = [device for device in claim.devices if not device.admin_access]
        with self._exclusively():
            if self._records.get(claim.uid) is None:
                uses = self._uses(devices)
                reference = claim.reference
                self._records.put(claim.uid, InterfaceRecord(reference.namespace, reference.name, claim.pods, uses))
        looked_at = [PreparedDevice(device) for device in claim.devices if device.admin_access]
        return looked_at + [
            PreparedDevice(device, self._hook.edits(claim.uid, number)) for number, device in enumerate(devices)
        ]

    def _uses(self, devices: Iterable[AllocatedDevice]) -> tuple[InterfaceUse, ...]:
        offered = self._offered()
        uses = [self._use(device, offered.get(device.device)) for device in devices]
        given = [use.name_in_pod for use in uses if use.config.interface.name is not None]
        for name in given:
            if given.count(name) > 1:
                raise PrepareError(f"two interfaces of the claim would be called {name}; see interface.name")
        return tuple(_with_own_names(uses, set(given)))

    def _use(self, device: AllocatedDevice, link: Link | None) -> InterfaceUse:
        if link is None:
            raise PrepareError(f"device {device.device} is not on this machine any more")
        shared = is_shared(link, self._choice)
        config = network_config(device.config)
        return InterfaceUse(
            pool=device.pool,
            device=device.device,
            share_id=device.share_id,
            config=config,
            link=link,
            name_in_pod=config.interface.name or link.name,
            routes=() if shared else read_routes(self._host, link.index),
            is_shared=shared,
            bits_per_second=self._limit(device, link) if shared else None,
        )

    def _limit(self, device: AllocatedDevice, link: Link) -> int | None:
        """Bits a second; None for a claim that has all of them."""
        wanted = device.consumed_capacity.get("bandwidth")
        if wanted is None or wanted.value() >= (link.speed_mbit or self._choice.unknown_speed_mbit) * 10**6:
            return None
        if wanted.value() > LARGEST_LIMIT:
            raise PrepareError(f"bandwidth {wanted}: the kernel cannot limit an interface to more than {LARGEST_LIMIT}")
        return wanted.value()

    def attach(self, claim_uid: str, number: int, pid: int) -> None:
        """Called for each container of the claim that is about to start, with a process in its network."""
        with self._exclusively():
            record = self._records.get(claim_uid)
            if record is None or number >= len(record.uses):
                raise PrepareError(f"claim {claim_uid} is not prepared on this node")
            namespace = Path(f"/proc/{pid}/ns/net")
            if identity(namespace) == identity(self._host):
                raise PrepareError(
                    f"the container is in the network of the node, where interface {record.uses[number].link.name} is anyway; "
                    "a claim for it needs a pod with a network of its own"
                )
            if self._is_inside(claim_uid, record, number, namespace):
                return
            use = msgspec.structs.replace(
                record.uses[number], is_touched=True, namespace=identity(namespace), pod_side=None
            )
            self._records.put(claim_uid, record.with_use(number, use))
            kept = self._kept.keep(_key(claim_uid, number), namespace)
            side = bring_in(use, _mark((claim_uid, number)), self._host, kept)
            record = record.with_use(number, msgspec.structs.replace(use, pod_side=side))
            self._records.put(claim_uid, record)
        self._report(claim_uid, record)

    def _is_inside(self, claim_uid: str, record: InterfaceRecord, number: int, namespace: Path) -> bool:
        """Whether the interface is where it should be. One that is in the network of a container that ended is fetched back."""
        kept = self._kept.get(_key(claim_uid, number))
        if kept is None:
            return False
        if identity(kept) == identity(namespace):
            return record.uses[number].pod_side is not None
        if namespace_with_processes(identity(kept)) is not None:
            raise PrepareError(
                f"interface {record.uses[number].link.name} is in use by another container, which has a network of its own"
            )
        self._fetch_back(claim_uid, record, number)
        return False

    def unprepare(self, claim: ClaimReference) -> None:
        with self._exclusively():
            record = self._records.get(claim.uid)
            if record is None:
                return
            for number in range(len(record.uses)):
                self._fetch_back(claim.uid, record, number)
            self._records.remove(claim.uid)
        self.report_status(claim, [])

    def _fetch_back(self, claim_uid: str, record: InterfaceRecord, number: int) -> None:
        use, key = record.uses[number], _key(claim_uid, number)
        if use.is_touched:
            bring_back(use, _mark((claim_uid, number)), self._host, self._kept.get(key))
            self._kept.let_go(key)

    def _report(self, claim_uid: str, record: InterfaceRecord) -> None:
        statuses = [
            AllocatedDeviceStatus(
                pool=use.pool,
                device=use.device,
                share_id=use.share_id,
                network_data=NetworkDeviceData(
                    interface_name=side.name, ips=side.ips, hardware_address=side.hardware_address
                ),
            )
            for use in record.uses
            if (side := use.pod_side) is not None
        ]
        if statuses:
            self.report_status(ClaimReference(record.namespace, record.name, claim_uid), statuses)

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """One change at a time, also among the instances of a driver that is being updated."""
        with self._one_change, open_private(self._lock_file, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._records.reload()
            yield


def _health(pool: str, device: str, is_there: bool, problem: LinkProblem | None) -> DeviceHealth:
    if not is_there:
        return DeviceHealth(pool, device, "Unhealthy", "the interface is not on this machine any more")
    return DeviceHealth(pool, device, "Unhealthy" if problem else "Healthy", problem.message if problem else "")


def _with_own_names(uses: Iterable[InterfaceUse], taken: set[str]) -> Iterator[InterfaceUse]:
    """Two shares of one interface would have the same name, unless the parameters say otherwise: the second gets a number."""
    for use in uses:
        name = use.name_in_pod
        if use.config.interface.name is None:
            numbered = (f"{name[: LONGEST_NAME - 3]}-{number}" for number in range(1, 100))
            name = next(each for each in (name, *numbered) if each not in taken)
            taken.add(name)
        yield msgspec.structs.replace(use, name_in_pod=name)


def _key(claim_uid: str, number: int) -> str:
    return f"{safe_file_part(claim_uid)}-{number}"


def _mark(use: tuple[str, int]) -> str:
    """Written on an interface while a pod has it, as its alias: by it the interface is found wherever it is."""
    return f"dray {use[0]} {use[1]}"
