"""All plugins, in the order in which they are asked."""

from collections.abc import Sequence

from dray.apiserver.admission.base import AdmissionPlugin
from dray.apiserver.attributes import Admission


class Chain:
    def __init__(self, plugins: Sequence[AdmissionPlugin]) -> None:
        self._mutating = [plugin for plugin in plugins if _overrides(plugin, "mutate")]
        self._validating = [plugin for plugin in plugins if _overrides(plugin, "validate")]

    async def mutate(self, admission: Admission) -> None:
        for plugin in self._mutating:
            await plugin.mutate(admission)

    async def validate(self, admission: Admission) -> None:
        for plugin in self._validating:
            await plugin.validate(admission)


def _overrides(plugin: AdmissionPlugin, round_name: str) -> bool:
    return getattr(type(plugin), round_name) is not getattr(AdmissionPlugin, round_name)
