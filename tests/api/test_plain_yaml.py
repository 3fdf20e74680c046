"""The fast reader of plain YAML reads what kubectl prints, and never anything else than the reader of all YAML does."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dray.api.errors import DecodeError
from dray.api.plain_yaml import NOT_PLAIN, read_plain_yaml
from dray.api.yamltext import read_yaml

# As kubectl prints it: keys in order, lists at the column of their key, texts of several lines after a bar.
PRINTED = """\
apiVersion: v1
items:
- apiVersion: v1
  kind: Pod
  metadata:
    annotations:
      a.example.com/b: ""
      empty: ''
      kubectl.kubernetes.io/last-applied-configuration: |
        {"apiVersion":"v1","kind":"Pod",
          "metadata": {}}

      note: |-
        # no comment: a text
        key: value
      quoted: 'it''s "so": no'
    creationTimestamp: "2026-01-01T00:00:00Z"
    labels: {}
    name: web-0
    uid: 1e3a0000-0000-4000-8000-000000000000
  spec:
    containers:
    - args:
      - --port=80
      - "a\\tb\\\\"
      - it's odd
      env:
      - name: N
        value: "no"
      image: a.example.com/b:1
      ready: true
      weight: 0.5
      octal: 0644
      dangling:
    nodeSelector:
      on: "1"
    tolerations: []
  status:
    phase: Running
kind: List
metadata:
  resourceVersion: ""
"""


def carefully(text: str) -> Any:
    """What the reader of all YAML makes of a text with one mapping; NOT_PLAIN where there is no such thing."""
    try:
        documents = list(read_yaml(text.encode()))
    except DecodeError:
        return NOT_PLAIN
    if len(documents) != 1 or documents[0].duplicate_fields:
        return NOT_PLAIN
    return documents[0].value


def check(text: str) -> bool:
    """Whether it was read fast; if so, it was read right."""
    found = read_plain_yaml(text.encode())
    if found is NOT_PLAIN:
        return False
    expected = carefully(text)
    assert (found, repr(found)) == (expected, repr(expected)), text
    return True


def test_what_kubectl_prints_is_read() -> None:
    assert check(PRINTED)


@pytest.mark.parametrize(
    "text",
    [
        "a: {b: c}",
        "a: &x b",
        "a: *x",
        "a: b # comment",
        "# comment\na: b",
        "a: b\n c: d",
        "a:\n  b: c\n d: e",
        "- a",
        "a: >\n  folded\n",
        "a: |2\n   x\n",
        "a: |\n\n  begins with an empty line\n",
        "a: |\n  x\n y\n",
        'a: "\\x41"',
        'a: "\\ud83d"',
        'a: "begun',
        "a: b\n  continued",
        "a: b: c",
        "a: b:",
        "a: 'b' c",
        "a: 1\na: 2",
        "yes: 1\ntrue: 2",
        "? a\n: b",
        "<<: {a: b}",
        "a: !!str 1",
        "a: @b",
        "a:\tb",
        "a: b\r\n",
        "a: ü",
        "a: .inf",
        "---\na: b",
        "a: b\n...\n",
        "a: - b",
        "a:\n- - b",
        "a:\n  b\n",
        "a:\n  - b\n - c",
        "- a: b\n  - c",
        "a: |\n  x\nb: |",
        "a: [",
    ],
)
def test_everything_else_is_left_to_the_careful_reader(text: str) -> None:
    assert not check(text) or carefully(text) is not NOT_PLAIN


LINES = st.lists(
    st.tuples(
        st.sampled_from(["", "  ", "    ", "      ", " ", "   "]),
        st.sampled_from(["", "", "- ", "-   ", "- - ", "-"]),
        st.sampled_from(["", "a:", "b:", "a.b/c:", "yes:", "10:", "f:x:", "0x1:", "null:", "a :", '"q":', "-x:"]),
        st.sampled_from(
            [
                "",
                "''",
                "'a'",
                "'a''b'",
                '""',
                '"a"',
                '"a\\n"',
                "a",
                "a b",
                "a: b",
                "a:",
                "a #b",
                "#",
                "1",
                "01",
                "1e3",
                "1_0",
                "-1",
                "-",
                "- a",
                "~",
                "null",
                "yes",
                "{}",
                "[]",
                "{a: b}",
                "[1]",
                "&a",
                "*a",
                ">",
                "%",
                "@",
                "`",
                ",",
                "?",
                "? a",
                ":",
                ":a",
                "a,b",
                "!x",
                ".5",
                "0x1F",
                "1.2.3",
                "a ",
            ]
        ),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(LINES, st.booleans())
@example([("", "", "a:", "|"), ("  ", "", "", "a")], True)
def test_where_both_read_they_read_the_same(lines: list[tuple[str, str, str, str]], ends: bool) -> None:
    text = "\n".join(f"{indent}{dash}{key}{' ' if key and value else ''}{value}" for indent, dash, key, value in lines)
    check(text + "\n" * ends)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(PRINTED)), st.integers(0, 6), st.text("ab:-|#'\" \n{[0", max_size=4))
def test_a_damaged_text_is_not_misread(at: int, lost: int, put: str) -> None:
    check(PRINTED[:at] + put + PRINTED[at + lost :])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc.-/ 1", min_size=1, max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text("abcd", min_size=1, max_size=5), VALUES, max_size=4))
def test_any_document_that_is_written_is_read_the_same(document: dict[str, Any]) -> None:
    check(yaml.safe_dump(document))


ITEM = """\
  - attributes:
      index:
        int: {number}
      healthy:
        bool: true
      model:
        string: {word}
    name: gpu-{number}
    empty: {{}}
    nothing:
"""


def a_long_list(*more: str, **changed: str) -> str:
    """Twelve devices below a key, as lists of devices are printed; `more` replaces the text of the last ones."""
    items = [ITEM.format(number=number, word=changed.get(f"word{number}", "a100")) for number in range(12 - len(more))]
    return "spec:\n  devices:\n" + "".join([*items, *more]) + "  driver: gpu.example.com\n"


def test_long_lists_of_items_that_are_alike_are_read() -> None:
    assert check(a_long_list())
    assert check("list:\n" + "".join(f"- {word}\n" for word in ("a", "1", "no", "'x'", '"y"', "{}", "1.5", "null") * 2))


WORDS = (
    "a%sb",
    "'it''s'",
    '"a\\n%d"',
    "no",
    "1e3",
    "{}",
    "[]",
    "12345678901234567890123",
    "{a: b}",
    "&x",
    "a: b",
    "|",
    "''",
    "~",
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from([f"word{number}" for number in range(12)]), st.sampled_from(WORDS), max_size=4),
    st.lists(
        st.sampled_from(
            (
                ITEM.format(number=7, word="b"),
                ITEM.format(number=7, word="b").replace("empty", "other"),
                ITEM.format(number=7, word="b") + "    extra: 1\n",
                ITEM.format(number=7, word="b").replace("    nothing:\n", ""),
                ITEM.format(number=7, word="b").replace("index:\n", "index:  \n"),
                "  - plain\n",
                "  -\n",
                "\n",
                "  # comment\n",
            )
        ),
        max_size=2,
    ),
)  # fmt: skip
def test_long_lists_with_an_odd_item_are_read_the_same(changed: dict[str, str], more: list[str]) -> None:
    check(a_long_list(*more, **changed))
