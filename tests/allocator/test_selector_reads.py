"""Which attributes and capacities a selector names: devices that agree on these need not be asked one by one. What was asked is remembered, within bounds."""

import pytest

from dray import cel
from dray.allocator import selectors
from dray.allocator.device_kinds import KindTable
from dray.allocator.selectors import Selectors, reads_of, value_read
from dray.allocator.types import Features
from dray.api.codec import to_object
from dray.api.resource import Device

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


def a_kind():
    return KindTable().kind_of("d.example.com", Device(name="d"), (), False)


@pytest.mark.parametrize(
    ("section", "one", "other", "is_equal"),
    [
        ("attributes", {"x": {"string": "a"}}, {"x": {"string": "a"}, "y": {"int": 1}}, True),
        ("attributes", {"x": {"string": "a"}}, {"x": {"string": "b"}}, False),
        ("attributes", {"x": {"int": 1}}, {"x": {"bool": True}}, False),
        ("attributes", {"x": {"int": 1}}, {}, False),
        ("capacity", {"x": {"value": "1Gi"}}, {"x": {"value": "1Gi"}, "y": {"value": "1"}}, True),
        ("capacity", {"x": {"value": "1Gi"}}, {"x": {"value": "2Gi"}}, False),
        ("capacity", {"x": {"value": "1"}}, {}, False),
    ],
)
def test_devices_agree_on_what_a_selector_reads(section, one, other, is_equal):
    elsewhere = "capacity" if section == "attributes" else "attributes"
    others = ({"x": {"value": "3"}}, {}) if elsewhere == "capacity" else ({"x": {"string": "c"}}, {})
    values = [
        value_read(kind_of({section: named, elsewhere: rest}), (section, "d.example.com", "x"))
        for named, rest in zip((one, other), others, strict=True)
    ]
    assert (values[0] == values[1]) is is_equal


def kind_of(fields):
    return KindTable().kind_of("d.example.com", to_object({"name": "d", **fields}, Device), (), False)


def test_a_kind_of_device_is_asked_once(monkeypatch):
    asked = []
    evaluate = Selectors._evaluate

    def counted(self, expression, kind):
        asked.append(expression)
        return evaluate(self, expression, kind)

    monkeypatch.setattr(Selectors, "_evaluate", counted)
    known, kind = Selectors(Features()), a_kind()
    for _ in range(3):
        assert known.verdict('device.driver == "d.example.com"', kind) is True
        assert known.verdict('device.driver == "e.example.com"', kind) is False
    assert len(asked) == 2


def test_programs_that_are_kept_have_a_bound(monkeypatch):
    monkeypatch.setattr(selectors, "MOST_PROGRAMS", 3)
    known, kind = Selectors(Features()), a_kind()
    for number in range(20):
        assert known.verdict(f'device.driver == "d{number}.example.com"', kind) is False
        assert len(known._programs) <= 3
