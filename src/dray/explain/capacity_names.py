"""Capacities that a request asks for and no device of the node has, with the published names that were probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from dray.allocator.node_report import DeviceReport
from dray.api.dra.consumption import plain_name


def unpublished_capacity(devices: Iterable[DeviceReport]) -> str:
    """The capacity that none of the devices has which fail for their capacity; empty if one of them has it."""
    names = {device.missing for device in devices if device.code == "capacity"}
    return names.pop() if len(names) == 1 else ""


def likely_names(name: str, devices: Iterable[DeviceReport]) -> list[str]:
    """Published names, the likeliest first: the same without or with the driver's domain, then those spelled alike."""
    published = {key: device.device_id.driver for device in devices for key in device.kind.device.capacity}
    bare = name.rpartition("/")[2]
    same = [key for key, driver in published.items() if plain_name(key, driver) == plain_name(name, driver)]
    by_bare = {key.rpartition("/")[2]: key for key in published}
    alike = [by_bare[each] for each in difflib.get_close_matches(bare, sorted(by_bare), n=3)]
    return list(dict.fromkeys(each for each in (*same, *alike) if each != name))


def capacity_hint(devices: Iterable[DeviceReport]) -> str:
    """What the devices that fail for their capacity have instead; empty unless all of them lack the same one."""
    failing = [device for device in devices if device.code == "capacity"]
    name = unpublished_capacity(failing)
    if not name:
        return ""
    likely = likely_names(name, failing)
    return f"none of them has a capacity {name}" + (f"; did you mean {likely[0]}?" if likely else "")
