"""The driver: publishes interfaces and follows their changes."""

import argparse
import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from dray.driver.net.devices import Choice, device_of, is_offered, names_of
from dray.driver.net.links import read_links
from dray.driver.net.namespaces import OWN, open_events
from dray.driver.plugin import Driver, Pool

SETTLE_S = 0.3
"""How long changes are collected before they are published: a card that comes up changes many times."""


class NetDriver(Driver):
    """`host` is the network namespace whose interfaces are published."""

    name = "dra.net"

    def __init__(self, choice: Choice | None = None, *, host: Path = OWN, sysfs: Path = Path("/sys")) -> None:
        self._choice = choice or Choice()
        self._host = host
        self._sysfs = sysfs

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
        self._choice = Choice(
            include=tuple(options.interface),
            exclude=tuple(options.exclude),
            shared=tuple(options.share),
            has_default_route=options.default_route,
            unknown_speed_mbit=options.bandwidth,
        )
        self._host = options.network_namespace
        self._sysfs = options.sysfs

    # --- what is published

    def pools(self, node_name: str) -> Iterable[Pool]:
        links = [link for link in read_links(self._host, self._sysfs) if is_offered(link, self._choice)]
        devices = (device_of(name, link, self._choice) for name, link in names_of(links).items())
        return [Pool(node_name, tuple(devices))]

    async def watch(self, republish: Callable[[], None]) -> None:
        """Publishes again when the kernel tells of a change; what it tells is read anew."""
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
                    await changed.wait()
                    await asyncio.sleep(SETTLE_S)
                    changed.clear()
                    republish()
            finally:
                loop.remove_reader(events)
