"""The user stories of `dray demo`: manifests with what must come of them, read from YAML, and the runner that checks them."""

import textwrap
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec
import yaml

from dray.accounting import ClusterLedger, PodRef, as_quantity, pod_demand
from dray.api.core import Pod
from dray.api.quantity import Quantity
from dray.client import CLAIMS, NODES, PODS, ApiError
from dray.explain.pod_text import short_text_of
from dray.features import FeatureGates
from dray.sim.live_explanation import explain_in_cluster
from dray.testing.running_cluster import Cluster, TimedOut

WAIT_S = 15.0
Say = Callable[[str], None]


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"is_": "is"}):
    """What must become of one pod."""

    pod: str
    is_: str
    """Running, waiting or gone."""
    devices: tuple[str, ...] = ()
    request: str = ""
    beside: str = ""
    """Another pod that must be on the same node."""
    prints: str = ""
    because: str = ""
    explained: str = ""
    """Part of what `dray explain` says about the pod, which is told as well."""
    claims: dict[str, str] = {}
    """What the pod's claims add to its demand, by resource."""
    consumes: dict[str, str] = {}
    """Capacity that every device of the pod was charged."""


class LedgerChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By how much a node's ledger must have grown since the step before."""

    node: str
    cpu: str = "0"
    memory: str = "0"


class StoryStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    manifests: str
    expect: tuple[Expectation, ...] = ()
    ledger: LedgerChange | None = None


