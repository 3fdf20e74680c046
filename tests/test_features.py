import pytest

from dray.features import GATES, RELEASES, FeatureGateError, FeatureGates


def test_everything_is_on_by_default():
    assert FeatureGates.default().on == frozenset(GATES)
    FeatureGates.default().checked()


@pytest.mark.parametrize("release", RELEASES)
def test_the_defaults_of_each_release_fit_together(release):
    FeatureGates.for_release(release).checked()


@pytest.mark.parametrize(
    ("release", "gate", "expected"),
    [
        ("1.34", "DRAConsumableCapacity", False),
        ("1.36", "DRAConsumableCapacity", True),
        ("1.34", "DRAPrioritizedList", True),
        ("1.36", "DRADeviceTaintRules", False),
        ("1.37", "DRADeviceTaintRules", True),
        ("1.37", "DRAFractionalCapacityRange", False),
        ("1.37", "DRANodeAllocatableResources", False),
        ("1.34", "DRADownwardDeviceAttributes", False),
    ],
)
def test_release_defaults(release, gate, expected):
    assert FeatureGates.for_release(release).enabled(gate) is expected


def test_the_old_name_of_a_gate_still_works():
    gates = FeatureGates.parse("DRANativeResources=true", FeatureGates.for_release("1.37"))
    assert gates.enabled("DRANodeAllocatableResources")


@pytest.mark.parametrize(
    ("base", "text", "message"),
    [
        (None, "Nope=true", "unrecognized feature gate: Nope"),
        (None, "DRADeviceTaints", "missing bool value"),
        (None, "DRADeviceTaints=maybe", "invalid value"),
        ("1.37", "DRADeviceTaints=false", "DRADeviceTaintRules is enabled, but depends on features that are disabled"),
        (None, "DRADeviceTaintRules=true,DRADeviceTaints=false", r"disabled: \[DRADeviceTaints\]"),
        ("1.37", "DynamicResourceAllocation=false", "it is locked"),
        ("1.34", "DRADerivedAttributes=true", "unrecognized feature gate in release 1.34"),
        ("1.36", "DRADeviceTaintRules=true,DRADeviceTaints=false", r"disabled: \[DRADeviceTaints\]"),
    ],
)
def test_refused_settings(base, text, message):
    with pytest.raises(FeatureGateError, match=message):
        FeatureGates.parse(text, FeatureGates.for_release(base) if base else None)


def test_emulating_an_unknown_release_is_refused():
    with pytest.raises(FeatureGateError, match=r"choose one of 1\.34"):
        FeatureGates.for_release("1.2")


@pytest.mark.parametrize("gate", GATES)
def test_every_gate_may_be_off(gate):
    gates = FeatureGates.parse(f"{gate}=false")
    assert gates == FeatureGates.default().without(gate)
    assert gates.checked() == gates


def test_switching_a_gate_off_takes_its_dependents_along():
    gates = FeatureGates.default().without("DRAPartitionableDevices")
    assert not gates.enabled("DRADeviceCompatibilityGroups")
    assert gates.checked() == gates
