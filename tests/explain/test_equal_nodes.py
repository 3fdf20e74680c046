"""Lists of devices that equal nodes share are compiled once, by the table of devices and by selectors."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dray.allocator.device_kinds import KindTable
from dray.api.codec import to_object
from dray.api.resource import ResourceSlice
from dray.cel import Environment, Program, compile_selector
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.device_table import DeviceTable
from dray.explain.selector_results import evaluate_selector
from tests.explain.manifests import gpu_slice


def slices_of_equal_nodes(count: int) -> tuple[ResourceSlice, ...]:
    """As the client decodes them: with one list of devices."""
    found = [to_object(gpu_slice(f"node-{number}"), ResourceSlice) for number in range(count)]
    return tuple(replace(each, spec=replace(each.spec, devices=found[0].spec.devices)) for each in found)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the devices whose kind was looked for."""
    names: list[str] = []
    original = KindTable.kind_of

    def counted(table: KindTable, driver: str, device: Any, *others: Any) -> Any:
        names.append(device.name)
        return original(table, driver, device, *others)

    monkeypatch.setattr(KindTable, "kind_of", counted)
    return names


def test_the_table_of_devices(compiled: list[str]) -> None:
    assert len(list(DeviceTable(ClusterObjects(slices=slices_of_equal_nodes(50))).rows())) == 100
    assert compiled == ["gpu-0", "gpu-1"]


def test_a_selector(compiled: list[str]) -> None:
    program = compile_selector('device.driver == "gpu.example.com"', Environment.devices())
    assert isinstance(program, Program)
    results = list(evaluate_selector(program, slices_of_equal_nodes(50)))
    assert len(results) == 100
    assert len({id(result.answer) for result in results}) <= 2
    assert compiled == ["gpu-0", "gpu-1"]
