"""Devices of a pool as the map shows them: one letter each for its use, and the bars of what shares take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dray.allocator.ledger import Ledger, Taken
from dray.allocator.pools import PoolState, PoolView
from dray.allocator.types import bits
from dray.api.dra.device_use import HeldDevice, PoolLayout, PoolOccupancy, Use
from dray.api.quantity import Quantity
from dray.api.resource import DeviceAttribute, DeviceTaint
from dray.dashboard.device_health import DeviceHealthReports

Document = dict[str, Any]

# One letter for each use, in the row of a pool.
LETTERS = {Use.USED: "u", Use.PARTLY: "p", Use.FREE: "f", Use.BLOCKED: "b", Use.TAINTED: "t"}


def pool_row(
    view: PoolView, occupancy: PoolOccupancy, ledger: Ledger, health: DeviceHealthReports, shape: str
) -> Document:
    """`use` has one letter per device, in the order of the shape's names; `units` counts them by letter, a cut card once."""
    counts = occupancy.counts
    row: Document = {
        "driver": view.driver,
        "pool": view.name,
        "node": _only_node(view),
        "shape": shape,
        "use": "".join([LETTERS[use] for use in occupancy.uses]),
        "units": {letter: counts.of(use) for use, letter in LETTERS.items() if counts.of(use)},
        "parts": round(counts.parts, 4),
    }
    # Taints of devices that are in use anyway, which their letter does not show.
    marked = [i for i, kind in enumerate(view.shape.kinds) if kind.taints and occupancy.uses[i] is not Use.TAINTED]
    if marked:
        row["tainted"] = marked
    sick = [i for i, name in enumerate(view.names) if health.problem_of((view.driver, view.name, name))]
    if sick:
        row["unhealthy"] = sick
    shares = {str(position): bars for position, bars in _shares(view, ledger.taken(view))}
    if shares:
        row["shares"] = shares
    if view.state.value != "valid":
        row["problem"] = view.problem or f"{len(view.slice_names)} of {view.wanted_slices} slices are published"
        row["state"] = view.state.value
    return row


def _only_node(view: PoolView) -> str:
    nodes = {compiled.spec.node_name for compiled in view.slices}
    return (nodes.pop() or "") if len(nodes) == 1 else ""


def occupancy_of(view: PoolView, ledger: Ledger) -> PoolOccupancy:
    counters = view.counters
    totals = dict(zip(counters.names, counters.totals, strict=True)) if counters is not None else {}
    tainted = frozenset(place for place, kind in enumerate(view.shape.kinds) if kind.taints)
    layout = PoolLayout(view.devices, totals, tainted, is_usable=view.state is PoolState.VALID)
    return layout.occupancy(dict(_held(view, ledger.taken(view))))


def _held(view: PoolView, taken: Taken) -> Iterator[tuple[str, HeldDevice]]:
    for place in bits(taken.dedicated | taken.shared):
        yield view.names[place], HeldDevice(bool(taken.dedicated >> place & 1), taken.consumed.get(place, {}))


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
