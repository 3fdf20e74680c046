"""Which toleration matches which taint, for nodes and for devices."""

import pytest

from dray.api.core import Taint, Toleration
from dray.api.dra.taints import (
    HARD_EFFECTS,
    first_untolerated,
    is_tolerated,
    selects_device,
    tolerates,
    untolerated,
)
from dray.api.resource import DeviceTaint, DeviceTaintSelector, DeviceToleration


@pytest.mark.parametrize(("toleration", "taint"), [(Toleration, Taint), (DeviceToleration, DeviceTaint)])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"key": "k", "operator": "Exists"}, True, id="exists"),
        pytest.param({"operator": "Exists"}, True, id="exists-for-every-key"),
        pytest.param({"key": "k", "value": "v"}, True, id="equal-is-the-default"),
        pytest.param({"key": "k", "operator": "Equal", "value": "w"}, False, id="another-value"),
        pytest.param({"key": "l", "operator": "Exists"}, False, id="another-key"),
        pytest.param({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False, id="another-effect"),
        pytest.param({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, True, id="the-effect"),
        pytest.param({"key": "k", "operator": "Near", "value": "v"}, False, id="unknown-operator"),
    ],
)
def test_nodes_and_devices_have_one_rule(toleration, taint, fields, expected):
    tainted = taint(key="k", value="v", effect="NoSchedule")
    assert tolerates(toleration(**fields), tainted) == expected
    assert is_tolerated([toleration(**fields)], tainted) == expected


@pytest.mark.parametrize(
    ("operator", "value", "bound", "expected"),
    [("Gt", "5", "3", True), ("Gt", "3", "5", False), ("Lt", "3", "5", True), ("Lt", "many", "5", False)],
)
def test_numbers_are_compared(operator, value, bound, expected):
    toleration = Toleration(key="k", operator=operator, value=bound)
    assert tolerates(toleration, Taint(key="k", value=value, effect="NoSchedule")) == expected


def test_the_first_hard_taint_that_nothing_tolerates():
    soft = Taint(key="soft", effect="PreferNoSchedule")
    first, second = Taint(key="a", effect="NoSchedule"), Taint(key="b", effect="NoExecute")
    exists = Toleration(key="a", operator="Exists")
    assert first_untolerated([soft, first, second], []) == first
    assert first_untolerated([soft, first, second], [exists]) == second
    assert first_untolerated([soft], [], HARD_EFFECTS) is None
    assert list(untolerated([soft, first], [exists])) == [soft]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param({}, True, id="empty-selects-all"),
        pytest.param({"driver": "d", "pool": "p", "device": "x"}, True, id="all-fields"),
        pytest.param({"driver": "d", "device": "y"}, False, id="another-device"),
        pytest.param({"driver": "e"}, False, id="another-driver"),
    ],
)
def test_the_devices_that_a_taint_rule_selects(selector, expected):
    assert selects_device(DeviceTaintSelector(**selector), "d", "p", "x") == expected
