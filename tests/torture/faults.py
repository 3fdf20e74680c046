"""Random faults from one seed: processes die, stop and come back; connections break, crawl and hang; clocks jump;
disks are slow and full; watch events come late and twice; certificates end; schedulers stop to choose a leader."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.torture.etcd_cluster import EtcdCluster, Member
from tests.torture.member_disk import SlowDisk
from tests.torture.part_certificates import ending_in, write_pair
from tests.torture.rig import TortureRig

MAX_DOWN_S = 3.0
# Its weight, and what it does.
Fault = tuple[int, Callable[[], Awaitable[None]]]


class Faults:
    """`strike()` does one fault and takes it back; several may overlap."""

    def __init__(self, rig: TortureRig, seed: int) -> None:
        self._rig = rig
        self._chance = random.Random(seed)
        self._all_schedulers_are_active = False
        self.counts: Counter[str] = Counter()

    async def strike(self) -> None:
        faults: list[Fault] = [
            (6, self._kill),
            (2, self._kill_apiserver),
            (5, self._pause),
            (5, self._cut),
            (3, self._crawl),
            (3, self._hang),
            (4, self._set_clock),
            (3, self._hurt_watches),
            (3, self._let_certificate_end),
            (1, self._let_serving_certificate_end),
        ]
        if self._rig.options.elects and self._rig.options.schedulers > 1:
            faults.append((1, self._stop_elections))
        faults += self._faults_of_etcd() if self._rig.etcd is not None else self._faults_of_sqlite()
        (chosen,) = self._chance.choices([fault for _, fault in faults], [weight for weight, _ in faults])
        await chosen()

    def _faults_of_sqlite(self) -> list[Fault]:
        return [(3, self._slow_disk), (2, self._fill_disk)]

    def _faults_of_etcd(self) -> list[Fault]:
        assert self._rig.etcd is not None
        faults: list[Fault] = [
            (4, self._kill_etcd_member),
            (2, self._pause_etcd_member),
            (3, self._cut_off_from_etcd),
            (1, self._exhaust_etcd_quota),
        ]
        if SlowDisk.is_possible():
            faults.append((3, self._slow_etcd_disk))
        if all(member.small_disk is not None for member in self._rig.etcd.members):
            faults.append((2, self._fill_etcd_disk))
        if len(self._rig.etcd.members) > 1:
            faults += [(2, self._lose_quorum), (4, self._part_etcd)]
        return faults

    async def _kill(self) -> None:
        name = self._chance.choice([each for each in self._rig.parts if each not in self._rig.apiserver_names])
        self._count("kill -9", name)
        await self._rig.restart(name, self._chance.uniform(0.0, MAX_DOWN_S))

    async def _kill_apiserver(self) -> None:
        name = self._chance.choice(self._rig.apiserver_names)
        self._count("kill -9", name)
        # A full disk at its start would rightly end it.
        self._rig.parts[name].set_weather(disk_is_full=False)
        await self._rig.restart(name, self._chance.uniform(0.0, 1.0))

    async def _pause(self) -> None:
        name = self._chance.choice(list(self._rig.parts))
        self._count("SIGSTOP", name)
        part = self._rig.parts[name]
        part.pause()
        await asyncio.sleep(self._chance.uniform(0.1, MAX_DOWN_S))
        part.resume()

    async def _cut(self) -> None:
        name = self._chance.choice(list(self._rig.proxies))
        self._count("cut", name)
        self._rig.proxies[name].cut()

    async def _crawl(self) -> None:
        name = self._chance.choice(list(self._rig.proxies))
        self._count("delay", name)
        self._rig.proxies[name].delay(self._chance.uniform(0.05, 0.5))
        await asyncio.sleep(self._chance.uniform(0.5, 4.0))
        self._rig.proxies[name].heal()

    async def _hang(self) -> None:
        name = self._chance.choice(list(self._rig.proxies))
        self._count("hold", name)
        self._rig.proxies[name].hold()
        await asyncio.sleep(self._chance.uniform(0.5, 5.0))
        self._rig.proxies[name].heal()
        if self._chance.random() < 0.5:
            self._rig.proxies[name].cut()

    async def _set_clock(self) -> None:
        """Somebody sets the clock of one part; now and then nobody sets it right again before the end."""
        name = self._chance.choice(list(self._rig.parts))
        wrong_by_s = self._chance.choice([self._chance.uniform(-90, 90), self._chance.uniform(-30, 30) * 3600])
        self._count("clock jump", name)
        self._rig.parts[name].set_weather(clock_wrong_by_s=wrong_by_s)
        await asyncio.sleep(self._chance.uniform(0.5, 5.0))
        if self._chance.random() < 0.8:
            self._rig.parts[name].set_weather(clock_wrong_by_s=0.0)

    async def _hurt_watches(self) -> None:
        """Events reach one part late, and some of them twice."""
        name = self._chance.choice([each for each in self._rig.parts if each not in self._rig.apiserver_names])
        self._count("late and repeated events", name)
        self._rig.parts[name].set_weather(events_hurt=self._chance.uniform(0.1, 0.6))
        await asyncio.sleep(self._chance.uniform(1.0, 6.0))
        self._rig.parts[name].set_weather(events_hurt=0.0)

    async def _slow_disk(self) -> None:
        self._count("slow fsync")
        self._rig.parts["apiserver"].set_weather(commit_takes_s=self._chance.uniform(0.05, 0.8))
        await asyncio.sleep(self._chance.uniform(0.5, 4.0))
        self._rig.parts["apiserver"].set_weather(commit_takes_s=0.0)

    async def _fill_disk(self) -> None:
        self._count("full disk")
        self._rig.parts["apiserver"].set_weather(disk_is_full=True)
        await asyncio.sleep(self._chance.uniform(0.2, 2.0))
        self._rig.parts["apiserver"].set_weather(disk_is_full=False)

    async def _kill_etcd_member(self) -> None:
        member = self._one_of_a_whole_cluster()
        if member is None:
            return
        self._count("kill -9", member.name)
        member.kill()
        await asyncio.sleep(self._chance.uniform(0.2, MAX_DOWN_S))
        member.start()

    async def _pause_etcd_member(self) -> None:
        assert self._rig.etcd is not None
        member = self._chance.choice(self._rig.etcd.members)
        self._count("SIGSTOP", member.name)
        member.pause()
        await asyncio.sleep(self._chance.uniform(0.1, MAX_DOWN_S))
        member.resume()

    async def _lose_quorum(self) -> None:
        """All members but one die; an API server that is started meanwhile waits."""
        assert self._rig.etcd is not None
        members = self._rig.etcd.members
        if any(each.pid is None for each in members):
            return
        dying = self._chance.sample(members, len(members) - 1)
        self._count("kill -9 two etcd members")
        for member in dying:
            member.kill()
        await asyncio.sleep(self._chance.uniform(0.5, MAX_DOWN_S))
        for member in dying:
            member.start()

    async def _cut_off_from_etcd(self) -> None:
        """One API server reaches no member: it must neither answer from the past nor stay away when they are back."""
        name = self._chance.choice(self._rig.apiserver_names)
        self._count("cut off from etcd", name)
        ways = self._rig.ways_to_etcd[name]
        for way in ways:
            way.hold()
        await asyncio.sleep(self._chance.uniform(0.5, 6.0))
        for way in ways:
            way.heal()
            if self._chance.random() < 0.5:
                way.cut()

    async def _part_etcd(self) -> None:
        """Two members lose each other in one direction or in both, one loses all others, or one loses the servers."""
        etcd = self._etcd
        one, other = self._chance.sample(range(len(etcd.members)), 2)
        shape = self._chance.choice(["one way", "both ways", "one alone", "from the servers"])
        self._count(f"partition of etcd: {shape}")
        if shape == "from the servers":
            etcd.cut_off_servers(one)
        else:
            lost = [each for each in range(len(etcd.members)) if each != one] if shape == "one alone" else [other]
            for each in lost:
                etcd.cut(one, each)
                if shape != "one way":
                    etcd.cut(each, one)
        await asyncio.sleep(self._chance.uniform(0.5, 8.0))
        etcd.heal_network()

    # --- etcd's disks

    async def _slow_etcd_disk(self) -> None:
        member = self._chance.choice(self._etcd.members)
        pid = member.pid
        if pid is None or member.slow_disk.is_on:
            return
        member.slow_disk.begin(pid, self._chance.uniform(0.02, 0.6))
        await asyncio.sleep(self._chance.uniform(1.0, 8.0))
        if await asyncio.to_thread(member.slow_disk.end):
            self._count("slow disk", member.name)

    async def _fill_etcd_disk(self) -> None:
        """The member ends when it cannot write, and is started again when there is room; the others go on."""
        member = self._one_of_a_whole_cluster()
        if member is None or member.small_disk is None:
            return
        self._count("full disk", member.name)
        await asyncio.to_thread(member.small_disk.fill)
        # It has taken some room in advance and lives on that for a while.
        deadline = time.monotonic() + self._chance.uniform(2.0, 20.0)
        while member.pid is not None and time.monotonic() < deadline:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.2)
        if member.pid is None:
            self._count("ended on its full disk", member.name)
            await asyncio.sleep(self._chance.uniform(0.0, MAX_DOWN_S))
        member.small_disk.free()
        member.start()

    async def _exhaust_etcd_quota(self) -> None:
        """One member finds that the database is larger than allowed: no member takes a write until the alarm is off."""
        member = self._one_of_a_whole_cluster()
        if member is None:
            return
        self._count("etcd without space")
        member.kill()
        member.start("--quota-backend-bytes", "1")
        await asyncio.sleep(self._chance.uniform(2.0, 6.0))
        member.kill()
        member.start()
        while (await asyncio.to_thread(self._etcd.control, "alarm", "disarm")).returncode:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.5)

    def _one_of_a_whole_cluster(self) -> Member | None:
        """One at a time: three members survive the loss of one."""
        member = self._chance.choice(self._etcd.members)
        return None if any(each.pid is None for each in self._etcd.members) else member

    @property
    def _etcd(self) -> EtcdCluster:
        assert self._rig.etcd is not None
        return self._rig.etcd

    # --- certificates

    async def _let_certificate_end(self) -> None:
        """Nobody renews it in time. The parts that show it must be back once it is renewed, without a restart."""
        certificates = self._rig.certificates
        name = self._chance.choice([each for each in certificates.names if each not in ("workload", "follower")])
        lasts_s = self._chance.uniform(1.0, 5.0)
        if not certificates.let_end(name, lasts_s):
            return
        self._count("certificate ends", name)
        for part in self._rig.users_of(name):
            await self._rig.restart(part, 0.0)
        await asyncio.sleep(lasts_s + self._chance.uniform(0.0, 6.0))
        # A connection outlives the certificate with which it was made.
        for way in self._rig.ways_of(name):
            way.cut()
        await asyncio.sleep(self._chance.uniform(0.0, 3.0))
        certificates.renew(name)

    async def _let_serving_certificate_end(self) -> None:
        """It ended while the server was down: the server must come back with a new one."""
        name = self._chance.choice(self._rig.apiserver_names)
        self._count("serving certificate ends", name)
        # With a wrong clock it would rightly make one that nobody takes yet.
        self._rig.parts[name].set_weather(disk_is_full=False, clock_wrong_by_s=0.0)
        self._rig.parts[name].kill()
        pair = self._rig.authority.issue_server("kube-apiserver", ["127.0.0.1"], ending_in(-1.0))
        write_pair(self._rig.data(name) / "pki" / "apiserver", pair)
        await asyncio.sleep(self._chance.uniform(0.0, 1.0))
        self._rig.parts[name].start()

    # --- leaders

    async def _stop_elections(self) -> None:
        """For a while all schedulers are active at once; in between, one that leads works beside one that asks nobody."""
        if self._all_schedulers_are_active:
            return
        self._all_schedulers_are_active = True
        self._count("all schedulers active")
        await self._rig.let_all_schedulers_be_active(are_active=True)
        await asyncio.sleep(self._chance.uniform(5.0, 30.0))
        await self._rig.let_all_schedulers_be_active(are_active=False)
        self._all_schedulers_are_active = False

    def _count(self, fault: str, name: str = "") -> None:
        """By the kind of part; the log has its name, and the time as the history has it."""
        self.counts[f"{fault} {name.partition('-')[0]}".strip()] += 1
        with (self._rig.folder / "faults.log").open("a") as log:
            log.write(f"{time.monotonic():.3f} {fault} {name}\n")
