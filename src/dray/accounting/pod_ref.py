"""How the ledger names a pod."""

from typing import NamedTuple

from dray.api.core import Pod


class PodRef(NamedTuple):
    """One pod, not the next one of the same name."""

    namespace: str
    name: str
    uid: str = ""

    @classmethod
    def of(cls, pod: Pod) -> "PodRef":
        metadata = pod.metadata
        return cls(metadata.namespace, metadata.name, metadata.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
