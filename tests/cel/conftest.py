"""What the tests of this room share: one device, and short ways to compile and evaluate."""

from collections.abc import Callable
from typing import Any

import pytest

from dray.api.quantity import Quantity
from dray.api.resource import Device, DeviceAttribute, DeviceCapacity
from dray.cel import CelDevice, CelRuntimeError, Environment, Program, compile_selector

DRIVER = "gpu.example.com"


@pytest.fixture
def device() -> CelDevice:
    return CelDevice.of(
        DRIVER,
        Device(
            name="gpu-0",
            attributes={
                "model": DeviceAttribute(string="a100"),
                "cores": DeviceAttribute(int_=64),
                "ready": DeviceAttribute(bool_=True),
                "firmware": DeviceAttribute(version="2.1.0-rc.1"),
                "ports": DeviceAttribute(ints=(8, 1, 2)),
                "names": DeviceAttribute(strings=("alpha", "beta")),
                "fabric.example.org/island": DeviceAttribute(string="west"),
            },
            capacity={"memory": DeviceCapacity(value=Quantity.parse("80Gi"))},
            allow_multiple_allocations=True,
        ),
    )


@pytest.fixture
def evaluate(device: CelDevice) -> Callable[[str], Any]:
    """True, False, or the text of the error. `A` and `C` stand for the driver's attributes and capacity."""

    def evaluated(text: str) -> Any:
        program = compile_selector(spelled_out(text), Environment.devices(stored=True))
        assert isinstance(program, Program), program.message
        try:
            return program.evaluate(device)
        except CelRuntimeError as problem:
            return problem.message

    return evaluated


def spelled_out(text: str) -> str:
    return text.replace("A.", f'device.attributes["{DRIVER}"].').replace("C.", f'device.capacity["{DRIVER}"].')


def estimate_of(text: str) -> int:
    program = compile_selector(spelled_out(text), Environment.devices())
    assert isinstance(program, Program), program.message
    return program.estimate
