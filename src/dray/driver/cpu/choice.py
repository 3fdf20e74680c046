"""Which CPUs of a group a claim gets: close to each other, whole cores where possible, and never one that is taken."""

from collections.abc import Collection, Iterable

from dray.driver.cpu.topology import Cpu


def choose_cpus(group: Iterable[Cpu], taken: Collection[int], count: int) -> set[int] | None:
    """`count` CPUs of the group that are not taken; None if there are fewer.

    They share an L3 cache if one has room for all of them: one with whole cores, and the fullest such cache, so that larger holes
    stay whole.
    """
    free_by_cache: dict[int, list[Cpu]] = {}
    for cpu in group:
        if cpu.id not in taken:
            free_by_cache.setdefault(cpu.cache_l3, []).append(cpu)
    roomy = [cpus for cpus in free_by_cache.values() if len(cpus) >= count]
    if roomy:
        choices = [(_of_cache(cpus, count), cpus) for cpus in roomy]
        return min(choices, key=lambda choice: (_parts_of_cores(*choice), len(choice[1])))[0]
    chosen: set[int] = set()
    for cpus in sorted(free_by_cache.values(), key=len, reverse=True):
        chosen |= _of_cache(cpus, min(count - len(chosen), len(cpus)))
    return chosen if len(chosen) == count else None


def _parts_of_cores(chosen: set[int], cpus: Iterable[Cpu]) -> int:
    """How many of the chosen CPUs share their core with somebody else."""
    return sum(cpu.id in chosen and not cpu.threads <= chosen for cpu in cpus)


def _of_cache(free: list[Cpu], count: int) -> set[int]:
    """Free cores as long as all threads of one are needed; the rest first from cores that are in use already."""
    threads: dict[frozenset[int], list[int]] = {}
    for cpu in free:
        threads.setdefault(cpu.threads, []).append(cpu.id)
    whole = sorted(ids for core, ids in threads.items() if len(ids) == len(core))
    parts = sorted(ids for core, ids in threads.items() if len(ids) < len(core))
    chosen: set[int] = set()
    for ids in whole:
        if len(chosen) + len(ids) <= count:
            chosen.update(ids)
    rest = [cpu for ids in (*parts, *whole) for cpu in ids if cpu not in chosen]
    return chosen | set(rest[: count - len(chosen)])
