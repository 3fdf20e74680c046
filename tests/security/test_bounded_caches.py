"""Texts of requests that the server remembers fill a bounded part of the memory, however many and however long they are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import msgspec
import pytest

from dray.api.caching import RememberedTexts
from dray.api.scheme import by_kind
from dray.api.semver import Semver
from dray.apiserver.read.selectors import parse_fields, parse_labels
from dray.apiserver.request.request_info import request_info_of
from dray.apiserver.request.request_options import response_format
from dray.apiserver.write.decoding import decode_object
from dray.cel import Environment, compile_selector
from dray.cel.library.regex import compiled
from dray.validation import ValidationContext, validate_create


def a_label_selector(number: int) -> object:
    return parse_labels(",".join(f"k{number}-{place}=v" for place in range(1200)))


def a_field_selector(number: int) -> object:
    return parse_fields(",".join(f"spec.nodeName!=n{number}-{place}" for place in range(500)))


def a_pattern(number: int) -> object:
    return compiled(f"{number}|" + "a" * 4000)


def a_version(number: int) -> object:
    return Semver.parse(f"1.2.3-{number}.{'a' * 4000}")


def an_expression(number: int) -> object:
    """One that does not compile is remembered, too, and quicker to make."""
    return compile_selector(f"{number} + '" + "a" * 10_000, Environment.devices())


@pytest.mark.parametrize(
    ("read", "kept"),
    [(a_label_selector, 30), (a_field_selector, 30), (a_pattern, 20), (a_version, 70), (an_expression, 110)],
)
def test_long_texts_are_forgotten_after_a_few_hundred_kilobytes(read: Callable[[int], object], kept: int) -> None:
    first = read(0)
    assert read(0) is first
    for number in range(1, kept):
        read(number)
    assert read(0) is not first


def test_long_heads_of_requests_are_not_remembered() -> None:
    """Anybody may send them: two thousand paths of sixty kilobytes were a hundred megabytes."""
    tracemalloc.start()
    try:
        for number in range(100):
            request_info_of("GET", f"/api/v1/{number}/" + "a/" * 30_000, watch=False, field_name="")
            request_info_of("GET", "/api/v1/pods", watch=False, field_name=f"{number}" + "a" * 60_000)
            response_format(f"application/json;a{number}=" + "b" * 60_000, streams=True)
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


def test_what_is_remembered_is_bounded_by_characters() -> None:
    asked: list[str] = []

    def compute(text: str) -> int:
        asked.append(text)
        return len(text)

    remembered = RememberedTexts(compute, entries=4, long_characters=3000)
    for number in range(100):
        assert remembered(f"{number:04}" + "x" * 996) == 1000
        assert remembered.long_characters() <= 3000
    asked.clear()
    # The last three are known; one that is used again stays.
    remembered("0097" + "x" * 996)
    remembered("0100" + "x" * 996)
    remembered("0097" + "x" * 996)
    assert asked == ["0100" + "x" * 996]
    # Long texts do not push out short ones.
    remembered("short")
    for number in range(50):
        remembered(f"{number:04}" + "y" * 2000)
    asked.clear()
    remembered("short")
    assert asked == []


def check_other_devices(number: int) -> None:
    """Reads and checks a slice of 400 KB, as for a POST."""
    attributes = {f"a{n}": {"string": "x" * 60} for n in range(32)}
    spec = {
        "driver": "d.example.com",
        "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"d{number}-{n}", "attributes": attributes} for n in range(128)],
    }
    tree = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
    decoded = decode_object(msgspec.json.encode(tree), "application/json", by_kind("ResourceSlice"), "v1")
    assert not validate_create(decoded.document, ValidationContext())


def test_lists_of_devices_that_were_checked_are_not_kept() -> None:
    """A node may send other devices each time: thousands of lists of hundreds of kilobytes were gigabytes."""
    tracemalloc.start()
    try:
        for number in range(20):  # until the lists that are kept as trees have their four megabytes
            check_other_devices(number)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(20, 40):
            check_other_devices(number)
        assert tracemalloc.get_traced_memory()[0] < before + 2_000_000
    finally:
        tracemalloc.stop()
