"""All plugins, in the order in which they are asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from dray.apiserver.write.admission.base import Admission, AdmissionPlugin


@dataclass(frozen=True, slots=True)
class Rounds:
    mutating: tuple[AdmissionPlugin, ...]
    validating: tuple[AdmissionPlugin, ...]


class Chain:
    def __init__(self, plugins: Sequence[AdmissionPlugin]) -> None:
        self._plugins = tuple(plugins)
        self._concerned: dict[tuple[str, str], Rounds] = {}

    async def mutate(self, admission: Admission) -> None:
        for plugin in self._rounds(admission).mutating:
            await plugin.mutate(admission)

    async def validate(self, admission: Admission) -> None:
        for plugin in self._rounds(admission).validating:
            await plugin.validate(admission)

    def _rounds(self, admission: Admission) -> Rounds:
        """Found once for each resource; there are as many as the server has kinds."""
        resource = (admission.attributes.group, admission.attributes.resource)
        found = self._concerned.get(resource)
        if found is None:
            concerned = [plugin for plugin in self._plugins if plugin.resources is None or resource in plugin.resources]
            found = self._concerned[resource] = Rounds(
                tuple(plugin for plugin in concerned if _overrides(plugin, "mutate")),
                tuple(plugin for plugin in concerned if _overrides(plugin, "validate")),
            )
        return found


def _overrides(plugin: AdmissionPlugin, round_name: str) -> bool:
    return getattr(type(plugin), round_name) is not getattr(AdmissionPlugin, round_name)
