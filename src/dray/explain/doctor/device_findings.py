"""Checks of what drivers publish and what classes and taint rules make of it."""

from __future__ import annotations

from collections.abc import Iterator

from dray import cel
from dray.allocator.pools import taint_rule_matches
from dray.api.codec import to_document
from dray.api.dra.consumption import consumed_capacity, held_by_device
from dray.api.dra.pools import newest_generations, pool_id, published_devices
from dray.api.gated_fields import dropped_features
from dray.api.resource import DeviceClass
from dray.explain.doctor.finding import (
    CheckedCluster,
    DoctorFinding,
    error,
    is_down,
    named,
    warning,
)
from dray.explain.unreachable_slices import unreachable_slices


def dead_drivers(e: CheckedCluster) -> Iterator[DoctorFinding]:
    """Slices of nodes that are gone, or that are not ready."""
    told: set[tuple[str, str]] = set()
    for each in e.world.slices:
        name = each.spec.node_name
        if not name:
            continue
        node = e.world.nodes_by_name.get(name)
        if node is None:
            message = (
                f"driver {each.spec.driver} published {len(each.spec.devices)} devices for node {name}, which is gone"
            )
            yield error(
                "slice-of-missing-node", named(each), message, f"kubectl delete resourceslice/{each.metadata.name}"
            )
        elif is_down(node) and (name, each.spec.driver) not in told:
            told.add((name, each.spec.driver))
            yield warning(
                "driver-on-unready-node",
                named(each),
                f"node {name} is not ready, so driver {each.spec.driver} there is out of reach",
                f"see node {name}: kubectl describe node/{name}",
            )


def slices_of_no_node(e: CheckedCluster) -> Iterator[DoctorFinding]:
    for found in unreachable_slices(e.world):
        yield error("slice-of-no-node", named(found.slice), found.message, found.fix)


def pools(e: CheckedCluster) -> Iterator[DoctorFinding]:
    told: set[tuple[str, str, str]] = set()
    for node in e.world.nodes:
        found = e.inventory.pools_on(node)
        for view in found.incomplete:
            if ("incomplete", *view.pool_id) not in told:
                told.add(("incomplete", *view.pool_id))
                have, want = len(view.slice_names), view.wanted_slices
                fix = f"see driver {view.driver}: it stopped in the middle of publishing, or a slice was deleted"
                if have > want:
                    fix = f"see that one driver alone publishes the pool, and delete slices that were left behind: {', '.join(view.slice_names)}"
                yield error(
                    "incomplete-pool",
                    f"pool {view.driver}/{view.name}",
                    f"generation {view.generation} has {have} of {want} slices, so nothing of it is given out",
                    fix,
                )
        for view in found.invalid:
            if ("invalid", *view.pool_id) not in told:
                told.add(("invalid", *view.pool_id))
                yield error(
                    "invalid-pool",
                    f"pool {view.driver}/{view.name}",
                    f"{view.problem}, so nothing of it is given out",
                    f"correct what driver {view.driver} publishes",
                )


def old_generations(e: CheckedCluster) -> Iterator[DoctorFinding]:
    newest = newest_generations(e.world.slices)
    for each in e.world.slices:
        latest = newest[pool_id(each)]
        if each.spec.pool.generation < latest:
            yield warning(
                "old-generation",
                named(each),
                f"is of generation {each.spec.pool.generation}, the pool is at {latest}",
                f"see driver {each.spec.driver}: it removes old slices once the new ones are published",
            )


def classes(e: CheckedCluster) -> Iterator[DoctorFinding]:
    environment = cel.Environment.devices(stored=True)
    devices = [cel.CelDevice.of(each.spec.driver, device) for each in e.world.slices for device in each.spec.devices]
    for device_class in e.world.classes:
        yield from _class(device_class, devices, environment)


def _class(
    device_class: DeviceClass, devices: list[cel.CelDevice], environment: cel.Environment
) -> Iterator[DoctorFinding]:
    programs = []
    for selector in device_class.spec.selectors:
        program = cel.compile_selector(selector.cel.expression, environment) if selector.cel is not None else None
        if isinstance(program, cel.CompileFailure):
            first = program.message.splitlines()[0]
            yield error("class-selector-broken", named(device_class), first, "correct the expression: dray cel EXPR")
            return
        if program is not None:
            programs.append(program)
    problem = ""
    for device in devices:
        try:
            if all(program.evaluate(device) for program in programs):
                return
        except cel.CelRuntimeError as failure:
            problem = f"; on some devices it fails: {failure}"
    if devices:
        yield warning(
            "class-matches-nothing",
            named(device_class),
            f"matches none of {len(devices)} published devices{problem}",
            "correct its selectors, or start the driver they are meant for: dray cel EXPR shows what is published",
        )


def taint_rules(e: CheckedCluster) -> Iterator[DoctorFinding]:
    for rule in e.world.taint_rules:
        matches = any(
            taint_rule_matches(rule, each.spec.driver, each.spec.pool.name, device.name)
            for each in e.world.slices
            for device in each.spec.devices
        )
        if not matches and e.world.slices:
            yield warning(
                "taint-rule-matches-nothing",
                named(rule),
                "selects no published device",
                "correct spec.deviceSelector, or delete the rule",
            )


def shared_capacity(e: CheckedCluster) -> Iterator[DoctorFinding]:
    """More given out than there is: capacity of shared devices, and counters of partitions."""
    held = held_by_device(e.world.claims)
    for device_id, device in published_devices(e.world.slices):
        for name, taken in consumed_capacity(held.get(device_id, ())).items():
            published = device.capacity.get(name)
            if published is not None and taken > published.value.nanos:
                yield error(
                    "capacity-overdrawn",
                    f"device {device_id}",
                    f"shares take more {name} than the {published.value} there is",
                    "delete one of the pods that share it; look for a driver that published less than before",
                )


def gates(e: CheckedCluster) -> Iterator[DoctorFinding]:
    """Fields that the cluster, with these gates, would drop or ignore."""
    for obj in (*e.world.slices, *e.world.claims, *e.world.templates, *e.world.classes):
        for needed, names in dropped_features(to_document(obj), e.gates):
            yield warning(
                "gate-off",
                named(obj),
                f"uses {', '.join(names)}, but {', '.join(needed)} is off",
                f"switch on --feature-gates {','.join(f'{gate}=true' for gate in needed)} on every component",
            )
    for each in e.world.slices:
        if each.spec.skip_node_operations and each.spec.node_name:
            node = e.world.nodes_by_name.get(each.spec.node_name)
            if node is not None and "DRAOptionalNodeOperations" not in node.status.declared_features:
                yield warning(
                    "gate-mismatch",
                    named(each),
                    f"skips node operations, but node {each.spec.node_name} does not declare DRAOptionalNodeOperations",
                    "switch the gate on for the node agent, or update it",
                )


DEVICE_CHECKS = (dead_drivers, slices_of_no_node, pools, old_generations, classes, taint_rules, shared_capacity, gates)
