"""Ten minutes of API storm: nothing grows."""

import pytest
from benchmarks.storm import growth, run_storm


def check(result, *, memory: float) -> None:
    windows = result["windows"]
    assert sum(each["refused"] for each in windows) == 0
    assert result["breaks"] == 0
    assert all(each["living"] <= 300 for each in windows)
    for part in windows[0]["memory_mb"]:
        assert growth(result, "memory_mb", part) < memory, part
    assert growth(result, "create_p50_ms") < 3


@pytest.mark.torture
@pytest.mark.timeout(400)
def test_a_minute():
    check(run_storm(60), memory=1.5)


@pytest.mark.torture
@pytest.mark.timeout(1200)
def test_ten_minutes():
    """By then the server has forgotten its past more than once, so its memory has to stand still."""
    check(run_storm(600), memory=1.25)
