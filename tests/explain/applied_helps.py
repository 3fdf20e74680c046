"""Does to a cluster what a "helps" line says, from its words alone, as the person does who reads it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import yaml
from msgspec.structs import replace as changed

from dray.api.codec import to_document, to_object
from dray.api.core import Node, Pod
from dray.api.dra.pod_claims import claim_names
from dray.api.resource import ResourceClaim
from dray.explain.cluster_objects import ClusterObjects

Document = dict[str, Any]


class HelpApplier:
    def __init__(self, world: ClusterObjects, pod: Pod) -> None:
        self.world = world
        self.pod = pod

    def applied(self, code: str, text: str) -> ClusterObjects:
        for step, words in zip(code.split("+"), text.split("; and "), strict=True):
            APPLIERS[step](self, words)
        return self.world

    def edit(self, field: str, kind: type[Any], change: Callable[[Document], None], *names: str) -> None:
        """Edits the objects called namespace/name, or name where there is no namespace."""
        rows, count = [], 0
        for obj in getattr(self.world, field):
            name = f"{obj.metadata.namespace}/{obj.metadata.name}".strip("/")
            if name in names:
                document = to_document(obj)
                change(document)
                obj, count = to_object(document, kind), count + 1
            rows.append(obj)
        assert count == len(names), f"{names} not found among {field}"
        self.world = replace(self.world, **{field: tuple(rows)})

    def edit_node(self, name: str, change: Callable[[Document], None]) -> None:
        self.edit("nodes", Node, change, name)

    def edit_pod(self, change: Callable[[Document], None]) -> None:
        self.edit("pods", Pod, change, f"{self.pod.metadata.namespace}/{self.pod.metadata.name}")

    def edit_claims(self, text: str, change: Callable[[Document], None]) -> None:
        named = re.search(r" of claim (\S+)", text)
        namespace = self.pod.metadata.namespace
        own = [
            f"{namespace}/{name}"
            for name in claim_names(self.pod)
            if self.world.claims_by_name[(namespace, name)].status.allocation is None
        ]
        self.edit("claims", ResourceClaim, change, *([named[1]] if named else own))

    def edit_request(self, text: str, change: Callable[[Document], None]) -> None:
        found = re.search(r"(?:in|of) request (\S+)", text)
        assert found, text
        name, _, alternative = found[1].partition("/")

        def in_claim(claim: Document) -> None:
            for request in claim["spec"]["devices"]["requests"]:
                if request["name"] == name:
                    options = request.get("firstAvailable", [])
                    for option in [each for each in options if each["name"] == alternative] or [request["exactly"]]:
                        change(option)

        self.edit_claims(text, in_claim)

    # --- one method per kind of help

    def uncordon(self, text: str) -> None:
        name = text.split()[2]
        self.edit_node(name, lambda node: node["spec"].pop("unschedulable"))

    def label_node(self, text: str) -> None:
        words = text.partition(" (")[0].removesuffix(" --overwrite").split()[3:]

        def change(node: Document) -> None:
            labels = node["metadata"].setdefault("labels", {})
            for word in words[1:]:
                key, _, value = word.partition("=")
                if value:
                    labels[key] = value
                else:
                    labels.pop(key.removesuffix("-"))

        self.edit_node(words[0], change)

    def tolerate_node_taint(self, text: str) -> None:
        rows = yaml.safe_load(f"[{text[text.index('{') : text.rindex('}') + 1]}]")
        self.edit_pod(lambda pod: pod["spec"].setdefault("tolerations", []).extend(rows))

    def drop_node_selector(self, text: str) -> None:
        words = text.removeprefix("remove ").partition(" from the pod's")[0].split(", ")
        keys = [word.partition("=")[0] for word in words]

        def change(pod: Document) -> None:
            for key in keys:
                del pod["spec"]["nodeSelector"][key]

        self.edit_pod(change)

    def release(self, text: str) -> None:
        names = re.sub(r"\(.*?\)|, which.*", "", text.removeprefix("release claim").removeprefix("s"))
        self.edit(
            "claims", ResourceClaim, lambda claim: claim.pop("status"), *(each.strip() for each in names.split(","))
        )

    def tolerate(self, text: str) -> None:
        rows = []
        for taint in text.removeprefix("tolerate ").partition(" in the request")[0].split(", "):
            taint, _, effect = taint.rpartition(":")
            key, _, value = taint.partition("=")
            rows.append({"key": key, "operator": "Equal", "value": value, "effect": effect})

        def in_claim(claim: Document) -> None:
            for request in claim["spec"]["devices"]["requests"]:
                for option in request.get("firstAvailable") or [request["exactly"]]:
                    option.setdefault("tolerations", []).extend(rows)

        self.edit_claims(text, in_claim)

    def fewer_devices(self, text: str) -> None:
        self.edit_request(text, lambda option: option.update(count=int(text.split()[2])))

    def less_capacity(self, text: str) -> None:
        amounts = {name: amount for amount, name in re.findall(r"at most (\S+) (\S+) instead", text)}
        self.edit_request(text, lambda option: option["capacity"]["requests"].update(amounts))

    def capacity_name(self, text: str) -> None:
        found = re.search(r"capacity (\S+) instead of (\S+) in request", text)
        assert found, text

        def change(option: Document) -> None:
            requests = option["capacity"]["requests"]
            requests[found[1]] = requests.pop(found[2])

        self.edit_request(text, change)

    def drop_constraint(self, text: str) -> None:
        found = re.search(r"constraint (\S+) (\S+) of claim", text)
        assert found, text

        def in_claim(claim: Document) -> None:
            devices = claim["spec"]["devices"]
            devices["constraints"] = [each for each in devices["constraints"] if each.get(found[1]) != found[2]]

        self.edit_claims(text, in_claim)

    def relax_selector(self, text: str) -> None:
        texts = re.findall("`(.*?)`", text)
        old = texts[-1]

        def change(option: Document) -> None:
            kept = []
            for selector in option["selectors"]:
                if selector["cel"]["expression"] == old:
                    selector["cel"]["expression"] = texts[0]
                if selector["cel"]["expression"] != old:
                    kept.append(selector)
            option["selectors"] = kept

        self.edit_request(text, change)

    def less_node_resources(self, text: str) -> None:
        amounts = {name: amount for amount, name in re.findall(r"at most (\S+) (\S+) instead", text)}

        def change(pod: Document) -> None:
            (container,) = pod["spec"]["containers"]
            container["resources"]["requests"].update(amounts)

        self.edit_pod(change)
        if ", and free" in text:
            self.free_node_resources(text)

    def free_node_resources(self, text: str) -> None:
        found = re.search(r"for example of pods? ([^(]*)", text)
        assert found, text
        names = {each.strip() for each in found[1].split(",")}
        left = tuple(pod for pod in self.world.pods if f"{pod.metadata.namespace}/{pod.metadata.name}" not in names)
        assert len(left) + len(names) == len(self.world.pods)
        self.world = replace(self.world, pods=left)

    def offer_resource(self, text: str) -> None:
        amount, resource, _, node = text.removeprefix("offer ").split()[:4]
        self.edit_node(node.rstrip(":"), lambda found: found["status"]["allocatable"].update({resource: amount}))


APPLIERS: dict[str, Callable[[HelpApplier, str], None]] = {
    "uncordon": HelpApplier.uncordon,
    "label-node": HelpApplier.label_node,
    "drop-node-selector": HelpApplier.drop_node_selector,
    "tolerate-node-taint": HelpApplier.tolerate_node_taint,
    "release-claim": HelpApplier.release,
    "release-claims": HelpApplier.release,
    "tolerate": HelpApplier.tolerate,
    "fewer-devices": HelpApplier.fewer_devices,
    "less-capacity": HelpApplier.less_capacity,
    "capacity-name": HelpApplier.capacity_name,
    "drop-constraint": HelpApplier.drop_constraint,
    "relax-selector": HelpApplier.relax_selector,
    "less-node-resources": HelpApplier.less_node_resources,
    "free-node-resources": HelpApplier.free_node_resources,
    "offer-resource": HelpApplier.offer_resource,
}


def alone(world: ClusterObjects, pod: Pod) -> ClusterObjects:
    """The cluster in which no other pod waits."""
    return replace(world, pods=tuple(each for each in world.pods if each.spec.node_name or _is(each, pod)))


def _is(one: Pod, other: Pod) -> bool:
    return (one.metadata.namespace, one.metadata.name) == (other.metadata.namespace, other.metadata.name)


def with_trouble(world: ClusterObjects, nodes: Callable[[Node], Node]) -> ClusterObjects:
    return replace(world, nodes=tuple(map(nodes, world.nodes)))


def cordoned(node: Node) -> Node:
    return changed(node, spec=changed(node.spec, unschedulable=True))
