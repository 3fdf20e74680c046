"""Changes to a node, to the pods on it or to the waiting pod that may let the node take the pod. Each is rehearsed before it is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from dray.accounting import Demand, as_quantity
from dray.api.core import Container, Node, NodeSelectorRequirement, Pod, ResourceRequirements, Taint, Toleration
from dray.api.dra.taints import HARD_EFFECTS, untolerated
from dray.api.matching import matches_requirement, required_nodes
from dray.api.quantity import Quantity
from dray.api.resource import IMPLICIT_EXTENDED_RESOURCE_PREFIX
from dray.explain.node_shortage import ShortRow
from dray.explain.what_if import Remedy

# Labels that say what a node is, and not what it is for.
_OWN_LABELS = frozenset({"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "metadata.name"})


_OF_CLASS = IMPLICIT_EXTENDED_RESOURCE_PREFIX


@dataclass(frozen=True, slots=True)
class RefusingNode:
    """A node with what is on it, as far as it is the only thing in the way of the pod."""

    node: Node
    placed: Sequence[tuple[Pod, Demand]]

    @property
    def name(self) -> str:
        return self.node.metadata.name


# Taints of nodes that something is wrong with: a pod that tolerated them would get such a node, and not start there.
_TROUBLE = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "network-unavailable",
        "out-of-service",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
    )
)

# The taint of nodes that are cordoned.
CORDONED = "node.kubernetes.io/unschedulable"


def is_in_trouble(node: Node) -> bool:
    return any(taint.key in _TROUBLE for taint in node.spec.taints)


def node_remedies(pod: Pod, where: RefusingNode, code: str, rows: Sequence[ShortRow]) -> Iterator[Remedy]:
    """Remedies for the one refusal of the node, with this code and these ledger rows that are short."""
    if code == "node-unschedulable":
        yield Remedy("uncordon", f"kubectl uncordon {where.name}", (_uncordoned(where.node),))
    elif code == "node-taint":
        if not is_in_trouble(where.node):
            yield from _tolerating(pod, where.node)
    elif code in ("node-affinity", "not-considered"):
        yield from _labelled(pod, where.node)
        yield from _less_selective(pod, where.node)
    elif rows and not any(row.claim for row in rows):
        yield from _for_short_rows(pod, where, rows)


# --- taints and labels


def taints_in_the_way(pod: Pod, node: Node) -> list[Taint]:
    """Taints of the node that the pod would have to tolerate. The one that a cordoned node carries is left out: it goes when the node
    is uncordoned."""
    taints = [row for row in untolerated(node.spec.taints, pod.spec.tolerations) if row.effect in HARD_EFFECTS]
    return [row for row in taints if not (node.spec.unschedulable and row.key == CORDONED)]


def _uncordoned(node: Node) -> Node:
    """Without the taint, too, that a controller gives to nodes that are cordoned, and takes away again."""
    taints = tuple(row for row in node.spec.taints if row.key != CORDONED)
    return replace(node, spec=replace(node.spec, unschedulable=False, taints=taints))


def _tolerating(pod: Pod, node: Node) -> Iterator[Remedy]:
    taints = taints_in_the_way(pod, node)
    if not taints:
        return
    more = tuple(
        Toleration(
            key=taint.key, operator="" if taint.value else "Exists", value=taint.value or "", effect=taint.effect
        )
        for taint in taints
    )
    said = ", ".join(map(_as_yaml, more))
    changed = replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, *more)))
    yield Remedy("tolerate-node-taint", f"add {said} to the pod's tolerations", (changed,))


def _as_yaml(row: Toleration) -> str:
    how = f"value: {row.value}" if row.value else "operator: Exists"
    return f"{{key: {row.key}, {how}, effect: {row.effect}}}"


def _labelled(pod: Pod, node: Node) -> Iterator[Remedy]:
    """The label command that makes the node match, if labels are what it lacks."""
    labels = node.metadata.labels
    wanted: dict[str, str | None] = {k: v for k, v in pod.spec.node_selector.items() if labels.get(k) != v}
    required = required_nodes(pod.spec)
    if required is not None:
        terms = required.node_selector_terms
        options = [_labels_for(term.match_expressions, labels) for term in terms if not term.match_fields]
        possible = [option for option in options if option is not None]
        if not possible:
            return
        nearest: dict[str, str | None] = min(possible, key=len)
        wanted |= nearest
    if not wanted or _OWN_LABELS & wanted.keys():
        return
    kept = {key: value for key, value in labels.items() if wanted.get(key, value) is not None}
    changed = {**kept, **{key: value for key, value in wanted.items() if value is not None}}
    parts = [f"{key}={value}" if value is not None else f"{key}-" for key, value in wanted.items()]
    overwrite = " --overwrite" if any(value is not None and key in labels for key, value in wanted.items()) else ""
    text = f"kubectl label node {node.metadata.name} {' '.join(parts)}{overwrite}"
    yield Remedy("label-node", text, (replace(node, metadata=replace(node.metadata, labels=changed)),))


def _less_selective(pod: Pod, node: Node) -> Iterator[Remedy]:
    """Without the labels of the pod's node selector that the node does not have."""
    wanted = pod.spec.node_selector
    dropped = {key: value for key, value in wanted.items() if node.metadata.labels.get(key) != value}
    if dropped:
        said = ", ".join(f"{key}={value}" for key, value in dropped.items())
        kept = {key: value for key, value in wanted.items() if key not in dropped}
        changed = replace(pod, spec=replace(pod.spec, node_selector=kept))
        yield Remedy("drop-node-selector", f"remove {said} from the pod's nodeSelector", (changed,))


