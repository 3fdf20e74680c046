"""Every YAML example of the KEPs is read; the shorthands in them are named with what to write instead."""

from pathlib import Path

import pytest

from dray.api.codec import shape_document
from dray.api.schemas import schema_for
from dray.features import FeatureGates
from dray.validation.lint import lint
from dray.validation.shorthand_hints import (
    read_with_hints,
    repair,
)

EXAMPLES = sorted((Path(__file__).parent / "data" / "keps").glob("*.yaml"))

# What a hint for the reader looks like; anything else would be a bare refusal.
HELPFUL = (
    "write ",
    "did you mean",
    "leave out",
    "check the indentation",
    "has to start in the first column",
    "is missing",
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_is_read(path):
    manifests, broken = read_with_hints(path.read_bytes())
    assert manifests or broken
    for line, message in broken:
        assert any(hint in message for hint in HELPFUL), f"{path.name}:{line}: {message}"
    for manifest in manifests:
        schema = schema_for(manifest.api_version or "resource.k8s.io/v1", manifest.kind)
        if schema is None or not manifest.api_version:
            continue
        repaired, hints = repair(manifest.document, schema)
        assert all("write " in hint.message for hint in hints)
        if path.stem != "kep-4381-02":  # its pool is a bare name, from before pools had generations
            assert shape_document(repaired).document["kind"] == manifest.kind


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_is_judged(path):
    for manifest in read_with_hints(path.read_bytes())[0]:
        for finding in lint(manifest, FeatureGates.default()):
            assert finding.line >= manifest.lines.line
            assert finding.message


def test_there_are_examples():
    assert len(EXAMPLES) >= 25
