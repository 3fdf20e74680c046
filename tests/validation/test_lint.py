"""Lint has an answer to everything that can be read."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.manifests import Manifest
from dray.api.schemas import known_kinds
from dray.api.yamltext import Lines
from dray.features import FeatureGates
from dray.validation.lint import lint
from dray.validation.shorthand_hints import read_with_hints

texts = st.sampled_from(
    ["", "a", "name", "spec", "devices", "cel", "1Gi", "exactly", "attributes", "nativeResourceMappings"]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
kinds = st.sampled_from([*known_kinds(), ("v9", "Pod"), ("", "ResourceClaim"), ("a/b/c", ""), (None, 7)])


@settings(max_examples=300, deadline=None)
@given(kinds, anything, anything, anything)
def test_any_document_is_judged(kind, metadata, spec, status):
    document = {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata, "spec": spec, "status": status}
    for gates in (FeatureGates.default(), FeatureGates.for_release("1.34")):
        for finding in lint(Manifest(document, Lines(1), ()), gates):
            assert str(finding)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="abc:-.# \n[]{}\"'&*!|>%@\t", max_size=60))
def test_any_text_is_read_or_its_flaw_is_named(text):
    manifests, broken = read_with_hints(text.encode())
    assert all(line >= 1 and message for line, message in broken)
    assert all(isinstance(manifest.document, dict) for manifest in manifests)


def test_an_ellipsis_and_a_shifted_separator_are_read_over():
    text = b"apiVersion: v1\nkind: Pod\n...\nspec: {}\n  ---\n  apiVersion: v1\n  kind: Node\n"
    manifests, broken = read_with_hints(text)
    assert [manifest.kind for manifest in manifests] == ["Pod", "Node"]
    assert [line for line, _ in broken] == [3, 5]
