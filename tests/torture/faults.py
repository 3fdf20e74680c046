"""Random faults from one seed: processes die, stop and come back; connections break, crawl and hang; clocks jump;
disks are slow and full; watch events come late and twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.torture.rig import TortureRig

MAX_DOWN_S = 3.0


class Faults:
    """`strike()` does one fault and takes it back; several may overlap."""

    def __init__(self, rig: TortureRig, seed: int) -> None:
        self._rig = rig
        self._chance = random.Random(seed)
        self.counts: Counter[str] = Counter()

    async def strike(self) -> None:
        faults: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self._kill),
            (2, self._kill_apiserver),
            (5, self._pause),
            (5, self._cut),
            (3, self._crawl),
            (3, self._hang),
            (4, self._set_clock),
            (3, self._hurt_watches),
        ]
        if self._rig.etcd is None:
            faults += [(3, self._slow_disk), (2, self._fill_disk)]
        else:
            faults += [(4, self._kill_etcd_member), (2, self._pause_etcd_member)]
            faults.append((3, self._cut_off_from_etcd))
            if len(self._rig.etcd.members) > 1:
                faults += [(2, self._lose_quorum), (3, self._part_etcd)]
        (chosen,) = self._chance.choices([fault for _, fault in faults], [weight for weight, _ in faults])
        await chosen()

    async def _kill(self) -> None:
        name = self._chance.choice([each for each in self._rig.parts if each not in self._rig.apiserver_names])
        self._count(f"kill -9 {name}")
        await self._rig.restart(name, self._chance.uniform(0.0, MAX_DOWN_S))

    async def _kill_apiserver(self) -> None:
        name = self._chance.choice(self._rig.apiserver_names)
        self._count(f"kill -9 {name}")
        # A full disk at its start would rightly end it.
        self._rig.parts[name].set_weather(disk_is_full=False)
        await self._rig.restart(name, self._chance.uniform(0.0, 1.0))

    async def _pause(self) -> None:
        name = self._chance.choice(list(self._rig.parts))
        self._count(f"SIGSTOP {name}")
        part = self._rig.parts[name]
        part.pause()
        await asyncio.sleep(self._chance.uniform(0.1, MAX_DOWN_S))
        part.resume()

    async def _cut(self) -> None:
        name = self._chance.choice(list(self._rig.proxies))
        self._count(f"cut {name}")
        self._rig.proxies[name].cut()

    async def _crawl(self) -> None:
        name = self._chance.choice(list(self._rig.proxies))
        self._count(f"delay {name}")
        self._rig.proxies[name].delay(self._chance.uniform(0.05, 0.5))
        await asyncio.sleep(self._chance.uniform(0.5, 4.0))
        self._rig.proxies[name].heal()

    async def _hang(self) -> None:
        name = self._chance.choice(list(self._rig.proxies))
        self._count(f"hold {name}")
        self._rig.proxies[name].hold()
        await asyncio.sleep(self._chance.uniform(0.5, 5.0))
        self._rig.proxies[name].heal()
        if self._chance.random() < 0.5:
            self._rig.proxies[name].cut()

    async def _set_clock(self) -> None:
        """Somebody sets the clock of one part; now and then nobody sets it right again before the end."""
        name = self._chance.choice(list(self._rig.parts))
        wrong_by_s = self._chance.choice([self._chance.uniform(-90, 90), self._chance.uniform(-30, 30) * 3600])
        self._count(f"clock jump {name}")
        self._rig.parts[name].set_weather(clock_wrong_by_s=wrong_by_s)
        await asyncio.sleep(self._chance.uniform(0.5, 5.0))
        if self._chance.random() < 0.8:
            self._rig.parts[name].set_weather(clock_wrong_by_s=0.0)

    async def _hurt_watches(self) -> None:
        """Events reach one part late, and some of them twice."""
        name = self._chance.choice([each for each in self._rig.parts if each not in self._rig.apiserver_names])
        self._count(f"late and repeated events {name}")
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
        etcd = self._rig.etcd
        assert etcd is not None
        member = self._chance.choice(etcd.members)
        if any(each.pid is None for each in etcd.members):
            return  # One at a time: three members survive the loss of one.
        self._count(f"kill -9 {member.name}")
        member.kill()
        await asyncio.sleep(self._chance.uniform(0.2, MAX_DOWN_S))
        member.start()

    async def _pause_etcd_member(self) -> None:
        assert self._rig.etcd is not None
        member = self._chance.choice(self._rig.etcd.members)
        self._count(f"SIGSTOP {member.name}")
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
        self._count(f"cut off {name} from etcd")
        ways = self._rig.ways_to_etcd[name]
        for way in ways:
            way.hold()
        await asyncio.sleep(self._chance.uniform(0.5, 6.0))
        for way in ways:
            way.heal()
            if self._chance.random() < 0.5:
                way.cut()

    async def _part_etcd(self) -> None:
        """Nothing reaches one member from the others, while it may still reach them."""
        assert self._rig.etcd is not None
        proxy = self._chance.choice(self._rig.etcd.peer_proxies)
        self._count("partition between etcd members")
        proxy.hold()
        await asyncio.sleep(self._chance.uniform(0.5, 5.0))
        proxy.heal()
        proxy.cut()

    def _count(self, fault: str) -> None:
        self.counts[fault] += 1
