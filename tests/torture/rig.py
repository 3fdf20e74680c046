"""The cluster under torture: every part a process, every part behind a proxy of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dray.apiserver.security.certificates import Authority
from dray.apiserver.security.credentials import local_authority
from dray.apiserver.watch.stored_object import GUARD
from dray.atomic_files import write_private
from dray.client import NODES, SLICES, ApiError, Client, ServerUnreachable, connect
from dray.store.store_url import DEFAULT_PREFIX
from tests.e2e.processes import Process
from tests.torture.etcd_cluster import EtcdCluster, free_port
from tests.torture.part_certificates import RENEWED_EVERY_S, PartCertificates
from tests.torture.proxy import Proxy
from tests.torture.with_weather import FINE

DRIVERS = {"a": ("gpu", "nic"), "b": ("gpu", "cpu")}
DRIVER_NAMES = {"gpu": "gpu.example.com", "nic": "nic.example.com", "cpu": "dra.cpu"}
RUNTIMES = {"a": "process", "n0": "process"}
WITH_WEATHER = Path(__file__).parent / "with_weather.py"
CAPACITY = ("cpu=4", "memory=8Gi", "pods=30")
ACTIVE_AT_ONCE = ("--no-leader-elect",)


@dataclass(frozen=True)
class RigOptions:
    store: str = "sqlite"  # sqlite, etcd, etcd3
    schedulers: int = 2
    # Several need an etcd.
    apiservers: int = 1
    controllers: int = 1
    # Schedulers and controllers choose a leader; otherwise all schedulers are active.
    elects: bool = False
    drivers: tuple[tuple[str, tuple[str, ...]], ...] = tuple(DRIVERS.items())


class Part(Process):
    """A process that can be paused, and that somebody else starts again when it ends by itself."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        super().__init__(folder, name, *arguments)
        self.is_wanted = False
        self._weather = FINE
        self._weather_file = folder / f"{name}.weather"
        self.set_weather()
        self.program = (sys.executable, str(WITH_WEATHER), str(self._weather_file))

    def start(self) -> None:
        """Two faults may overlap: what runs is not started a second time."""
        self.is_wanted = True
        if not self.is_running:
            super().start()

    def send(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def set_weather(self, **changes: Any) -> None:
        """From now on it has this trouble, beside what it had."""
        self._weather = replace(self._weather, **changes)
        self._weather_file.write_text(self._weather.line())

    def calm_weather(self) -> None:
        self._weather = FINE
        self.set_weather()

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode if self._process is not None else None

    def pause(self) -> None:
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def end(self, timeout_s: float = 30.0) -> int:
        """Tell it to end; its exit code."""
        assert self._process is not None
        self.is_wanted = False
        self.send(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.is_wanted = False
        self.resume()
        super().stop(number)


class TortureRig:
    """`await start()`; `parts` and `proxies` are there to be hurt; `await heal()` makes everything run again."""

    def __init__(self, folder: Path, options: RigOptions) -> None:
        self.folder = folder
        self.options = options
        self.nodes = dict(options.drivers)
        self.parts: dict[str, Part] = {}
        self.proxies: dict[str, Proxy] = {}
        self.ways_to_etcd: dict[str, list[Proxy]] = {}
        # Of the workload, and never hurt: each of its connections goes to the next server.
        self.balancer: Proxy | None = None
        self.etcd: EtcdCluster | None = None
        self.ports = [free_port() for _ in range(options.apiservers)]
        # Parts that ended by themselves, as a service manager would count them.
        self.exits: Counter[str] = Counter()
        self._loops: list[asyncio.Task[None]] = []
        self.certificates = PartCertificates(folder)
        self._etcd_authority = Authority.create("etcd-ca")
        self._admin = folder / "kubeconfig"
        if options.store != "sqlite":
            self.etcd = EtcdCluster(folder / "etcd", 3 if options.store == "etcd3" else 1)

    # --- start and stop

    async def start(self) -> None:
        if self.etcd is not None:
            await self.etcd.make_partitions_possible()
            self.etcd.use_small_disks()
            self.etcd.want_certificates(self._etcd_authority)
            await asyncio.to_thread(self.etcd.start)
        await self._start_apiservers()
        await self._make_proxy("follower", "torture", "system:masters")
        await self._make_proxy("workload", "torture", "system:masters")
        self.balancer = self.proxies.pop("workload")
        for name in self.controller_names:
            await self._make_proxy(name, "system:kube-controller-manager")
        for name in self.scheduler_names:
            await self._make_proxy(name, "system:kube-scheduler")
        for node in self.nodes:
            await self._make_proxy(f"node-{node}", f"system:node:{node}", "system:nodes")
        self._make_parts()
        for part in self.parts.values():
            if not part.is_running:
                part.start()
        self._loops = [asyncio.create_task(self._supervise()), asyncio.create_task(self._renew_certificates())]

    async def _renew_certificates(self) -> None:
        while True:
            await asyncio.sleep(RENEWED_EVERY_S)
            await asyncio.to_thread(self.certificates.renew_all)

    async def _supervise(self) -> None:
        """Start again what ended by itself: every part must cope with a world that is not there yet."""
        while True:
            await asyncio.sleep(0.5)
            self._start_what_ended()

    def _start_what_ended(self) -> None:
        for name, part in self.parts.items():
            if part.is_wanted and not part.is_running:
                self.exits[f"{name} with exit code {part.exit_code}"] += 1
                part.start()

    async def _start_apiservers(self) -> None:
        """One after the other: the first makes the keys, the others take them from the store."""
        for name, port in zip(self.apiserver_names, self.ports, strict=True):
            ready = self.folder / f"{name}.ready"
            store = ("--store", await self._way_to_etcd(name)) if self.etcd is not None else ()
            self.parts[name] = Part(
                self.folder,
                name,
                *("apiserver", "--listen", f"127.0.0.1:{port}", "--data", str(self.data(name)), *store),
                *("--kubeconfig", str(self.kubeconfig() if name == self.apiserver_names[0] else self.kubeconfig(name))),
                *("--ready-file", str(ready)),
            )
            self.parts[name].start()
            await self._until(ready.exists, f"{name} to be ready")

    async def _way_to_etcd(self, name: str) -> str:
        """Each server reaches each member through a proxy of its own, so that it can be cut off from all of them."""
        assert self.etcd is not None
        ways = []
        for member in self.etcd.members:
            proxy = Proxy(member.client_port, host=member.host)
            await proxy.start()
            self.ways_to_etcd.setdefault(name, []).append(proxy)
            ways.append(f"127.0.0.1:{proxy.port}")
        pair = self.certificates.add(f"{name}-etcd", self._etcd_authority, name)
        return "etcds://" + ",".join(ways) + f"?ca={self.etcd.ca}&cert={pair}&key={pair}"

    async def _make_proxy(self, name: str, user: str, *groups: str) -> None:
        """A way to the server that can be hurt, and the certificate of who goes there: each part is only what it is."""
        proxy = Proxy(*self.ports)
        await proxy.start()
        self.proxies[name] = proxy
        server = f"https://127.0.0.1:{proxy.port}"
        text = self.certificates.kubeconfig(name, server, self.authority, user, groups)
        write_private(self.kubeconfig(name), text.encode())

    @property
    def authority(self) -> Authority:
        return local_authority(self.data(self.apiserver_names[0]))

    def _make_parts(self) -> None:
        elects = () if self.options.elects else ACTIVE_AT_ONCE
        for name in self.controller_names:
            self._part(name, "controller-manager", *self._config(name), "--secure-port", "0", *elects)
        for name in self.scheduler_names:
            self._part(name, "scheduler", *self._config(name), "--secure-port", "0", *elects)
        for node, drivers in self.nodes.items():
            where = (*self._config(f"node-{node}"), "--node-name", node)
            folders = ("--cdi-dir", str(self.cdi(node)))
            capacity = [word for each in CAPACITY for word in ("--capacity", each)]
            runtime = ("--runtime", RUNTIMES.get(node, "none"))
            self._part(
                f"kubelet-{node}", "kubelet", *where, *folders, "--root-dir", str(self.root(node)), *runtime, *capacity
            )
            for driver in drivers:
                root = ("--kubelet-root", str(self.root(node)))
                self._part(f"driver-{node}-{driver}", "driver", driver, *where, *folders, *root)

    def _part(self, name: str, *arguments: str) -> None:
        self.parts[name] = Part(self.folder, name, *arguments)

    async def stop(self) -> None:
        for loop in self._loops:
            loop.cancel()
        for part in reversed(self.parts.values()):
            part.stop()
        for proxy in self._all_proxies():
            await proxy.stop()
        for pid in self.processes_left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.etcd is not None:
            await self.etcd.close()

    # --- where things are

    @property
    def apiserver_names(self) -> list[str]:
        return _names("apiserver", self.options.apiservers)

    @property
    def controller_names(self) -> list[str]:
        return _names("controllers", self.options.controllers)

    @property
    def scheduler_names(self) -> list[str]:
        return [f"scheduler-{number}" for number in range(1, self.options.schedulers + 1)]

    def kubeconfig(self, name: str = "") -> Path:
        return self.folder / f"{name}.kubeconfig" if name else self._admin

    def _config(self, name: str) -> tuple[str, str]:
        return "--kubeconfig", str(self.kubeconfig(name))

    def data(self, apiserver: str) -> Path:
        return self.folder / "data" / apiserver

    def root(self, node: str) -> Path:
        return self.folder / f"n{node}"

    def cdi(self, node: str) -> Path:
        return self.folder / f"cdi{node}"

    def client(self, proxy: str = "") -> Client:
        return connect(self.kubeconfig(proxy), component="torture")

    # --- hurting and healing

    async def restart(self, name: str, down_s: float) -> None:
        self.parts[name].kill()
        await asyncio.sleep(down_s)
        self.parts[name].start()

    def users_of(self, certificate: str) -> list[str]:
        """The parts that show a certificate."""
        if certificate.startswith("node-"):
            node = certificate.removeprefix("node-")
            return [f"kubelet-{node}", *(f"driver-{node}-{driver}" for driver in self.nodes[node])]
        return [certificate.removesuffix("-etcd")]

    def ways_of(self, certificate: str) -> list[Proxy]:
        """The connections that are made with a certificate."""
        return self.ways_to_etcd.get(certificate.removesuffix("-etcd")) or [self.proxies[certificate]]

    async def let_all_schedulers_be_active(self, *, are_active: bool) -> None:
        """Without an election, or again with one."""
        for name in self.scheduler_names:
            part = self.parts[name]
            rest = [each for each in part.arguments if each not in ACTIVE_AT_ONCE]
            part.arguments = (*rest, *(ACTIVE_AT_ONCE if are_active else ()))
            await self.restart(name, 0.0)

    async def heal(self) -> None:
        """Everything runs, nothing is held back."""
        self.certificates.renew_all()
        for proxy in self._all_proxies():
            proxy.heal()
        if self.etcd is not None:
            await self.etcd.heal()
        for part in self.parts.values():
            part.calm_weather()
            part.resume()
        self._start_what_ended()
        for part in self.parts.values():
            part.start()

    def _all_proxies(self) -> list[Proxy]:
        between_members = self.etcd.peer_proxies if self.etcd is not None else []
        balancer = [self.balancer] if self.balancer is not None else []
        return [
            *balancer,
            *self.proxies.values(),
            *(way for ways in self.ways_to_etcd.values() for way in ways),
            *between_members,
        ]

    # --- looking

    async def is_ready(self, client: Client) -> bool:
        """Nodes are there and every driver publishes a whole pool."""
        try:
            nodes = {node.metadata.name for node in (await client.list(NODES)).items}
            slices = (await client.list(SLICES)).items
        except (ApiError, ServerUnreachable):
            return False
        published = {(each.spec.node_name, each.spec.driver) for each in slices}
        wanted = {(node, DRIVER_NAMES[driver]) for node, drivers in self.nodes.items() for driver in drivers}
        return set(self.nodes) <= nodes and wanted <= published

    def prepared(self, node: str) -> set[str]:
        """UIDs of claims that drivers of a node hold."""
        found: set[str] = set()
        for path in self.root(node).glob("plugins/*/prepared.json"):
            found |= set(json.loads(path.read_text())["claims"])
        return found

    def checkpointed(self, node: str) -> set[str]:
        """UIDs of claims in the node agent's checkpoint."""
        try:
            data = json.loads((self.root(node) / "dra_manager_state").read_text())["Data"]
        except FileNotFoundError:
            return set()
        return {each["ClaimUID"] for each in json.loads(data)["ClaimInfoStateList"] or ()}

    def leftovers(self) -> list[str]:
        """What nodes still hold: empty once all pods are gone."""
        left: list[str] = []
        for node in self.nodes:
            left += [f"node {node}: driver holds {uid}" for uid in sorted(self.prepared(node))]
            left += [f"node {node}: checkpoint holds {uid}" for uid in sorted(self.checkpointed(node))]
            left += [f"node {node}: CDI file {path.name}" for path in self.cdi(node).glob("*")]
        return left

    def guard_keys(self) -> list[str]:
        """The double-allocation guard's records; with SQLite only while the server is down. Nodes keep theirs."""
        if self.etcd is not None:
            guard = DEFAULT_PREFIX + GUARD
            answer = self.etcd.control("get", "--prefix", "--keys-only", guard)
            if answer.returncode:
                return [f"what etcd does not tell: {answer.stderr}"]
            nodes = {f"{guard}nodes/{node}" for node in self.nodes}
            return [line for line in answer.stdout.split() if line not in nodes]
        with sqlite3.connect(f"file:{self.data(self.apiserver_names[0]) / 'dray.db'}?mode=ro", uri=True) as database:
            rows = database.execute("SELECT key FROM current").fetchall()
        return [str(key) for (key,) in rows if str(key).startswith(GUARD)]

    def processes_left(self) -> list[int]:
        """Processes that name this run's folder and are not parts of it: containers that nobody ended."""
        own = {part._process.pid for part in self.parts.values() if part._process is not None} | {os.getpid()}
        if self.etcd is not None:
            own |= {member.pid for member in self.etcd.members if member.pid is not None}
        marker = str(self.folder).encode() + b"/"
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in own:
                with contextlib.suppress(OSError):
                    if marker in (entry / "cmdline").read_bytes() or marker in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def tracebacks(self, name: str) -> list[str]:
        """What a part's log says of its own mistakes: the last of the frames, and the error."""
        log = self.parts[name].log
        found = (
            log.read_text(errors="replace").split("Traceback (most recent call last):\n")[1:] if log.exists() else []
        )
        return [short_traceback(text) for text in found]

    def logs(self, lines: int = 15) -> str:
        parts = [part for part in self.parts.values() if part.log.exists()]
        tails = ("\n".join(part.log.read_text(errors="replace").splitlines()[-lines:]) for part in parts)
        return "\n".join(f"--- {part.name}\n{tail}" for part, tail in zip(parts, tails, strict=True))

    async def _until(self, holds, what: str, timeout_s: float = 60.0) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not holds():
            assert asyncio.get_running_loop().time() < deadline, f"waited {timeout_s:g} s for {what}\n{self.logs()}"
            await asyncio.sleep(0.1)


def _names(part: str, count: int) -> list[str]:
    return [part] if count == 1 else [f"{part}-{number}" for number in range(1, count + 1)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "gone"


def short_traceback(text: str) -> str:
    """Frames are indented, the error is not."""
    lines = text.splitlines()
    end = next((at for at, line in enumerate(lines) if not line.startswith(" ")), len(lines))
    return "\n    ".join(lines[max(end - 6, 0) : end + 1])
