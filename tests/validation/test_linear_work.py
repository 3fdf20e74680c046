"""Lists in objects may be as long as a request: what a rule does with an entry must not grow with the list."""

from typing import Any

from tests.effort import counted_steps

from dray.validation.certificate_requests import check_request
from dray.validation.errors import Errors
from dray.validation.pod_details import check_details


def a_pod_with_spreading(entries: int) -> dict[str, Any]:
    spreading = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**spreading, "topologyKey": f"key-{i}"} for i in range(entries)]}


def test_spreading_in_twice_as_many_ways_is_twice_the_work() -> None:
    def steps(entries: int) -> int:
        with counted_steps() as steps:
            check_details({"kind": "Pod"}, a_pod_with_spreading(entries), "spec", Errors())
        return steps.taken

    steps(1)
    assert steps(200) < 2.2 * steps(100)


class ComparedText(str):
    """Counts how often a text is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        ComparedText.comparisons += 1
        return str.__eq__(self, other)


def test_twice_as_many_usages_of_a_certificate_are_compared_twice_as_often() -> None:
    def comparisons(entries: int) -> int:
        before = ComparedText.comparisons
        usages = [ComparedText(f"usage {i}") for i in range(entries)]
        check_request({"spec": {"request": "", "signerName": "example.com/x", "usages": usages}}, None, Errors())
        return ComparedText.comparisons - before

    assert 0 < comparisons(200) < 2.2 * comparisons(100)


def test_spreading_twice_in_one_way_is_refused_where_it_is_said_first() -> None:
    spec, errors = a_pod_with_spreading(2), Errors()
    spec["topologySpreadConstraints"] += spec["topologySpreadConstraints"][:1]
    check_details({"kind": "Pod"}, spec, "spec", errors)
    assert [str(error) for error in errors.found] == [
        'spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{key-0, DoNotSchedule}"'
    ]
