"""Hostile input: an answer or a refusal in bounded time and memory, and a budget that nothing absorbs."""

import subprocess
import sys
import time
from typing import Any

import pytest

from dray.cel import CelDevice, CelRuntimeError, CompileFailure, Environment, Program, compile_selector
from dray.cel.explain import explain
from dray.cel.quantities import parse
from tests.effort import counted_calls

ENVIRONMENT = Environment.devices()
SECONDS = 3.0


def program_of(text: str) -> Program:
    program = compile_selector(text, ENVIRONMENT)
    assert isinstance(program, Program), program.message
    return program


def timed(text: str, device: CelDevice) -> tuple[Any, float]:
    started = time.process_time()
    outcome = program_of(text).evaluate_with_cost(device)
    return outcome.value, time.process_time() - started


@pytest.mark.parametrize(
    "bomb",
    [
        "lists.range(1000).all(i, lists.range(1000).all(j, lists.range(1000).all(k, i + j + k >= 0)))",
        "lists.range(250000).all(x, true)",
        "lists.range(90000).map(x, [x, x, x]).size() > 0",
        "lists.range(250000).transformMap(i, v, v).size() > 0",
        "device.attributes.all(a, true) && lists.range(1200).map(x, lists.range(1200)).flatten().size() > 0",
        'cel.bind(s, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", lists.range(90000).all(i, s.matches("(x+x+)+y") || true))',
        "[1, 2, 3, 4, 5, 6, 7, 8].all(a, [1, 2, 3, 4, 5, 6, 7, 8].all(b, lists.range(20000).all(c, a + b + c > 0)))",
        'lists.range(60000).map(i, "abcdefghij").join("abcdefghij").split("a").map(x, x + x + x + x).join().size() > 0',
        "lists.range(3000).sort().size() > 0",
        "sets.contains(lists.range(3000), lists.range(3000))",
    ],
)
def test_bombs_are_refused_at_admission_or_stopped(bomb: str, device: CelDevice) -> None:
    with counted_calls() as effort:
        estimate = program_of(bomb).estimate
    assert effort.calls < 10_000, "admission must not run it"
    value, seconds = timed(bomb, device)
    assert isinstance(value, CelRuntimeError)
    assert value.cost_exceeded
    assert str(value) == "operation cancelled: actual cost limit exceeded"
    assert estimate > 1_000_000
    assert seconds < SECONDS


def doubled(start: str, times: int, end: str) -> str:
    """`cel.bind`s that each double the one before."""
    text = f"cel.bind(v0, {start}, "
    for at in range(times):
        text += f"cel.bind(v{at + 1}, v{at} + v{at}, "
    return text + end.format(f"v{times}") + ")" * (times + 1)


def test_strings_cannot_grow_beyond_the_budget(device: CelDevice) -> None:
    value, seconds = timed(doubled('"0123456789"', 60, "{}.size() > 0"), device)
    assert isinstance(value, CelRuntimeError)
    assert value.cost_exceeded
    assert seconds < SECONDS


def test_joining_long_lists_again_and_again_is_charged(device: CelDevice) -> None:
    """The estimate lets it pass, as that of Kubernetes does: there a list is joined without a copy."""
    joined = "cel.bind(b, a + a + a + a + a + a + a + a + a + a + a + a + a + a + a + a, "
    text = f"cel.bind(a, lists.range(400), {joined}lists.range(90000).all(i, (b + b).size() > 0)))"
    value, seconds = timed(text, device)
    assert isinstance(value, CelRuntimeError)
    assert value.cost_exceeded
    assert seconds < SECONDS


def test_joining_lists_is_counted_however_low_the_estimate_is(device: CelDevice) -> None:
    joined = "cel.bind(b, a + a + a + a + a + a + a + a, lists.range(2500).all(i, (b + b).size() > 0))"
    program = program_of(f"cel.bind(a, lists.range(400), {joined})")
    assert program.estimate < 100_000
    with pytest.raises(CelRuntimeError) as raised:
        program.evaluate(device)
    assert raised.value.cost_exceeded


def test_a_device_is_matched_in_one_call() -> None:
    """No function is called where nothing fails and values have the types that the text names."""
    driver = "gpu.example.com"
    gpu, other = (CelDevice(driver, {driver: {"model": m}}, {driver: {"memory": parse("80Gi")}}) for m in ("a", "b"))
    program = program_of(
        'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "a" && '
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0'
    )
    assert program.evaluate(gpu)
    with counted_calls() as nothing:
        pass
    with counted_calls() as effort:
        assert program.evaluate(gpu)
        assert not program.evaluate(other)
    assert effort.calls == nothing.calls + 2


def test_lists_cannot_grow_without_limit(device: CelDevice) -> None:
    value, seconds = timed(doubled("[1]", 60, "{}.size() > 0"), device)
    assert isinstance(value, CelRuntimeError)
    assert seconds < SECONDS


def nested(times: int, end: str) -> str:
    """Lists of lists of lists, each holding the one below twice."""
    text = "cel.bind(v0, [1], "
    for at in range(times):
        text += f"cel.bind(v{at + 1}, [v{at}, v{at}], "
    return text + end.format(f"v{times}") + ")" * (times + 1)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("{0} == [{0}[0], {0}[1]]", True),
        ("{0}.flatten(40).size() > 0", CelRuntimeError),
        ("[{0}].includes(1)", CelRuntimeError),
        ('"%s".format([{0}]) == ""', CelRuntimeError),
        ("{0} in [[{0}[0]]]", False),
    ],
)
def test_nested_lists_cannot_cost_more_than_they_weigh(end: str, expected: Any, device: CelDevice) -> None:
    text = nested(40, "dyn(" + end.replace("[{0}].includes", "dyn([{0}]).includes") + ") == true")
    value, seconds = timed(text, device)
    assert value is expected or isinstance(value, CelRuntimeError)
    assert seconds < SECONDS
    explain(program_of(text), device)


