"""Random input: only declared failures, and no other verdict than a second implementation's."""

from typing import Any

from cel_expr_python import cel as other
from cel_expr_python.ext import ext_bindings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.api.semver import Semver
from dray.cel import CelDevice, CelRuntimeError, CompileFailure, Environment, Program, compile_expression
from dray.cel.explain import explain
from dray.cel.program import MOST_PER_ESTIMATED, UNEXPECTED
from dray.cel.quantities import parse
from dray.cel.values import UInt
from tests.cel.expressions import VARIABLES, expressions
from tests.cel.spec_cases import type_of_text

OURS = Environment({name: type_of_text(t) for name, t in VARIABLES.items()})
THEIRS = other.NewEnv(
    variables={
        "i": other.Type.INT,
        "j": other.Type.INT,
        "u": other.Type.UINT,
        "d": other.Type.DOUBLE,
        "s": other.Type.STRING,
        "t": other.Type.STRING,
        "b": other.Type.BOOL,
        "l": other.Type.List(other.Type.INT),
        "n": other.Type.List(other.Type.STRING),
        "m": other.Type.Map(other.Type.STRING, other.Type.INT),
    },
    extensions=[ext_bindings.ExtBindings()],
)
DEVICE = CelDevice(
    "gpu.example.com",
    {"gpu.example.com": {"model": "a100", "cores": 64, "ready": True, "ports": (8, 1), "names": ("x", "y")}},
    {"gpu.example.com": {"memory": parse("80Gi")}},
)
# The same names with values of other types, and without them: code that was written for one device serves all.
DEVICES = [
    DEVICE,
    CelDevice(
        "other.example.com",
        {"gpu.example.com": {"model": 64, "cores": "x", "ready": "true", "ports": "a", "names": True}},
        {"gpu.example.com": {"memory": parse("1Gi")}},
    ),
    CelDevice("gpu.example.com", {"gpu.example.com": {"model": Semver.parse("1.2.3"), "ports": ()}}, {}),
    CelDevice("gpu.example.com", {}, {}),
    CelDevice("gpu.example.com", {}, {}, problem="attribute model: unsupported attribute value"),
]
EARLY = "a constant part cannot be computed"
ROUNDS = settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

values = st.fixed_dictionaries(
    {
        "i": st.integers(-5, 70),
        "j": st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]),
        "u": st.integers(0, 9),
        "d": st.floats(-4, 4, allow_nan=False),
        "s": st.sampled_from(["", "a", "abc", "ñandú"]),
        "t": st.sampled_from(["x", "42", "abc"]),
        "b": st.booleans(),
        "l": st.lists(st.integers(-2, 4), max_size=4),
        "n": st.lists(st.sampled_from(["a", "x"]), max_size=3),
        "m": st.dictionaries(st.sampled_from(["a", "b", "zz"]), st.integers(-1, 3), max_size=3),
    }
)


def our_verdict(text: str, given_values: dict[str, Any]) -> Any:
    program = compile_expression(text, OURS)
    if isinstance(program, CompileFailure):
        # Constant parts are computed before evaluation, as in Kubernetes; elsewhere they may be absorbed.
        return EARLY if program.kind == "internal" else f"refused: {program.message}"
    bound = {**given_values, "u": UInt(given_values["u"])}
    exact = program.outcome_of(bound).value
    return "error" if isinstance(exact, CelRuntimeError) else exact


def their_verdict(text: str, given_values: dict[str, Any]) -> Any:
    try:
        result = THEIRS.compile(text).eval(data=given_values)
    except Exception as refused:
        return f"refused: {refused}"
    return "error" if result.type() == other.Type.ERROR else result.value()


@ROUNDS
@given(expressions(3), values)
def test_same_verdict_as_another_implementation(text: str, given_values: dict[str, Any]) -> None:
    theirs = their_verdict(text, given_values)
    ours = our_verdict(text, given_values)
    if ours is EARLY or (isinstance(theirs, str) and theirs.startswith("refused")):
        return
    assert ours == theirs, text


def use(text: str) -> None:
    """Everything that one can do with a text; raises only what is declared."""
    environment = Environment.devices()
    program = compile_expression(text, environment)
    if isinstance(program, CompileFailure):
        assert program.message
        return
    assert program.estimate >= 0
    for device in DEVICES:
        outcome = program.evaluate_with_cost(device)
        assert isinstance(outcome.value, (bool, CelRuntimeError))
        assert UNEXPECTED not in str(outcome.value)
        assert (outcome.cost or 0) <= MOST_PER_ESTIMATED * max(1, program.estimate)
        assert shown(matched(program, device)) == shown(outcome.value)
    explain(program, DEVICE)