class Story(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    title: str
    from_: str
    text: str
    manifests: str
    expect: tuple[Expectation, ...] = ()
    ledger: LedgerChange | None = None
    then: tuple[StoryStep, ...] = ()
    remove: tuple[str, ...] = ()
    """Objects without a namespace that must go when the story is over."""

    @property
    def steps(self) -> tuple[StoryStep, ...]:
        return (StoryStep(self.manifests, self.expect, self.ledger), *self.then)


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def load_stories() -> list[Story]:
    """The stories that come with Dray, in order."""
    folder = resources.files("dray.testing") / "stories"
    names = sorted(each.name for each in folder.iterdir() if each.name[:1].isdigit())
    return [msgspec.convert(yaml.safe_load((folder / name).read_text()), Story) for name in names]


def setup_documents() -> Iterable[dict[str, Any]]:
    return documents((resources.files("dray.testing") / "stories" / "setup.yaml").read_text())


@dataclass(frozen=True, slots=True)
class StoryOutcome:
    """One line of the table: what was expected, what was seen, and whether they agree."""

    what: str
    seen: str
    is_right: bool
    explanation: tuple[str, ...] = ()


class StoryRunner:
    """Runs stories on a cluster: applies, waits, compares, cleans up, and prints what it saw."""

    def __init__(self, cluster: Cluster, say: Say) -> None:
        self._cluster = cluster
        self._say = say

    def prepare(self) -> None:
        for document in setup_documents():
            self._cluster.apply(document)

    def run(self, number: int, story: Story) -> bool:
        """True if everything came as it must."""
        started = time.monotonic()
        namespace = f"story-{number}"
        self._cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        self._cluster.wait_until(lambda: self._has_account(namespace), f"namespace {namespace} to be ready", WAIT_S)
        self._say(f"\n{number}. {story.title}  [{story.from_}]")
        for line in _wrapped(story.text):
            self._say(f"   {line}")
        before = {story_node: self._requested(story_node) for story_node in _ledger_nodes(story)}
        outcomes = [outcome for step in story.steps for outcome in self._step(step, namespace, before)]
        self._table(outcomes)
        self._clean_up(story, namespace)
        self._say(
            f"   {'as expected' if all(each.is_right for each in outcomes) else 'NOT as expected'}, {time.monotonic() - started:.1f} s"
        )
        return all(each.is_right for each in outcomes)

    def _has_account(self, namespace: str) -> bool:
        try:
            self._cluster.run(
                self._cluster.client.raw("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
            )
        except ApiError:
            return False
        return True

    # --- one step

    def _step(self, step: StoryStep, namespace: str, before: dict[str, dict[str, int]]) -> list[StoryOutcome]:
        for document in documents(step.manifests):
            self._cluster.apply(document, namespace=namespace)
        applied = [f"{each['kind'].lower()}/{each['metadata']['name']}" for each in documents(step.manifests)]
        self._say(f"   apply {' '.join(applied)}")
        outcomes = [self._check(each, namespace) for each in step.expect]
        if step.ledger is not None:
            outcomes.append(self._check_ledger(step.ledger, before[step.ledger.node]))
            before[step.ledger.node] = self._requested(step.ledger.node)
        return outcomes

    def _check(self, expected: Expectation, namespace: str) -> StoryOutcome:
        what = f"pod {expected.pod} {'is' if expected.is_ == 'gone' else ''} {expected.is_}".replace("  ", " ")
        try:
            if expected.is_ == "gone":
                self._cluster.wait_until_gone(expected.pod, namespace, WAIT_S)
                return StoryOutcome(what, "gone", True)
            if expected.is_ == "waiting":
                message = self._cluster.wait_until_unschedulable(expected.pod, namespace, WAIT_S)
                is_right, lines = self._explained(expected, namespace) if expected.explained else (True, ())
                return StoryOutcome(what, message, expected.because in message and is_right, lines)
            pod = self._cluster.wait_until_running(expected.pod, namespace, WAIT_S)
        except TimedOut as error:
            return StoryOutcome(what, str(error), False)
        return self._check_running(what, expected, pod)

    def _explained(self, expected: Expectation, namespace: str) -> tuple[bool, tuple[str, ...]]:
        asked = explain_in_cluster(self._cluster.client, namespace, expected.pod, FeatureGates.default())
        lines = short_text_of(self._cluster.run(asked)).splitlines()
        command = f"dray explain pod/{expected.pod} -n {namespace}"
        return expected.explained in "\n".join(lines), (command, *(part for line in lines for part in _wrapped(line)))

    def _check_running(self, what: str, expected: Expectation, pod: Pod) -> StoryOutcome:
        namespace = pod.metadata.namespace
        devices = [each.rpartition("/")[2] for each in self._cluster.devices_of(expected.pod, namespace)]
        seen = [f"{pod.spec.node_name}: {', '.join(devices)}"]
        is_right = not expected.devices or tuple(devices) == expected.devices
        results = [
            result
            for claim in self._cluster.claims_of(expected.pod, namespace)
            if claim.status.allocation
            for result in claim.status.allocation.devices.results
        ]
        if expected.request:
            is_right &= all(result.request == expected.request for result in results)
            seen.append(f"by {results[0].request}")
        for capacity, amount in expected.consumes.items():
            shares = [result.consumed_capacity.get(capacity, Quantity.ZERO) for result in results]
            is_right &= all(share == Quantity.parse(amount) for share in shares)
            seen.append(f"{capacity} {', '.join(map(str, shares))}")
        if expected.beside:
            is_right &= self._cluster.pod(expected.beside, namespace).spec.node_name == pod.spec.node_name
            seen.append(f"beside {expected.beside}")
        if expected.claims:
            claimed = _claimed(pod)
            is_right &= claimed == {name: Quantity.parse(text) for name, text in expected.claims.items()}
            seen.append("claims add " + ", ".join(f"{name} {amount}" for name, amount in sorted(claimed.items())))
        if expected.prints:
            is_right &= self._prints(expected, namespace)
            seen.append(f"prints {expected.prints!r}")
        return StoryOutcome(what, "; ".join(seen), is_right)

    def _prints(self, expected: Expectation, namespace: str) -> bool:
        path = f"/api/v1/namespaces/{namespace}/pods/{expected.pod}/log"
        try:
            self._cluster.wait_until(
                lambda: expected.prints in self._cluster.run(self._cluster.client.raw("GET", path)).body.decode(),
                f"output of {expected.pod}",
                5.0,
            )
        except TimedOut:
            return False
        return True

    # --- the ledger

    def _requested(self, node_name: str) -> dict[str, int]:
        """What the node is charged for now, by the same formula as the scheduler's."""
        client, run = self._cluster.client, self._cluster.run
        ledger = ClusterLedger()
        node_ledger = ledger.set_node(run(client.get(NODES, node_name)))
        for pod in run(client.list(PODS, field_selector=f"spec.nodeName={node_name}")).items:
            ledger.add(node_name, PodRef.of(pod), pod_demand(pod))
        return {name: node_ledger.requested(name) for name in ("cpu", "memory")}

    def _check_ledger(self, change: LedgerChange, before: dict[str, int]) -> StoryOutcome:
        after = self._requested(change.node)
        grown = {name: as_quantity(name, after[name] - before[name]) for name in before}
        expected = {"cpu": Quantity.parse(change.cpu), "memory": Quantity.parse(change.memory)}
        texts = [
            f"{name} {as_quantity(name, before[name])} -> {as_quantity(name, after[name])} (+{grown[name]})"
            for name in before
        ]
        return StoryOutcome(f"ledger of {change.node}", ", ".join(texts), grown == expected)

    # --- the end

    def _clean_up(self, story: Story, namespace: str) -> None:
        client, run = self._cluster.client, self._cluster.run
        run(client.raw("DELETE", f"/api/v1/namespaces/{namespace}"))
        for name in story.remove:
            kind, _, object_name = name.partition("/")
            run(client.raw("DELETE", f"/apis/resource.k8s.io/v1/{kind}s/{object_name}"))
        self._cluster.wait_until(
            lambda: not run(client.list(PODS, namespace)).items and not run(client.list(CLAIMS, namespace)).items,
            f"namespace {namespace} to be empty",
            30.0,
        )

    def _table(self, outcomes: list[StoryOutcome]) -> None:
        width = max(len(each.what) for each in outcomes)
        for each in outcomes:
            self._say(f"   {'ok ' if each.is_right else 'NO '} {each.what:<{width}}  {each.seen}")
            for line in each.explanation:
                self._say(f"       {line}")


def _claimed(pod: Pod) -> dict[str, Any]:
    total: dict[str, Quantity] = {}
    for status in pod.status.node_allocatable_resource_claim_statuses:
        for name, amount in status.resources.items():
            total[name] = total.get(name, Quantity.ZERO) + amount
    return {name: amount for name, amount in total.items() if amount}


def _ledger_nodes(story: Story) -> set[str]:
    return {step.ledger.node for step in story.steps if step.ledger is not None}


def _wrapped(text: str, width: int = 108) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  " if text.startswith("  ") else "")
