"""The meaning of selectors: lookups, errors and their texts, environments, estimates, derived attributes."""

from collections.abc import Callable
from typing import Any

import pytest

from dray.api.resource import Device, DeviceAttribute
from dray.cel import (
    CelDevice,
    CelRuntimeError,
    CompileFailure,
    Environment,
    Program,
    compile_expression,
    compile_selector,
)
from dray.cel.types import DYN
from tests.cel.conftest import estimate_of, spelled_out

Evaluate = Callable[[str], Any]
NO_KEY = (
    "no such key: {}. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() "
    "for optional fields"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('A.model == "a100"', True),
        ('device.attributes["gpu.example.com"]["model"] == "a100"', True),
        ('device.attributes["nobody.dev"] == {}', True),
        ('device.attributes["nobody.dev"].model == "x"', NO_KEY.format("model")),
        ('"nobody.dev" in device.attributes', False),
        ('"model" in device.attributes["nobody.dev"]', False),
        ('has(device.attributes["nobody.dev"].model)', False),
        ('device.attributes["nobody.dev"].?model.orValue("none") == "none"', True),
        ("true || A.nope == 1", True),
        ("A.nope == 1 || true", True),
        ("A.nope == 1 && false", False),
        ("A.nope == 1 && true", NO_KEY.format("nope")),
        ('A.firmware == "2.1.0-rc.1"', "no such overload"),
        ('"2.1.0-rc.1" == A.firmware', False),
        ('A.firmware.isLessThan(semver("2.1.0"))', True),
        ('C.memory == quantity("81920Mi")', True),
        ("A.ports.exists(p, p == 8)", True),
        ("A.cores.exists(p, p == 8)", "got 'types.Int', expected iterable type"),
        ("A.cores", "CEL result of type int could not be converted to bool"),
        ("device.allowMultipleAllocations", True),
        ('device.attributes["fabric.example.org"].island == "west"', True),
        ("[].min() == 1", "min called on empty list"),
        ("cel.bind(x, 1 / 0, true)", True),
        ("1 / 0 == 1", "division by zero"),
    ],
)
def test_answers(evaluate: Evaluate, text: str, expected: Any) -> None:
    assert evaluate(text) == expected


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("true", 0),
        ('device.driver == "123456789012345"', 4),
        ('"key" in device.attributes', 3),
        ('"key" in device.capacity', 3),
        ("A.a > 0", 5),
        ('A.a == "1234567890"', 5),
        ('A.a.isGreaterThan(semver("1.2.3"))', 6),
        ('C.a.isGreaterThan(quantity("1Gi"))', 6),
        ("A.a && A.b && A.c", 12),
        ('cel.bind(d, device.attributes["d"], d.a)', 15),
        ('device.attributes.exists_one(d, d == "123456789012345")', 164),
        ('device.attributes["d"].exists_one(id, id == "1234567890")', 133),
        ('A.a.split(",").size() >= 2', 19),
        ('A.a.matches("12345678")', 18),
        ("1 in A.a", 68),
        ("A.a.includes(1)", 68),
        ("A.a.exists(x, x > 0)", 389),
        ("device.allowMultipleAllocations == true", 3),
    ],
)
def test_worst_case_estimates(text: str, cost: int) -> None:
    assert estimate_of(text) == cost


def refused(text: str, **flags: bool) -> str:
    failure = compile_selector(spelled_out(text), Environment.devices(**flags))
    assert isinstance(failure, CompileFailure)
    return failure.message


def test_refusals_show_line_column_and_caret() -> None:
    assert refused("true &&\n  devce.driver == 1") == (
        "compilation failed: ERROR: <input>:2:3: undeclared reference to 'devce' (in container '') (did you mean `device`?)\n"
        " |   devce.driver == 1\n"
        " | ..^"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('device.drivr == "x"', "undefined field 'drivr' (did you mean `driver`?)"),
        ('"a".startWith("b")', "undeclared reference to 'startWith' (in container '') (did you mean `startsWith`?)"),
        ("C.memory > 3", "found no matching overload for '_>_' applied to '(kubernetes.Quantity, int)'"),
        ("1 + 1", "must evaluate to bool or the unknown type, not int"),
        ('"a".matches("(")', "invalid matches argument"),
        ('duration("x") == duration("1s")', "invalid duration argument"),
        ("[1, 'a'] == []", "expected type 'int' but found 'string'"),
        ("true &&", "Syntax error"),
    ],
)
def test_refusals_say_what_is_wrong(text: str, message: str) -> None:
    assert message in refused(text)


