"""Random expressions: well typed over a few variables, so that most of them say something."""

from __future__ import annotations

from hypothesis import strategies as st

VARIABLES = {
    "i": "int",
    "j": "int",
    "u": "uint",
    "d": "double",
    "s": "string",
    "t": "string",
    "b": "bool",
    "l": "list(int)",
    "n": "list(string)",
    "m": "map(string, int)",
}

_INTS = st.sampled_from(["0", "1", "-1", "2", "7", "64", "9223372036854775807", "-9223372036854775808", "i", "j"])
_UINTS = st.sampled_from(["0u", "1u", "3u", "18446744073709551615u", "u"])
_DOUBLES = st.sampled_from(["0.0", "1.0", "-1.5", "2.5", "1e18", "d"])
_STRINGS = st.sampled_from(['""', '"a"', '"abc"', '"b"', '"ñandú"', "s", "t", 's + "x"'])
_BOOLS = st.sampled_from(["true", "false", "b", "has(m.a)", "has(m.zz)"])
_LISTS = st.sampled_from(["[]", "[1]", "[1, 2, 3]", "[0, 1]", "l", "l + [4]"])
_STRING_LISTS = st.sampled_from(['["a", "b"]', "n", '["x"]'])
_MAPS = st.sampled_from(['{"a": 1}', "m", '{"a": 1, "b": 0}'])


def _joined(form: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda values: form.format(*values))


def expressions(depth: int = 3) -> st.SearchStrategy[str]:
    """Expressions of type bool."""
    ints, uints, doubles, strings, bools = _INTS, _UINTS, _DOUBLES, _STRINGS, _BOOLS
    lists = _LISTS
    for _ in range(depth):
        ints, doubles, strings, bools, lists = _deeper(ints, uints, doubles, strings, bools, lists)
    return bools


def _deeper(
    ints: st.SearchStrategy[str],
    uints: st.SearchStrategy[str],
    doubles: st.SearchStrategy[str],
    strings: st.SearchStrategy[str],
    bools: st.SearchStrategy[str],
    lists: st.SearchStrategy[str],
) -> tuple[st.SearchStrategy[str], ...]:
    operator = st.sampled_from("+-*/%")
    comparison = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    order = st.sampled_from(["<", "<=", ">", ">="])
    more_ints = st.one_of(
        ints,
        _joined("({} {} {})", ints, operator, ints),
        _joined("-({})", ints),
        _joined("size({})", strings),
        _joined("{}.size()", lists),
        _joined("({} ? {} : {})", bools, ints, ints),
        _joined("{}[{}]", lists, ints),
        _joined('{}["{}"]', _MAPS, st.sampled_from("abz")),
        _joined("int({})", strings),
        _joined("int({})", doubles),
    )
    more_doubles = st.one_of(doubles, _joined("({} {} {})", doubles, st.sampled_from("+-*/"), doubles))
    more_strings = st.one_of(strings, _joined("({} + {})", strings, strings), _joined("string({})", ints))
    more_lists = st.one_of(
        lists,
        _joined("({} + {})", lists, lists),
        _joined("{}.map(x, x * {})", lists, ints),
        _joined("{}.filter(x, x {} {})", lists, comparison, ints),
    )
    more_bools = st.one_of(
        bools,
        _joined("({} && {})", bools, bools),
        _joined("({} || {})", bools, bools),
        _joined("!({})", bools),
        _joined("({} {} {})", ints, comparison, ints),
        _joined("({} {} {})", ints, order, doubles),
        _joined("({} {} {})", uints, order, ints),
        _joined("(dyn({}) == {})", ints, doubles),
        _joined("({} {} {})", strings, comparison, strings),
        _joined("({} in {})", ints, lists),
        _joined("({} in {})", strings, _STRING_LISTS),
        _joined("({} in {})", strings, _MAPS),
        _joined("{}.startsWith({})", strings, strings),
        _joined("{}.contains({})", strings, strings),
        _joined("{}.all(x, x {} {})", lists, comparison, ints),
        _joined("{}.exists(x, {} / x == {})", lists, ints, ints),
        _joined("{}.exists_one(x, x % {} == 0)", lists, ints),
        _joined("{}.all(k, k != {})", _MAPS, strings),
        _joined("({} == {})", lists, lists),
        _joined("({} ? {} : {})", bools, bools, bools),
        _joined("cel.bind(y, {}, y > {} || y == {})", ints, ints, ints),
    )
    return more_ints, more_doubles, more_strings, more_bools, more_lists
