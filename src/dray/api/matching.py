"""Matches label selectors, node selectors and host ports of pods. Pure.

Selectors of slices and devices are stricter (`dray.allocator.node_selectors`): what makes no sense there is an error.
"""

from collections.abc import Iterable, Iterator, Mapping

from dray.api.core import Container, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec
from dray.api.meta import LabelSelector, LabelSelectorRequirement


def matches_requirement(
    requirement: NodeSelectorRequirement | LabelSelectorRequirement, labels: Mapping[str, str]
) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return compares_numbers(requirement.operator, value, requirement.values)
    return False


def compares_numbers(operator: str, value: str | None, values: tuple[str, ...]) -> bool:
    """Both sides must be whole numbers; anything else never matches."""
    try:
        mine, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return mine > bound if operator == "Gt" else mine < bound


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """An absent selector matches nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        matches_requirement(requirement, labels) for requirement in selector.match_expressions
    )


def matches_term(term: NodeSelectorTerm, node: Node) -> bool:
    """A term without any requirement matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(matches_requirement(row, node.metadata.labels) for row in term.match_expressions) and all(
        matches_requirement(row, fields) for row in term.match_fields
    )


def matches_node(selector: NodeSelector | None, node: Node) -> bool:
    """Terms are alternatives; no selector means every node."""
    return selector is None or any(matches_term(term, node) for term in selector.node_selector_terms)


def required_nodes(spec: PodSpec) -> NodeSelector | None:
    """The pod's required node affinity."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


def pod_wants_node(spec: PodSpec, node: Node) -> bool:
    """Node selector and required node affinity together."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    return matches_node(required_nodes(spec), node)


def names_of(term: NodeSelectorTerm) -> frozenset[str] | None:
    """The only node names the term can match, if it says so."""
    names: frozenset[str] | None = None
    for row in term.match_fields:
        if row.key == "metadata.name" and row.operator == "In":
            names = frozenset(row.values) if names is None else names & frozenset(row.values)
    return names


def only_names(selector: NodeSelector | None) -> frozenset[str] | None:
    """The nodes a selector can match by name alone; None if labels decide."""
    if selector is None or not selector.node_selector_terms:
        return None
    named = [names_of(term) for term in selector.node_selector_terms]
    if any(names is None for names in named):
        return None
    return frozenset().union(*(names for names in named if names is not None))


HostPort = tuple[str, str, int]
"""Protocol, address of the node, port."""

ANY_ADDRESS = "0.0.0.0"
# Nearly all pods have none, and share this set.
_NO_PORTS: frozenset[HostPort] = frozenset()


def host_ports(pod: Pod) -> frozenset[HostPort]:
    """Host ports of long-running containers: regular ones and sidecars. Other init containers end before a clash could matter."""
    spec = pod.spec
    if not any(container.ports for container in (*spec.containers, *spec.init_containers)):
        return _NO_PORTS
    return frozenset(_ports_of(_long_running(pod)))


def ports_clash(wanted: HostPort, taken: HostPort) -> bool:
    same_port = wanted[0] == taken[0] and wanted[2] == taken[2]
    return same_port and (wanted[1] == taken[1] or ANY_ADDRESS in (wanted[1], taken[1]))


def _long_running(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.containers
    yield from (container for container in pod.spec.init_containers if container.restart_policy == "Always")


def _ports_of(containers: Iterable[Container]) -> Iterator[HostPort]:
    for container in containers:
        for port in container.ports:
            if port.host_port > 0:
                yield port.protocol or "TCP", port.host_ip or ANY_ADDRESS, port.host_port
