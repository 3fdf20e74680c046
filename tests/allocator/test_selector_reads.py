"""Which attributes and capacities a selector names: devices that agree on these need not be asked one by one."""

import pytest

from dray import cel
from dray.allocator.selectors import reads_of

MODEL = ("attributes", "a.b", "model")


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ('device.attributes["a.b"].model == "x"', {MODEL}),
        ('device.attributes["a.b"]["model"] == "x"', {MODEL}),
        ('has(device.attributes["a.b"].model)', {MODEL}),
        ('"model" in device.attributes["a.b"]', {MODEL}),
        ('device.attributes["a.b"].?model.orValue("") == "x"', {MODEL}),
        ('device.capacity["a.b"].memory.isGreaterThan(quantity("1Gi"))', {("capacity", "a.b", "memory")}),
        ('device.attributes["a.b"].model == "x" && device.attributes["c"].size > 3', {MODEL, ("attributes", "c", "size")}),
        ('device.driver == "d"', set()),
        ("true", set()),
        # Told only when the device is there: the name is worked out.
        ('device.attributes["a.b"][device.driver] == "x"', None),
        ('device.attributes[device.driver].model == "x"', None),
        ('device.driver in device.attributes["a.b"]', None),
        ('device.attributes["a.b"].size() > 1', None),
        ('device.attributes.size() > 1', None),
    ],
)  # fmt: skip
def test_what_a_selector_reads(expression, reads):
    program = cel.compile_selector(expression, cel.Environment.devices())
    assert not isinstance(program, cel.CompileFailure), program
    assert reads_of(program.root) == (None if reads is None else frozenset(reads))
