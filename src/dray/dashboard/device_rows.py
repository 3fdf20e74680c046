"""Devices of a pool as the map shows them: one letter each for its use, and the bars of what shares take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dray.allocator.ledger import Ledger, Taken
from dray.allocator.pools import PoolView
from dray.api.quantity import Quantity
from dray.api.resource import Device, DeviceAttribute, DeviceTaint
from dray.dashboard.device_health import DeviceHealthReports

Document = dict[str, Any]

FREE, IN_USE, PARTLY, BLOCKED, TAINTED, UNHEALTHY = "f", "u", "p", "b", "t", "x"
# Unhealthy, and somebody holds it.
UNHEALTHY_IN_USE = "X"


def pool_row(view: PoolView, taken: Ledger, health: DeviceHealthReports, shape: str) -> Document:
    """`use` has one letter per device, in the order of the shape's names."""
    uses = list(_uses(view, taken, health))
    row: Document = {
        "driver": view.driver,
        "pool": view.name,
        "node": _only_node(view),
        "shape": shape,
        "use": "".join(uses),
    }
    # Taints of devices that are in use anyway, which their letter does not show.
    marked = [i for i, kind in enumerate(view.shape.kinds) if kind.taints and uses[i] != TAINTED]
    if marked:
        row["tainted"] = marked
    shares = {str(position): bars for position, bars in _shares(view, taken.taken(view))}
    if shares:
        row["shares"] = shares
    if view.state.value != "valid":
        row["problem"] = view.problem or f"{len(view.slice_names)} of {view.wanted_slices} slices are published"
        row["state"] = view.state.value
    return row


def _only_node(view: PoolView) -> str:
    nodes = {compiled.spec.node_name for compiled in view.slices}
    return (nodes.pop() or "") if len(nodes) == 1 else ""


def _uses(view: PoolView, ledger: Ledger, health: DeviceHealthReports) -> Iterator[str]:
    taken = ledger.taken(view)
    counters = ledger.counters(view) if view.counters is not None else None
    for position, name in enumerate(view.names):
        kind = view.shape.kinds[position]
        bit = 1 << position
        if health.problem_of((view.driver, view.name, name)):
            yield UNHEALTHY_IN_USE if (taken.dedicated | taken.shared) & bit else UNHEALTHY
        elif taken.dedicated & bit:
            yield IN_USE
        elif taken.shared & bit:
            yield IN_USE if _is_full(kind.device, taken, position) else PARTLY
        elif kind.taints:
            yield TAINTED
        elif counters is not None and view.counters is not None and kind.consumes:
            drawn = view.counters.drawn_by(kind)
            yield BLOCKED if any(counters.available[which] < amount for which, amount in drawn) else FREE
        else:
            yield FREE


def _is_full(device: Device, taken: Taken, position: int) -> bool:
    consumed = taken.consumed.get(position, {})
    return any(
        amount >= device.capacity[name].value.nanos > 0 for name, amount in consumed.items() if name in device.capacity
    )


def _shares(view: PoolView, taken: Taken) -> Iterator[tuple[int, list[list[Any]]]]:
    """For each device with shares, per capacity: its name, what is taken, what there is, percent."""
    for position, consumed in taken.consumed.items():
        capacity = view.devices[position].capacity
        bars: list[list[Any]] = []
        for name, nanos in sorted(consumed.items()):
            if name in capacity:
                value = capacity[name].value
                percent = round(100 * nanos / value.nanos, 1) if value.nanos else 100
                bars.append([name, str(Quantity(nanos, value.format)), str(value), percent])
        if bars:
            yield position, bars


def shape_row(view: PoolView) -> Document:
    """What pools of equal make share: names, and the counter set that a device belongs to."""
    row: Document = {"names": view.names}
    groups = [kind.consumes[0][0] if kind.consumes else "" for kind in view.shape.kinds]
    if any(groups):
        known = list(dict.fromkeys(groups))
        row["groups"] = known
        row["group"] = [known.index(name) for name in groups]
    shared = [i for i, kind in enumerate(view.shape.kinds) if kind.allows_multiple]
    if shared:
        row["shared"] = shared
    return row


# --- one pool in depth, when somebody opens it


def device_documents(view: PoolView, ledger: Ledger, health: DeviceHealthReports) -> list[Document]:
    counters = ledger.counters(view) if view.counters is not None else None
    found = []
    for position, device in enumerate(view.devices):
        kind = view.shape.kinds[position]
        document: Document = {
            "name": device.name,
            "attributes": {name: _value(each) for name, each in sorted(device.attributes.items())},
            "capacity": {name: str(each.value) for name, each in sorted(device.capacity.items())},
            "taints": [_taint(each) for each in kind.taints],
            "health": health.problem_of((view.driver, view.name, device.name)),
            "shared": kind.allows_multiple,
        }
        if counters is not None and view.counters is not None and kind.consumes:
            document["counters"] = [
                [
                    *view.counters.names[which],
                    str(Quantity(amount)),
                    str(Quantity(counters.available[which])),
                    str(Quantity(view.counters.totals[which])),
                ]
                for which, amount in view.counters.drawn_by(kind)
            ]
        found.append(document)
    return found


def _value(attribute: DeviceAttribute) -> str:
    single = (attribute.string, attribute.version, attribute.int_, attribute.bool_)
    for value in single:
        if value is not None:
            return str(value).lower() if isinstance(value, bool) else str(value)
    many = attribute.strings or attribute.versions or attribute.ints or attribute.bools or ()
    return ", ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in many)


def _taint(taint: DeviceTaint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
