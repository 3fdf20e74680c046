"""Checks of pods against their claims, and of nodes against their ledgers."""

from __future__ import annotations

from collections.abc import Iterator

from dray.accounting import AccountingError, ClusterLedger, PodRef, pod_demand
from dray.api.core import Pod
from dray.api.dra.claim_users import may_use
from dray.api.dra.pod_claims import (
    ClaimSource,
    PodClaim,
    claim_names,
    claims_of_pod,
    entries_without_claim,
    uses_claims,
)
from dray.api.dra.pod_phase import is_active, is_bound, is_finished, is_on_node
from dray.explain.cluster_objects import Meant, meant_by_claim, meant_by_template
from dray.explain.container_causes import waiting_containers, why_containers_wait
from dray.explain.doctor.finding import (
    CheckedCluster,
    DoctorFinding,
    error,
    is_down,
    kubectl_name,
    named,
    warning,
)
from dray.explain.recorded_causes import RecordedCause, not_ready, unready_devices, why_no_claim, why_not_prepared


def missing_claims(e: CheckedCluster) -> Iterator[DoctorFinding]:
    for pod in e.world.pods:
        if not is_active(pod):
            continue
        namespace = pod.metadata.namespace
        for entry in entries_without_claim(pod):
            template = entry.resource_claim_template_name or ""
            if (namespace, template) in e.world.templates_by_name:
                cause = why_no_claim(e.world, pod, entry)
                if cause is not None:
                    said = f"no claim is made for entry {entry.name}: {cause.message}"
                    yield error("claim-refused", named(pod), said, cause.fix, cause.code)
                else:
                    yield warning(
                        "claim-not-created",
                        named(pod),
                        f"no claim has been made yet for entry {entry.name}",
                        "see that the claim controller runs (dray controller-manager)",
                    )
            elif e.world.templates or not e.world.claims:
                meant = meant_by_template(e.world, namespace, template)
                yield error(
                    "missing-template",
                    named(pod),
                    f"names claim template {template}, which does not exist{meant.hint}",
                    meant.fix or f"create template {template} in namespace {namespace}",
                    "template-missing",
                )
        for claim in claims_of_pod(pod):
            name = claim.claim_name
            if name and (namespace, name) not in e.world.claims_by_name:
                meant = Meant() if claim.is_generated else meant_by_claim(e.world, namespace, name)
                yield error(
                    "missing-claim",
                    named(pod),
                    f"uses claim {name}, which does not exist{meant.hint}",
                    meant.fix or _how_to_get(claim, pod),
                    "claim-missing",
                )


def _how_to_get(claim: PodClaim, pod: Pod) -> str:
    if not claim.is_generated:
        return f"create claim {claim.claim_name} in namespace {pod.metadata.namespace}"
    if is_bound(pod) or claim.source is not ClaimSource.TEMPLATE:
        return "delete the pod, and create it again"
    return "see that the claim controller runs (dray controller-manager); it makes the claim again"


def unserved_pods(e: CheckedCluster) -> Iterator[DoctorFinding]:
    """On a node, but a claim has no devices or is not reserved for the pod: the node agent will not start it."""
    for pod in e.world.pods:
        if not (is_bound(pod) and is_active(pod)):
            continue
        for name in claim_names(pod):
            claim = e.world.claims_by_name.get((pod.metadata.namespace, name))
            if claim is None:
                continue
            if claim.status.allocation is None:
                problem = "has no devices"
            elif not may_use(claim, pod):
                problem = "is not reserved for it"
            else:
                continue
            yield error(
                "pod-without-devices",
                named(pod),
                f"is on node {pod.spec.node_name}, but its claim {name} {problem}",
                "delete the pod, and do not set spec.nodeName by hand for pods with claims",
            )


def pods_that_do_not_start(e: CheckedCluster) -> Iterator[DoctorFinding]:
    """On a node with all their devices, but still pending: the node agent says why, or else the drivers have not prepared them."""
    for pod in e.world.pods:
        node = pod.spec.node_name
        if node not in e.world.nodes_by_name or pod.status.phase != "Pending":
            continue
        if pod.metadata.deletion_timestamp is not None:
            continue
        drivers = _drivers_of(e, pod)
        silent = sorted(drivers - e.drivers_on(node))
        cause = _why_not_started(e, pod)
        if cause is not None:
            said = f"is on node {node} and has not started: {cause.message}"
            yield error("pod-held-up", named(pod), said, cause.fix, cause.code)
        elif not drivers:
            continue
        elif silent:
            yield error(
                "dead-driver",
                named(pod),
                f"waits on node {node} for {_drivers(silent)}, with nothing published there",
                f"start {_drivers(silent)} on node {node}",
            )
        else:
            yield warning(
                "pod-not-started",
                named(pod),
                f"is on node {node} with its devices, and has not started",
                f"see what {_drivers(sorted(drivers))} says: kubectl describe {kubectl_name(pod)}",
            )