def matched(program: Program, device: CelDevice) -> bool | CelRuntimeError:
    """The answer without the cost."""
    try:
        return program.evaluate(device)
    except CelRuntimeError as problem:
        return problem


def shown(value: bool | CelRuntimeError) -> tuple[str, bool]:
    return str(value), isinstance(value, CelRuntimeError)


_WORDS = st.sampled_from(
    [
        "device",
        ".",
        "driver",
        "attributes",
        "capacity",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        '"gpu.example.com"',
        "model",
        "cores",
        "ports",
        "names",
        "memory",
        "==",
        "!=",
        "<",
        ">",
        "&&",
        "||",
        "!",
        "?",
        ":",
        "+",
        "-",
        "*",
        "/",
        "%",
        ",",
        "in",
        "true",
        "false",
        "null",
        "1",
        "0",
        "-1",
        "2.5",
        "3u",
        "'x'",
        "b'y'",
        "r'\\d'",
        "x",
        "all",
        "exists",
        "map",
        "filter",
        "size",
        "has",
        "cel",
        "bind",
        "quantity",
        "semver",
        "matches",
        "orValue",
        "optional",
        "of",
        "none",
        "type",
        "dyn",
        "int",
        "string",
        ".?",
        "[?",
        "exists_one",
        "includes",
        "sum",
        "min",
        "max",
        "sort",
        "format",
        "lists",
        "range",
        "transformMap",
        "transformList",
        "distinct",
        "join",
        "split",
    ]
)


@ROUNDS
@given(st.lists(_WORDS, max_size=24).map(" ".join))
def test_any_words_are_a_program_or_a_refusal(text: str) -> None:
    use(text)


@ROUNDS
@given(st.text(max_size=60))
def test_any_text_is_a_program_or_a_refusal(text: str) -> None:
    use(text)


_PARTS = st.sampled_from(
    [
        'device.attributes["gpu.example.com"].model',
        'device.attributes["gpu.example.com"].ports',
        'device.attributes["gpu.example.com"].nope',
        'device.capacity["gpu.example.com"].memory',
        'device.attributes["gpu.example.com"]',
        "device.driver",
        '"a"',
        "64",
        "[1, 2]",
        'quantity("1Gi")',
        "true",
    ]
)
_SHAPES = st.sampled_from(
    [
        "{0} == {1}",
        "{0} == 'a100' && {1} != 64 || {0} < 'b'",
        "has({0}.x) && 64 == {0} && {1} > 'a'",
        "!({0} == 'a100') && {1} in ['a', 'a100', 64]",
        "{0}.compareTo(quantity('1Gi')) > 0 && {1}.isLessThan(quantity('2Gi'))",
        "{0}.isGreaterThan(semver('1.0.0')) || {1}.?y.orValue({0}) == 64",
        "cel.bind(device, true ? device : device, device.driver == {1}) && {0} == {1}",
        "{0}.all(x, x == {1})",
        "{0}.exists(x, {1} == x)",
        "{0}.map(x, {1}).size() > 0",
        "{0}.transformMap(k, v, {1}).size() == 2",
        "{0}.filter(x, x != {1}).sum() == 3",
        "cel.bind(y, {0}, y == {1} || y.size() == 2)",
        "has({0}.x) ? {1} : {0}",
        "({0} ? {1} : {0}).contains({1})",
        "{0}.?x.orValue({1}) == {1}",
        "[{0}, {1}].includes({0}) && {1} in {0}",
        "{0}.compareTo({1}) >= 0 || {0} + {1} == {0}",
        "{0}[{1}] == 1 || !({0} < {1})",
        "string({0}).split({1}).join() == {1}",
        "optional.of({0}).optMap(x, x == {1}).orValue(false)",
        "type({0}) == type({1})",
        "'%s'.format([{0}]).matches({1})",
    ]
)


@ROUNDS
@given(_SHAPES, _PARTS, _PARTS)
def test_selectors_of_any_shape_fail_only_as_declared(shape: str, first: str, second: str) -> None:
    use(shape.format(first, second))
