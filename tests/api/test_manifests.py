import pytest
from tests.effort import counted_calls

from dray.api.errors import DecodeError
from dray.api.manifests import read_manifests
from dray.api.yamltext import read_yaml


def values(text: str) -> list[object]:
    return [document.value for document in read_yaml(text)]


def test_several_documents_and_lists():
    manifests = list(
        read_manifests(
            b"""
# nothing here
---
apiVersion: v1
kind: Pod
metadata: {name: a}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: b}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimList
items:
- metadata:
    name: c
"""
        )
    )
    assert [(m.kind, m.document["metadata"]["name"], m.lines.line) for m in manifests] == [
        ("Pod", "a", 4),
        ("Pod", "b", 11),
        ("ResourceClaim", "c", 16),
    ]


def test_json_is_yaml_too():
    (manifest,) = read_manifests(b'{"apiVersion": "v1",\n "kind": "Pod",\n\t"spec": {"a": [1, 2.5, null, true]}}')
    assert manifest.document["spec"] == {"a": [1, 2.5, None, True]}
    assert manifest.lines.at("spec.a") == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 15),
        ("-1_000", -1000),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("yes", True),
        ("Off", False),
        ("~", None),
        ('""', ""),
        ("1Gi", "1Gi"),
        ('"1"', "1"),
        ("'true'", "true"),
        ("|\n  a\n  b\n", "a\nb\n"),
        (".", "."),
        ("-", [None]),
        ("1.2.3", "1.2.3"),
        ("{1: a, true: b, ~: c}", {"1": "a", "true": "b", "null": "c"}),
        ("{<<: {a: 1}, b: 2}", {"a": 1, "b": 2}),
        ("[&x {a: 1}, *x]", [{"a": 1}, {"a": 1}]),
    ],
)
def test_scalars_resolve_as_kubernetes_tools_read_them(text, value):
    assert values(text) == [value]


def test_lines_of_fields():
    (document,) = read_yaml("a:\n  b:\n  - c: 1\n  - d.e/f:\n      g: 2\n")
    lines = document.lines
    assert lines.at("a.b[0].c") == 3
    assert lines.at("a.b[1][d.e/f].g") == 5
    assert lines.at("a.b[1].d.e/f.g") == 5
    assert lines.at("a.b[7].x") == 2
    assert lines.at("nowhere") == 1


def test_duplicate_keys_are_named():
    (document,) = read_yaml("a: 1\nb:\n- {c: 1, c: 2}\na: 3\n")
    assert document.duplicate_fields == ("b[0].c", "a")
    assert document.value["a"] == 3


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"a: [1, 2", 2),
        (b"a: 1\n b: 2", 2),
        (b"a: 1\nb: *nope", 2),
        (b"a: .nan", 1),
        (b"a: 1e999", 1),
        (b"a: 1\n\xff", 2),
        (b"? [a]\n: b", 1),
        (b"just text", 1),
        (b"- a", 1),
    ],
)
def test_malformed_files_say_where(data, line):
    with pytest.raises(DecodeError) as refused:
        list(read_manifests(data))
    assert refused.value.line == line


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(20)
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 100_000, id="deep-flow"),
        pytest.param("- " * 20_000, id="deep-block"),
        pytest.param(BOMB, id="alias-bomb"),
    ],
)
def test_hostile_yaml_is_refused_with_little_work(text):
    with counted_calls() as effort, pytest.raises(DecodeError):
        list(read_yaml(text))
    assert effort.calls < 20_000
