"""A reason is a plain value that keeps its code on the way to its reader."""

import pytest

from dray.api.reasons import Reason, texts


def test_a_reason_reads_as_its_text():
    reason = Reason("in-use", "2 devices are in use", {"claim": "gpus", "devices": ("gpu-0", "gpu-1")})
    assert str(reason) == "2 devices are in use"
    assert reason.document() == {
        "code": "in-use",
        "text": "2 devices are in use",
        "facts": {"claim": "gpus", "devices": ["gpu-0", "gpu-1"]},
    }
    assert Reason("taint", "tainted").document() == {"code": "taint", "text": "tainted"}


def test_reasons_can_be_compared_and_counted():
    first, second = Reason("taint", "tainted", {"key": "k"}), Reason("taint", "tainted", {"key": "k"})
    assert first == second
    assert len({first, second}) == 1
    assert first != Reason("taint", "tainted", {"key": "l"})
    assert texts([first, second, Reason("in-use", "taken")]) == ("tainted", "taken")
    with pytest.raises(AttributeError):
        first.code = "other"