def test_constant_parts_that_fail_are_internal_errors() -> None:
    failure = compile_selector('int("x") == 1 || true', Environment.devices())
    assert isinstance(failure, CompileFailure)
    assert failure.kind == "internal"
    assert failure.message.startswith("program instantiation failed: ")


def test_gates_restrict_new_expressions_only() -> None:
    assert "undefined field" in refused("device.allowMultipleAllocations", consumable_capacity=False)
    assert "undeclared reference to 'includes'" in refused("A.ports.includes(8)", list_attributes=False)
    assert "cannot be range of a comprehension" in refused("A.ports.exists(p, p == 8)", list_attributes=False)
    stored = Environment.devices(stored=True, list_attributes=False, consumable_capacity=False)
    for text in ("device.allowMultipleAllocations", "A.ports.includes(8)", "A.ports.exists(p, p == 8)"):
        assert isinstance(compile_selector(spelled_out(text), stored), Program)


def test_a_device_with_an_unreadable_attribute_answers_nothing() -> None:
    program = compile_selector("true", Environment.devices())
    assert isinstance(program, Program)
    for attribute, text in (
        (DeviceAttribute(), "attribute x: unsupported attribute value"),
        (DeviceAttribute(version="1.0"), "attribute x: parse semantic version: "),
    ):
        device = CelDevice.of("d.org", Device(attributes={"x": attribute}))
        with pytest.raises(CelRuntimeError) as raised:
            program.evaluate(device)
        assert raised.value.message.startswith(text)


def test_lists_win_over_scalars() -> None:
    device = CelDevice.of("d.org", Device(attributes={"x": DeviceAttribute(int_=1, strings=("a",))}))
    assert device.attributes["d.org"]["x"] == ("a",)


@pytest.mark.parametrize(
    ("text", "result", "value"),
    [
        ("A.model", "scalar", "a100"),
        ('A.model + "-" + string(A.cores)', "scalar", "a100-64"),
        ("A.names.map(n, n + '!')", "list", ["alpha!", "beta!"]),
        ("A.cores > 3", "list", True),
    ],
)
def test_derived_attributes(device: CelDevice, text: str, result: str, value: Any) -> None:
    program = compile_expression(spelled_out(text), Environment.devices(), result)
    assert isinstance(program, Program)
    assert program.value(device) == value


@pytest.mark.parametrize(
    ("text", "result", "message"),
    [
        ("1.5", "scalar", "must evaluate to a primitive scalar (string, integer, boolean, semver), not double"),
        ("[1]", "scalar", "must evaluate to a primitive scalar (string, integer, boolean, semver), not list(int)"),
        (
            "{}",
            "list",
            "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these scalars, not map",
        ),
    ],
)
def test_derived_attributes_of_other_types_are_refused(text: str, result: str, message: str) -> None:
    failure = compile_expression(text, Environment.devices(), result)
    assert isinstance(failure, CompileFailure)
    assert failure.message.startswith(message)


def test_other_variables() -> None:
    environment = Environment.of({"object": DYN, "oldObject": DYN, "request": DYN})
    program = compile_expression("object.spec.replicas <= 5 && oldObject == null", environment, "bool")
    assert isinstance(program, Program)
    values = {"object": {"spec": {"replicas": 3}}, "oldObject": None, "request": {}}
    assert program.value_of(values) is True
    with pytest.raises(CelRuntimeError, match="no such key: spec"):
        program.value_of(values | {"object": {}})


def test_programs_are_remembered_by_text_and_environment() -> None:
    first = compile_selector("device.driver == 'remembered'", Environment.devices())
    assert compile_selector("device.driver == 'remembered'", Environment.devices()) is first
    assert compile_selector("device.driver == 'remembered'", Environment.devices(list_attributes=False)) is not first


@pytest.mark.parametrize("text", ["duration(1) == duration('1s')", "duration('1h').getHours('UTC') == 1"])
def test_time_functions_take_what_kubernetes_declares(text: str) -> None:
    """A number is no duration, though it is a timestamp; a duration has no time zone."""
    assert isinstance(compile_selector(text, Environment.devices()), CompileFailure)


def test_a_number_that_only_evaluation_sees_is_no_duration() -> None:
    program = compile_selector("duration(device.attributes['d.org'].n) == duration('1s')", Environment.devices())
    assert isinstance(program, Program)
    with pytest.raises(CelRuntimeError, match="no such overload"):
        program.evaluate(CelDevice("d.org", {"d.org": {"n": 1}}, {}))