def _why_not_started(e: CheckedCluster, pod: Pod) -> RecordedCause | None:
    """A container that was tried has its devices, whatever was said about them before; a silent node says nothing that is true now."""
    tried = next(waiting_containers(pod), None)
    return (
        not_ready(e.world.nodes_by_name[pod.spec.node_name])
        or (why_containers_wait(e.world, pod) if tried is not None else None)
        or why_not_prepared(e.world, pod)
        or why_containers_wait(e.world, pod)
    )


def failing_containers(e: CheckedCluster) -> Iterator[DoctorFinding]:
    """Of pods that run: a container that ends is started again, later each time."""
    for pod in e.world.pods:
        if pod.status.phase != "Running" or pod.metadata.deletion_timestamp is not None:
            continue
        if next(waiting_containers(pod), None) is not None and (cause := why_containers_wait(e.world, pod)) is not None:
            yield warning("container-fails", named(pod), f"runs, but {cause.message}", cause.fix, cause.code)


def pods_waiting_for_devices(e: CheckedCluster) -> Iterator[DoctorFinding]:
    """Without a node, with devices that are allocated and do not become ready."""
    for pod in e.world.pods:
        if is_bound(pod) or not is_active(pod):
            continue
        for name in claim_names(pod):
            claim = e.world.claims_by_name.get((pod.metadata.namespace, name))
            for cause in unready_devices(claim) if claim is not None else ():
                yield error("pod-waits-for-device", named(pod), f"waits, since {cause.message}", cause.fix)


def _drivers_of(e: CheckedCluster, pod: Pod) -> set[str]:
    """The drivers of all its claims; none as long as a claim has no devices."""
    drivers: set[str] = set()
    for name in claim_names(pod):
        claim = e.world.claims_by_name.get((pod.metadata.namespace, name))
        if claim is None or claim.status.allocation is None:
            return set()
        drivers |= {result.driver for result in claim.status.allocation.devices.results}
    return drivers


def _drivers(names: list[str]) -> str:
    return f"driver {names[0]}" if len(names) == 1 else f"drivers {', '.join(names)}"


def pods_on_missing_nodes(e: CheckedCluster) -> Iterator[DoctorFinding]:
    if not e.world.nodes:
        return
    for pod in e.world.pods:
        name = pod.spec.node_name
        if name and not is_finished(pod) and name not in e.world.nodes_by_name:
            taken = "; its claims stay taken" if uses_claims(pod) else ""
            yield error(
                "pod-on-missing-node",
                named(pod),
                f"is bound to node {name}, which is gone{taken}",
                f"kubectl delete pod/{pod.metadata.name} -n {pod.metadata.namespace} --force",
            )


def unready_nodes(e: CheckedCluster) -> Iterator[DoctorFinding]:
    """Nodes that do not answer, and have pods that look as if they ran. Pods that have not started are told themselves."""
    for node in e.world.nodes:
        name = node.metadata.name
        if not is_down(node):
            continue
        there = [pod for pod in e.world.pods if pod.spec.node_name == name and pod.status.phase == "Running"]
        if there:
            pods = "1 pod" if len(there) == 1 else f"{len(there)} pods"
            yield warning(
                "unready-node",
                f"node {name}",
                f"is not ready, and {pods} on it may not run any more: {named(there[0])}"
                + (", ..." if there[1:] else ""),
                f"see that its node agent runs: kubectl describe node/{name}",
            )


def overcommitted_nodes(e: CheckedCluster) -> Iterator[DoctorFinding]:
    ledger = ClusterLedger()
    for node in e.world.nodes:
        ledger.set_node(node)
    for pod in e.world.pods:
        if not is_on_node(pod):
            continue
        try:
            ledger.add(pod.spec.node_name, PodRef.of(pod), pod_demand(pod))
        except AccountingError as problem:
            yield warning("uncountable-pod", named(pod), str(problem), "correct the amounts it asks for")
    for node_ledger in ledger:
        for short in node_ledger.overcommitted():
            yield error(
                "node-overcommitted",
                f"node {node_ledger.name}",
                short.detail,
                f"see who takes it: dray ledger --node {node_ledger.name} --why {short.resource}",
            )


# Of pods that have a node and do not run.
START_CHECKS = (missing_claims, unserved_pods, pods_that_do_not_start, pods_on_missing_nodes)
POD_CHECKS = (*START_CHECKS, failing_containers, pods_waiting_for_devices, overcommitted_nodes, unready_nodes)