def _labels_for(rows: Sequence[NodeSelectorRequirement], labels: dict[str, str]) -> dict[str, str | None] | None:
    """Labels to set, or to remove where the value is None; None where setting labels is not how to meet a requirement."""
    found: dict[str, str | None] = {}
    for row in rows:
        if matches_requirement(row, labels):
            continue
        if row.operator == "In" and row.values:
            found[row.key] = row.values[0]
        elif row.operator == "Exists":
            found[row.key] = "true"
        elif row.operator in ("NotIn", "DoesNotExist"):
            found[row.key] = None
        else:
            return None
    return found


# --- cpu, memory and other rows of the ledger


def _for_short_rows(pod: Pod, where: RefusingNode, rows: Sequence[ShortRow]) -> Iterator[Remedy]:
    offered = [row for row in rows if row.allocatable == "0"]
    if offered:
        yield _offering(where.node, offered)
        return
    by_free = _asking_less(pod, rows, [_at_most(row, row.free) for row in rows])
    if by_free is not None:
        yield by_free
    if all(_amount(row.asked) <= _amount(row.allocatable) for row in rows):
        yield from _freeing(where, rows)
    elif by_free is None:
        yield from _asking_less_and_freeing(pod, where, rows)


def _offering(node: Node, rows: Sequence[ShortRow]) -> Remedy:
    amounts = {row.resource: _amount(row.asked) for row in rows}
    status = replace(
        node.status,
        allocatable={**node.status.allocatable, **amounts},
        capacity={**node.status.capacity, **amounts},
    )
    said = " and ".join(f"{row.asked} {row.resource}" for row in rows)
    implicit = [row.resource.removeprefix(_OF_CLASS) for row in rows if row.resource.startswith(_OF_CLASS)]
    how = "a device plugin, or devices of a class with that extendedResourceName"
    if len(implicit) == len(rows):
        # Only a class of that very name serves such a resource.
        how = f"devices of device class {', '.join(implicit)}"
    return Remedy("offer-resource", f"offer {said} on {node.metadata.name}: {how}", (replace(node, status=status),))


def _at_most(row: ShortRow, limit: str) -> Quantity | None:
    """What the spec may ask for where claims keep their part; None if nothing would be left for it."""
    by_claims = _amount(row.asked_by_claims) if row.asked_by_claims else Quantity.ZERO
    left = _amount(limit).nanos - by_claims.nanos
    return Quantity(left, _amount(limit).format) if left > 0 else None


def _asking_less(pod: Pod, rows: Sequence[ShortRow], amounts: Sequence[Quantity | None]) -> Remedy | None:
    """None if a row would have nothing left for the pod."""
    parts = []
    for row, amount in zip(rows, amounts, strict=True):
        if amount is None or row.resource == "pods":
            return None
        by_claims = f" beside the {row.asked_by_claims} of its claims" if row.asked_by_claims else ""
        asked = _at_most(row, row.asked)
        parts.append(f"at most {amount} {row.resource} instead of {asked or row.asked}{by_claims}")
        pod = asking_at_most(pod, row.resource, amount)
    return Remedy("less-node-resources", f"let the pod ask for {' and '.join(parts)}", (pod,))


