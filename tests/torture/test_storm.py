"""API storms: nothing grows, nobody is lost, and a server that cannot follow says so."""

import pytest
from benchmarks.storm import StormOptions, beyond_overload, beyond_steady, broken_promises, growth, run_storm

BUSY = 60_000.0  # ms: on a machine with other work a latency says nothing.


@pytest.mark.timeout(300)
def test_a_slice():
    """Counted, not timed: every pod is created once and seen by every watcher, and every node keeps its lease."""
    result = run_storm(StormOptions(6, rate=300, watchers=3, living=10, nodes=20))
    assert broken_promises(result) == []
    assert result["created"] == result["sent"] >= 20
    assert result["deleted"] == result["created"] - 10
    assert result["missed"] == 0
    assert result["renewed"] >= 5


@pytest.mark.torture
@pytest.mark.timeout(400)
def test_a_minute():
    result = run_storm(StormOptions(60))
    assert beyond_steady(result, memory=1.5, create_p99_ms=BUSY) == []
    assert growth(result, "create_p50_ms") < 3


@pytest.mark.torture
@pytest.mark.timeout(1200)
def test_ten_minutes_at_twice_the_rate():
    """By then the server has forgotten its past more than once, so its memory has to stand still."""
    assert beyond_steady(run_storm(StormOptions(600, rate=4000)), create_p99_ms=BUSY) == []


@pytest.mark.torture
@pytest.mark.timeout(1200)
def test_ten_minutes_with_thousands_of_nodes():
    assert beyond_steady(run_storm(StormOptions(600, nodes=5000)), create_p99_ms=BUSY) == []


@pytest.mark.torture
@pytest.mark.timeout(600)
def test_ten_times_the_rate():
    options = StormOptions(120, rate=20_000, living=2000, nodes=1000)
    assert beyond_overload(run_storm(options), renew_p99_ms=BUSY) == []
