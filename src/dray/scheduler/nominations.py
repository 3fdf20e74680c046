"""Pods that wait for victims to leave the node they will get; others must not take the room meanwhile."""

from collections.abc import Iterable

from dray.api.core import Pod


class Nominations:
    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._node_of)

    def nominate(self, pod: Pod, node_name: str) -> None:
        self.withdraw(pod.metadata.uid)
        self._by_node.setdefault(node_name, {})[pod.metadata.uid] = pod
        self._node_of[pod.metadata.uid] = node_name

    def withdraw(self, uid: str) -> None:
        node_name = self._node_of.pop(uid, None)
        if node_name is None:
            return
        pods = self._by_node[node_name]
        pods.pop(uid, None)
        if not pods:
            del self._by_node[node_name]

    def node_of(self, uid: str) -> str | None:
        return self._node_of.get(uid)

    def nodes(self) -> Iterable[str]:
        return self._by_node.keys()

    def on(self, node_name: str) -> list[Pod]:
        return list(self._by_node.get(node_name, {}).values())

    def at_least(self, node_name: str, priority: int, except_uid: str) -> list[Pod]:
        """Nominated pods of the same or higher priority than the one that asks."""
        return [
            pod
            for pod in self._by_node.get(node_name, {}).values()
            if pod.metadata.uid != except_uid and (pod.spec.priority or 0) >= priority
        ]