def _freeing(where: RefusingNode, rows: Sequence[ShortRow]) -> Iterator[Remedy]:
    missing = {row.resource: _amount(row.asked).nanos - _amount(row.free).nanos for row in rows}
    chosen = _enough(where.placed, missing)
    if chosen:
        amounts = " and ".join(f"{_text(row, missing[row.resource])} {row.resource}" for row in rows)
        names = ", ".join(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in chosen)
        which = "pod" if len(chosen) == 1 else "pods"
        text = f"free {amounts} on {where.name}, for example of {which} {names}"
        yield Remedy("free-node-resources", text, gone=tuple(chosen))


def _asking_less_and_freeing(pod: Pod, where: RefusingNode, rows: Sequence[ShortRow]) -> Iterator[Remedy]:
    """Where nothing is free, and the node would be too small even if it were empty."""
    most = [min(_amount(row.asked), _amount(row.allocatable)) for row in rows]
    less = _asking_less(pod, rows, [_at_most(row, str(amount)) for row, amount in zip(rows, most, strict=True)])
    smaller = [dataclasses.replace(row, asked=str(amount)) for row, amount in zip(rows, most, strict=True)]
    for freed in _freeing(where, smaller) if less is not None else ():
        assert less is not None
        yield Remedy(less.code, f"{less.text}, and {freed.text}", less.edits, freed.gone)


def _text(row: ShortRow, nanos: int) -> str:
    return str(Quantity(nanos, _amount(row.allocatable).format))


def _enough(placed: Sequence[tuple[Pod, Demand]], missing: dict[str, int]) -> list[Pod]:
    """The smallest pod that takes as much as is missing, or the largest ones together."""
    takes = [
        (pod, {name: 10**9 if name == "pods" else as_quantity(name, demand.amount(name)).nanos for name in missing})
        for pod, demand in placed
    ]
    alone = [(pod, part) for pod, part in takes if all(part[name] >= missing[name] for name in missing)]
    if alone:
        return [min(alone, key=lambda pair: sum(pair[1].values()))[0]]
    chosen: list[Pod] = []
    left = dict(missing)
    first = next(iter(missing))
    for pod, part in sorted(takes, key=lambda pair: -pair[1][first]):
        if any(left[name] > 0 and part[name] > 0 for name in missing):
            chosen.append(pod)
            left = {name: left[name] - part[name] for name in missing}
        if all(amount <= 0 for amount in left.values()):
            return chosen
    return []


def _amount(text: str) -> Quantity:
    return Quantity.parse(text)


# --- a pod that asks for less


def asking_at_most(pod: Pod, resource: str, most: Quantity) -> Pod:
    """The pod with requests that are not more than `most` in all: what is asked for first is kept first."""
    spec = pod.spec
    left = most.nanos - (spec.overhead[resource].nanos if resource in spec.overhead else 0)
    in_all = left
    containers = []
    for container in spec.containers:
        container, taken = _capped(container, resource, left)
        left -= taken
        containers.append(container)
    initial = tuple(_capped(container, resource, in_all)[0] for container in spec.init_containers)
    level = spec.resources
    if level is not None and resource in level.requests:
        level = _with_amount(level, resource, min(level.requests[resource].nanos, in_all))
    return replace(pod, spec=replace(spec, containers=tuple(containers), init_containers=initial, resources=level))


def _capped(container: Container, resource: str, most: int) -> tuple[Container, int]:
    asked = container.resources.requests.get(resource) or container.resources.limits.get(resource)
    if asked is None:
        return container, 0
    amount = max(min(asked.nanos, most), 0)
    return replace(container, resources=_with_amount(container.resources, resource, amount)), amount


def _with_amount(resources: ResourceRequirements, resource: str, nanos: int) -> ResourceRequirements:
    """Limits of extended resources equal the requests."""
    before = resources.requests.get(resource) or resources.limits[resource]
    amount = Quantity(nanos, before.format)
    limits = resources.limits
    if resource in limits and "/" in resource:
        limits = {**limits, resource: amount}
    return replace(resources, requests={**resources.requests, resource: amount}, limits=limits)