def test_formatting_cannot_grow_without_limit(device: CelDevice) -> None:
    value, seconds = timed(doubled('["0123456789"]', 19, '"%s%s%s".format([{0}, {0}, {0}]) == ""'), device)
    assert isinstance(value, CelRuntimeError)
    assert seconds < SECONDS


def test_replacing_cannot_grow_without_limit(device: CelDevice) -> None:
    text = 'cel.bind(a, "0123456789012345678901234567890123456789", cel.bind(b, a.replace("", a), '
    text += 'cel.bind(c, b.replace("", b), cel.bind(d, c.replace("", c), d.size() > 0))))'
    value, seconds = timed(text, device)
    assert isinstance(value, CelRuntimeError)
    assert seconds < SECONDS


@pytest.mark.parametrize(
    "form", ["{} || true", "true || {}", "!({}) || true", "[1].exists(x, {} || true)", "{} ? true : true"]
)
def test_nothing_absorbs_the_spent_budget(form: str, device: CelDevice) -> None:
    bomb = "lists.range(1000).all(i, lists.range(1000).all(j, i + j >= 0))"
    value, _ = timed(form.format(bomb), device)
    if form.startswith("true"):
        assert value is True
    else:
        assert isinstance(value, CelRuntimeError)
        assert value.cost_exceeded


@pytest.mark.parametrize(
    ("text", "compiles"),
    [
        ("(" * 240 + "true" + ")" * 240, True),
        ("(" * 260 + "true" + ")" * 260, False),
        ("1" + " + 1" * 240 + " > 0", True),
        ("1" + " + 1" * 300 + " > 0", False),
        (" && ".join(["true"] * 500), True),
        (" || ".join(["false"] * 500) + " || true", True),
        ("!" * 100 + "true", True),
        ("[" * 240 + "]" * 240 + ".size() == 0", True),
        ("[" * 300 + "]" * 300 + ".size() == 0", False),
        ("false ? true : " * 200 + "true", True),
        ("{" * 5000, False),
        ("device.attributes" + ".a" * 300 + " == 1", False),
    ],
)
def test_nesting(text: str, compiles: bool, device: CelDevice) -> None:
    result = compile_selector(text, ENVIRONMENT)
    assert isinstance(result, Program) == compiles
    if isinstance(result, Program):
        assert isinstance(result.evaluate_with_cost(device).value, (bool, CelRuntimeError))
        assert result.estimate >= 0


@pytest.mark.parametrize(
    "text",
    [
        "[" * 240 + "]" * 240 + ".size() == 0",
        "[" * 200 + "device.driver" + "]" * 200 + ".size() == 1",
        "dyn(" * 240 + "device.driver" + ")" * 240 + " == 'x'",
        "1" + " + 1" * 240 + " > 0",
        "device.driver == 'x' ? true : " * 100 + "true",
    ],
)
def test_nesting_leaves_pythons_stack_alone(text: str, device: CelDevice) -> None:
    """Compiling, judging, evaluating and explaining work far down in a stack of calls, with Python's own limit."""
    limit = sys.getrecursionlimit()

    def far_down(calls: int) -> None:
        if calls:
            far_down(calls - 1)
            return
        program = program_of(text)
        assert program.estimate > 0
        assert isinstance(program.evaluate_with_cost(device).value, bool)
        explain(program, device)
        assert sys.getrecursionlimit() == limit

    far_down(250)


def test_deeply_nested_macros_evaluate(device: CelDevice) -> None:
    depth = 60
    text = "".join(f"[{at}].all(x{at}, " for at in range(depth)) + "x0 + x59 >= 0" + ")" * depth
    program = program_of(text)
    assert program.evaluate_with_cost(device).value is True


def test_compiling_ten_kilobytes_takes_moderate_work() -> None:
    clause = 'device.attributes["gpu.example.com"].model == "a100" && '
    text = clause * (10_000 // len(clause)) + "true"
    with counted_calls() as effort:
        program = program_of(text)
        assert program.estimate > 0
    assert effort.calls < 400_000


@pytest.mark.parametrize(
    "text", ["x" * 200_000, "(" * 90_000, '"' + "a" * 90_000, "1" * 50_000, "\ud800", "\x00", "é" * 5000]
)
def test_what_cannot_be_read_is_refused_with_little_work(text: str) -> None:
    with counted_calls() as effort:
        assert isinstance(compile_selector(text, ENVIRONMENT), CompileFailure)
    assert effort.calls < 1_000_000


def test_regular_expressions_are_linear(device: CelDevice) -> None:
    text = '"' + "a" * 2000 + '".matches("(a*)*(a*)*(a*)*b")'
    value, seconds = timed(text, device)
    assert value is False
    assert seconds < 1.0
    assert isinstance(compile_selector('"a".matches("a{1000}{1000}{1000}")', ENVIRONMENT), CompileFailure)
    assert isinstance(compile_selector('"a".matches("(?=a)")', ENVIRONMENT), CompileFailure)


LOADED_TO_COMPILE = """
import sys
from dray.cel import Environment, compile_selector

compile_selector('device.driver == "gpu.example.com"', Environment.devices()).estimate
print(*sorted({"re2", "difflib", "zoneinfo", "dray.cel.explain", "dray.cel.code_generator"} & set(sys.modules)))
"""


def test_an_expression_that_is_only_compiled_loads_no_pattern_matcher_explanation_or_code_generator() -> None:
    ran = subprocess.run([sys.executable, "-c", LOADED_TO_COMPILE], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
